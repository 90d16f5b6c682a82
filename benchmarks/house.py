"""How large is the house? Modules, functions, and private functions that are named once; read as text, not timed.

``house.py FOLDER...`` prints a row of JSON for each package folder; without one, for the installed package. A function
is private if its name begins with one underscore; it is named once if one place in its module says its name.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any


def names_in(tree: ast.AST) -> Iterable[str]:
    """Every name that is said in a module: as a variable, an attribute, or in an import."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.name for alias in aliases)
            case _:
                pass


def house(root: Path) -> dict[str, Any]:
    """The measures of the package in a folder."""
    paths = sorted(root.rglob("*.py"))
    trees = [ast.parse(path.read_bytes()) for path in paths]
    functions, private, once = list[ast.FunctionDef | ast.AsyncFunctionDef](), 0, 0
    for tree in trees:
        said = Counter(names_in(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(node)
                is_private = node.name.startswith("_") and not node.name.startswith("__")
                private += is_private
                once += is_private and said[node.name] == 1
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    return {
        "modules": len(paths),
        "lines": sum(path.read_bytes().count(b"\n") for path in paths),
        "functions": len(functions),
        "function_lines": {"median": median(lengths), "largest": max(lengths)},
        "private_functions": private,
        "private_named_once": once,
        "share_named_once": round(once / max(1, private), 3),
    }


def installed() -> Path:
    import cubepi_anyio  # noqa: PLC0415 - other folders are read without it

    return Path(cubepi_anyio.__file__).parent


if __name__ == "__main__":
    for folder in [Path(argument) for argument in sys.argv[1:]] or [installed()]:
        print(json.dumps(house(folder)))
