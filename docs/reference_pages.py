"""A hook of MkDocs: one reference page for each room of the package, so that no public module can lack one."""

from __future__ import annotations

import ast
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


def top_level_names() -> list[tuple[str, str]]:
    """What ``import cubepi_anyio`` offers: each name, and the dotted name of the module that defines it."""
    module = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    return [
        (name.name, f"{PACKAGE.name}.{node.module}")
        for node in module.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
        if name.asname == name.name
    ]


def index_page() -> str:
    """The names of the package itself, each a link to where it is described."""
    rows = [f"| [`{name}`][{module}.{name}] | `{module}` |" for name, module in top_level_names()]
    head = f"# Names of `{PACKAGE.name}`\n\nThese are imported from the package itself; the rooms have more.\n\n"
    return head + "\n".join(["| name | defined in |", "|---|---|", *rows]) + "\n"


def on_config(config: Any) -> Any:
    """Put the pages into the navigation."""
    rooms = [{room: f"reference/{room}.md"} for room in public_modules()]
    config.nav.append({"Reference": ["reference/index.md", *rooms]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Write the pages."""
    files.append(File.generated(config, "reference/index.md", content=index_page()))
    for room, names in public_modules().items():
        body = "\n\n".join([f"# `{PACKAGE.name}.{room}`", *(f"::: {name}" for name in names)])
        files.append(File.generated(config, f"reference/{room}.md", content=body + "\n"))
    return files


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Leave out the two colons that announce code in a docstring; the code is seen."""
    return html.replace("<p>::</p>\n", "") if page.file.src_uri.startswith("reference/") else html
