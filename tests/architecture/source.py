"""Reads the package as text: its modules, what they import, and the rooms they stand in. Nothing is executed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "cubepi_anyio"


def package_root() -> Path:
    """The installed package's folder, so that a built wheel is examined as well as a checkout."""
    import cubepi_anyio  # noqa: PLC0415 - a planted tree is examined without it

    return Path(cubepi_anyio.__file__).parent


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the package (``""`` for the package itself) and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module
    is_package: bool

    @property
    def room(self) -> str:
        """The part of the ladder the module stands on; ``__init__`` for the package itself."""
        return self.name.split(".")[0] or "__init__"

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))


@dataclass(frozen=True)
class Import:
    """One imported name: the absolute dotted target, and whether it is imported when the module is."""

    target: str
    inside_function: bool
    line: int


def modules(root: Path) -> dict[str, Module]:
    """Every module under ``root``, by dotted name below the package."""
    found: dict[str, Module] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")), is_package)
    return found


def imports(module: Module) -> list[Import]:
    """Everything ``module`` imports, wherever the import stands; imports for type checkers count too.

    ``from a import b`` is given as ``a.b``; relative imports are made absolute.
    """
    lazy = _nodes_inside_functions(module.tree)
    return [
        Import(target, node in lazy, getattr(node, "lineno", 0))
        for node in ast.walk(module.tree)
        for target in _targets(node, module)
    ]


def own_modules_imported(module: Module, known: dict[str, Module]) -> set[str]:
    """Names of the package's modules that ``module`` imports from."""
    found: set[str] = set()
    for each in imports(module):
        if each.target != PACKAGE and not each.target.startswith(f"{PACKAGE}."):
            continue
        name = each.target.removeprefix(PACKAGE).removeprefix(".")
        found.add(name if name in known else name.rpartition(".")[0])
    return found


def _targets(node: ast.AST, module: Module) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _relative_base(module, node.level) if node.level else []
        prefix = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{prefix}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "importlib.import_module",
        "import_module",
        "__import__",
    ):
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def _relative_base(module: Module, level: int) -> list[str]:
    parts = [PACKAGE, *(part for part in module.name.split(".") if part)]
    climb = level - 1 if module.is_package else level
    return parts[: len(parts) - climb]


def _nodes_inside_functions(tree: ast.Module) -> set[ast.AST]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {inner for function in functions for inner in ast.walk(function)}
