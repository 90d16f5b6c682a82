"""A hook of MkDocs: one reference page for each room of the package, so that no public module can lack one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGE = Path("cubepi_anyio")


def public_modules() -> dict[str, list[str]]:
    """Dotted names of the public modules by room; packages are left out, because they only pass names on."""
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if not any(part.startswith("_") for part in parts):
            rooms[parts[0]].append(".".join((PACKAGE.name, *parts)))
    return dict(rooms)


def on_config(config: Any) -> Any:
    """Put the pages into the navigation; that of the benchmarks only where it is there."""
    if Path(config.docs_dir, "performance.md").exists():
        config.nav.insert(4, {"Performance": "performance.md"})
    config.nav.append({"Reference": [{room: f"reference/{room}.md"} for room in public_modules()]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Write the pages."""
    for room, names in public_modules().items():
        body = "\n\n".join([f"# `{PACKAGE.name}.{room}`", *(f"::: {name}" for name in names)])
        files.append(File.generated(config, f"reference/{room}.md", content=body + "\n"))
    return files
