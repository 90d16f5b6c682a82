"""Every public name says what it is; the reference is made of that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import cubepi_anyio

PACKAGE = Path(cubepi_anyio.__file__).parent


def public_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if path.name not in ("__init__.py", "__main__.py"):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def exported(module: ast.Module) -> set[str]:
    """The names in ``__all__``."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in function.decorator_list)


def is_setter(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in function.decorator_list)


def undocumented(module: ast.Module) -> Iterator[str]:
    """Public names of a module, and public methods of its classes, that have no docstring."""
    names = exported(module)
    for node, following in zip(module.body, [*module.body[1:], None], strict=True):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name in names and not is_overload(node):
                if not ast.get_docstring(node):
                    yield node.name
            case ast.ClassDef() if node.name in names:
                if not ast.get_docstring(node):
                    yield node.name
                yield from (f"{node.name}.{name}" for name in undocumented_methods(node))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name in names:
                if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
                    yield name
            case _:
                pass


def undocumented_methods(class_: ast.ClassDef) -> Iterator[str]:
    for node in class_.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        inherits = bool(class_.bases)  # what a base documents need not be said again
        if not (ast.get_docstring(node) or is_overload(node) or is_setter(node) or inherits):
            yield node.name


def test_every_public_name_is_documented() -> None:
    found = [f"{name}: {each}" for name, module in public_modules() for each in undocumented(module)]
    assert found == []


def test_every_public_module_says_its_job() -> None:
    assert [name for name, module in public_modules() if not ast.get_docstring(module)] == []
