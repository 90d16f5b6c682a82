"""Every public module says what it exports, and says the truth; packages only pass names on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, Module, modules, package_root
from tests.architecture.test_ladder import plant

FREE_NAMES = {"__all__", "__version__", "__getattr__", "__dir__"}


def export_faults(root: Path) -> list[str]:
    """What is wrong with the exports of the modules under ``root``, as sentences."""
    known = modules(root)
    faults: list[str] = []
    for module in known.values():
        if not module.is_public or module.name == "__main__":
            continue
        found = _package_faults(module, known) if module.is_package else _module_faults(module)
        faults.extend(f"{module.name or PACKAGE}: {fault}" for fault in found)
    return faults


def declared_exports(module: Module) -> tuple[str, ...] | None:
    """The module's ``__all__``, or ``None`` where there is none that is a tuple of strings."""
    for node in module.tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            if not isinstance(value, ast.Tuple):
                return None
            return tuple(str(item.value) for item in value.elts if isinstance(item, ast.Constant))
    return None


def _module_faults(module: Module) -> list[str]:
    declared = declared_exports(module)
    if declared is None:
        return ["has no __all__ tuple"]
    defined = _defined_names(module.tree)
    missing = sorted(defined - set(declared))
    unknown = sorted(set(declared) - defined - _passed_on_names(module.tree))
    twice = sorted({name for name in declared if declared.count(name) > 1})
    return [
        *([f"__all__ lacks {', '.join(missing)}"] if missing else []),
        *([f"__all__ names what is not defined here: {', '.join(unknown)}"] if unknown else []),
        *([f"__all__ names twice: {', '.join(twice)}"] if twice else []),
    ]


def _defined_names(tree: ast.Module) -> set[str]:
    """Public names that the module itself defines."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def _passed_on_names(tree: ast.Module) -> set[str]:
    """Names the module passes on as ``X as X``: it may list them, and need not."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names if alias.asname == alias.name}


def _package_faults(module: Module, known: dict[str, Module]) -> list[str]:
    faults: list[str] = []
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            faults.extend(_reexport_faults(node, module, known))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef):
            names = _names_bound(node)
            faults.extend(f"a package defines nothing, but here is {name}" for name in names - FREE_NAMES)
    return faults


def _names_bound(node: ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _reexport_faults(node: ast.ImportFrom, module: Module, known: dict[str, Module]) -> list[str]:
    source_name = ".".join(part for part in (module.name, node.module) if part)
    source = known.get(source_name)
    exports = declared_exports(source) if source is not None and not source.is_package else None
    faults = [f"{alias.name} is not passed on as itself" for alias in node.names if alias.asname != alias.name]
    if exports is not None:
        faults += [f"{source_name} does not export {a.name}" for a in node.names if a.name not in exports]
    return faults


def test_every_public_module_exports_exactly_what_it_defines() -> None:
    assert export_faults(package_root()) == []


def test_a_module_without_an_export_list_is_found(tmp_path: Path) -> None:
    assert export_faults(plant(tmp_path, {"a.py": "x = 1", "_b.py": "x = 1"})) == ["a: has no __all__ tuple"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("__all__ = ('x',)\nx = 1\ndef y(): ...", "a: __all__ lacks y"),
        ("__all__ = ('x', 'z')\nx = 1", "a: __all__ names what is not defined here: z"),
        ("__all__ = ('x', 'x')\nx = 1", "a: __all__ names twice: x"),
        ("__all__ = ['x']\nx = 1", "a: has no __all__ tuple"),
    ],
)
def test_an_export_list_that_does_not_match_is_found(tmp_path: Path, text: str, fault: str) -> None:
    assert export_faults(plant(tmp_path, {"a.py": text})) == [fault]


def test_a_package_that_does_more_than_pass_names_on_is_found(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from .a import x\nfrom .a import _y as _y\nz = 1\n__version__ = '1'",
        "p/a.py": "__all__ = ('x',)\nx = 1\n_y = 2",
    }
    assert export_faults(plant(tmp_path, files)) == [
        "p: x is not passed on as itself",
        "p: p.a does not export _y",
        "p: a package defines nothing, but here is z",
    ]
