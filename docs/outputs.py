"""Writes the output of each example beside it: ``python docs/outputs.py [part of a path ...]``.

A page shows an example and its output; ``tests/docs`` runs the example on both backends and compares. Run this after
an example has changed, and read the difference.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent / "examples"


def shown_examples() -> list[Path]:
    """The examples whose output a page shows; of the programs those that need nobody to talk to."""
    return sorted(
        path
        for path in EXAMPLES.rglob("*.py")
        if path.parent.name != "programs" or path.stem in ("nursery", "with_asyncio", "crawler", "duel", "survive")
    )


def main(parts: list[str]) -> None:
    """Run the examples whose path contains one of ``parts``, all without any."""
    for path in shown_examples():
        if parts and not any(part in str(path.relative_to(EXAMPLES)) for part in parts):
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, path],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        if done.returncode:
            sys.exit(f"{path.relative_to(EXAMPLES)} failed:\n{done.stderr}")
        path.with_suffix(".out").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
