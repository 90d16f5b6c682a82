"""Inner workings of other libraries are leaned on in one room, and each module there says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source import Module, modules, package_root
from tests.architecture.test_ladder import plant

ROOM = "foreign"
OWN = {"self", "cls", "super()"}
DOCUMENTED = {"os._exit"}


def reaches_into_others(root: Path) -> list[str]:
    """Private attributes of something else than ``self``, and modules looked up by name, outside the room."""
    return [
        f"{module.name} says {said}"
        for module in modules(root).values()
        if module.room != ROOM
        for said in _said(module)
        if said not in DOCUMENTED
    ]


def _said(module: Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            if (is_private and owner not in OWN) or (owner, node.attr) == ("sys", "modules"):
                found.append(f"{owner}.{node.attr}")
    return found


def test_other_libraries_are_reached_into_in_one_room_only() -> None:
    assert reaches_into_others(package_root()) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import sys\nx = sys.modules['asyncio']", "a says sys.modules"),
        ("def f(task): task._must_cancel", "a says task._must_cancel"),
        ("def f(self): self.task._coro", "a says self.task._coro"),
    ],
)
def test_reaching_into_another_library_is_found(tmp_path: Path, text: str, fault: str) -> None:
    assert reaches_into_others(plant(tmp_path, {"a.py": text, "foreign/b.py": text})) == [fault]


def test_each_module_says_why_it_is_there_and_what_replaces_it() -> None:
    room = [module for module in modules(package_root()).values() if module.room == ROOM and not module.is_package]
    assert room
    for module in room:
        text = ast.get_docstring(module.tree) or ""
        assert "\nWhy: " in text, module.name
        assert "\nWhat replaces it: " in text, module.name
