"""The repository's text names no machine, no package registry and no unfinished business."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".pyi", ".md", ".toml", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".txt", ""}
LEFT_OUT = {".venv", ".git", "site", "build", "dist", "__pycache__", ".hypothesis", ".ruff_cache", ".pytest_cache"}

# One letter of each word stands in brackets, so that this file does not contain what it looks for.
RULES = {
    "a path of one machine": re.compile(r"(?<![A-Za-z0-9_.~:/-])/(?:wor[k]|far[m]|roo[t]|hom[e]|User[s])/"),
    "unfinished business": re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b"),
    "a package registry": re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.(?:org|com)|--(?:extra-)?index-ur[l]"),
}


def text_faults(root: Path, paths: list[Path]) -> list[str]:
    """Lines that break a rule, as ``path:line: what``; files that are not text are passed over."""
    faults: list[str] = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        faults.extend(
            f"{path.relative_to(root)}:{number}: {what}"
            for number, line in enumerate(lines, 1)
            for what, rule in RULES.items()
            if rule.search(line)
        )
    return faults


def repository_files(root: Path) -> list[Path]:
    """Files written by hand: what git knows or would add, or outside a checkout what lies there."""
    listed = (
        subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=False,
        )
        if (root / ".git").exists()
        else None
    )
    if listed is not None and listed.returncode == 0:
        found = [root / name for name in listed.stdout.decode().split("\0") if name]
    else:
        found = [path for path in root.rglob("*") if not LEFT_OUT & set(path.relative_to(root).parts)]
    return sorted(path for path in found if path.is_file() and path.suffix in SUFFIXES)


def test_the_text_of_the_repository_is_clean() -> None:
    paths = repository_files(ROOT)
    assert ROOT / "pyproject.toml" in paths
    assert text_faults(ROOT, paths) == []


def test_each_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    folder, mark, host = "work", "TO", "pypi"
    lines = [
        f"see /{folder}/x",
        f"# {mark}DO: later",
        f"from https://{host}.org/simple",
        f"https://example.com/{folder}/x",
    ]
    page.write_text("\n".join(["fine", *lines]), encoding="utf-8")
    assert text_faults(tmp_path, repository_files(tmp_path)) == [
        "page.md:2: a path of one machine",
        "page.md:3: unfinished business",
        "page.md:4: a package registry",
    ]
