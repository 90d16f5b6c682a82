"""Where the documentation stands, and what its pages include."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
PROGRAMS = EXAMPLES / "programs"

INCLUDE = re.compile(r'^--8<-- "docs/examples/([^":]+)(?::(\w+))?"$', re.MULTILINE)


def shown_examples() -> list[Path]:
    """The examples that a page shows together with their output."""
    return sorted(path for path in EXAMPLES.rglob("*.py") if PROGRAMS not in path.parents)


def pages() -> list[Path]:
    """The pages, fragments of changes left out."""
    return sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "changes")


def includes_of(page: Path) -> list[str]:
    """The example files that a page includes, in order, without the names of sections."""
    return [found[0] for found in INCLUDE.findall(page.read_text(encoding="utf-8"))]
