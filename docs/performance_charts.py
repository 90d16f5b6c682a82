"""A hook of MkDocs: the charts of the page Performance, and its tables, made from the results that are kept."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from draw import CHARTS, NAMES, load, pictures  # noqa: E402 - it is a program beside the results, not a package
from targets import judge  # noqa: E402

PAGE = "performance.md"
PROGRAMS = tuple(path.stem for path in sorted((BENCHMARKS / "results").glob("*.json")) if path.stem != "peers")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the charts beside the page."""
    for name, picture in pictures().items():
        files.append(File.generated(config, f"performance/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Put the charts and tables into the page, where its comments ask for them."""
    if page.file.src_uri != PAGE:
        return markdown
    made = {"charts": charts(), "targets": targets(), "ahead": ahead(), "endings": endings(), "machine": machine()}
    for name, text in made.items():
        markdown = markdown.replace(f"<!-- {name} -->", text)
    return markdown


def own_rows() -> list[dict[str, Any]]:
    """The rows of this library's own run."""
    return [row for program in PROGRAMS for row in load(program)["rows"]]


def charts() -> str:
    """The charts as images, by the order of their titles."""
    shown = pictures()
    return "\n\n".join(f"![{title}](performance/{name}.svg)" for name, title, _ in CHARTS if f"{name}.svg" in shown)


def targets() -> str:
    """The targets and what was measured."""
    lines = ["| work | backend | measured | target | |", "|---|---|---:|---:|---|"]
    for target, backend, value, met in judge(own_rows()):
        mark = "met" if met else "**missed**"
        lines.append(f"| {target.work} | {backend} | {target.text(value)} | ≤ {target.text(target.bound)} | {mark} |")
    return "\n".join(lines)


def ratios(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """For each benchmark and size the ratio of each library on asyncio."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if "ratio" in row and row["backend"] in ("asyncio", "-"):
            found.setdefault((row["benchmark"], str(row["size"])), {})[row["library"]] = row["ratio"]["median"]
    return found


def ahead() -> str:
    """Where a peer costs less than this library. What returns while its tools go on has not done the work."""
    lines: list[str] = []
    peers = [row for row in load("peers")["rows"] if row["library"] != "ours" and not row.get("tasks_left")]
    for (benchmark, size), of in ratios([*own_rows(), *peers]).items():
        ours = of.pop("ours", math.nan)
        better = [f"{NAMES[peer]} x{ratio:.2f}" for peer, ratio in sorted(of.items()) if ratio < ours]
        if better:
            lines.append(f"- `{benchmark}` at {size}: {', '.join(better)}; cubepi-anyio x{ours:.2f}.")
    return "\n".join(lines) or "In the works measured here no peer costs less than this library."


def endings() -> str:
    """How each peer's run ends that is aborted or cancelled."""
    lines = ["| library | how | ends | tasks left |", "|---|---|---|---:|"]
    for row in [*own_rows(), *(row for row in load("peers")["rows"] if row["library"] != "ours")]:
        if row["benchmark"] == "cancel" and row["backend"] == "asyncio" and "size" in row:
            ends = row.get("failure", "yes").replace("no such way", "has no such way")
            lines.append(f"| {NAMES[row['library']]} | {row['size']} | {ends} | {row.get('tasks_left', '')} |")
    return "\n".join(lines)


def machine() -> str:
    """What it was measured with."""
    kept = load(PROGRAMS[0]) if PROGRAMS else {"rows": []}
    if not kept["rows"]:
        return "Nothing has been measured yet."
    of = kept["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    where = f"{of['system']} on {of['architecture']}, {of['cores']} cores, {of['python']}"
    peers = json.loads(json.dumps(load("peers").get("peers", {})))
    listed = ", ".join(packages[0].replace("==", " ") for packages in peers.values())
    return f"Measured {kept['measured']}: {where}; {versions}." + (f" Peers: {listed}." if listed else "")
