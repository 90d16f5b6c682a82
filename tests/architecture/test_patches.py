"""A test may look at what is private, and replaces none of it: what it then proves holds for its replacement alone."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
PATCHES = {"setattr", "delattr", "setitem", "delitem", "object", "patch", "dict", "multiple"}
"""Of ``pytest.MonkeyPatch`` and ``unittest.mock``; ``setattr`` and ``delattr`` are Python's own as well."""
PATCHERS = ("patch", "mock")
"""How what patches is called, in part or whole."""


def is_private(name: str) -> bool:
    """Whether a name, or a part of a dotted one, is private."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def private_names_patched(tree: ast.AST) -> list[int]:
    """The lines on which a private name, or a part of what has one, is replaced."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _patches_what_is_private(node)]


def _patches_what_is_private(call: ast.Call) -> bool:
    name, _, method = ast.unparse(call.func).rpartition(".")
    builtin = not name and method in ("setattr", "delattr")
    if not builtin and (method not in PATCHES or not any(each in f"{name}.{method}".lower() for each in PATCHERS)):
        return False
    owner, *rest = call.args[:2] or [ast.Constant("")]
    named = [each.value for each in (owner, *rest) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(map(is_private, named)) or (not isinstance(owner, ast.Constant) and is_private(ast.unparse(owner)))


def test_no_test_patches_a_private_name() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in private_names_patched(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_a_patch_of_a_private_name_is_found() -> None:
    planted = """
monkeypatch.setattr(module, "_name", 1)
monkeypatch.setattr("package.module._name", 1)
monkeypatch.setattr(store._dialect, "connect", 1)
patch.delattr(module, "_name")
mock.patch("package._name")
patch.object(module, "_name")
mock.patch.object(module._part, "name")
setattr(thing, "_name", 1)
"""
    assert private_names_patched(ast.parse(planted)) == list(range(2, 10))


def test_a_patch_of_a_public_name_is_none_of_these() -> None:
    allowed = """
monkeypatch.setattr(module, "name", _mine)
monkeypatch.setattr(BaseModel, "__init__", counting)
monkeypatch.setattr("package.module.name", 1)
monkeypatch.setenv("_NAME", "1")
values.object(_private, "name")
"""
    assert private_names_patched(ast.parse(allowed)) == []
