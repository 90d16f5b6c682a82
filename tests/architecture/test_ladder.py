"""The package is a ladder: each room imports only from rooms below its own, and no modules import in a circle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.architecture.source import Module, modules, own_modules_imported, package_root

LADDER = (
    {"foreign"},
    {"errors", "concurrency"},
    {"types"},
    {"events"},
    {"stream"},
    {"providers"},
    {"tools"},
    {"checkpointers"},
    {"hooks"},
    {"hitl"},
    {"agent"},
    {"middleware"},
    {"__init__"},
    {"cli"},
    {"testing"},
    {"__main__"},
)
RUNG = {room: rung for rung, rooms in enumerate(LADDER) for room in rooms}


def upward_imports(root: Path) -> list[str]:
    """Imports that do not point down, as sentences; a room that is not on the ladder is one too."""
    known = modules(root)
    wrong: list[str] = []
    for module in known.values():
        if module.room not in RUNG:
            wrong.append(f"{module.name} is in no room of the ladder")
            continue
        for target in own_modules_imported(module, known):
            room = target.split(".")[0] or "__init__"
            if room != module.room and RUNG.get(room, len(LADDER)) >= RUNG[module.room]:
                wrong.append(f"{module.name or '__init__'} imports {target or 'the package itself'}")
    return sorted(wrong)


def import_circles(root: Path) -> list[str]:
    """Sets of modules that import each other, one sentence for each."""
    known = modules(root)
    graph = {name: own_modules_imported(module, known) - {name} for name, module in known.items()}
    reach = {name: _reachable(name, graph) for name in graph}
    circles = {
        frozenset({name, *(o for o in reach[name] if name in reach[o])}) for name in graph if name in reach[name]
    }
    return sorted(" <-> ".join(sorted(circle)) for circle in circles)


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph.get(name, ()))
    return seen


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write a small package; ``files`` maps paths below ``root`` to their text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_imports_only_point_down() -> None:
    assert upward_imports(package_root()) == []


def test_no_modules_import_in_a_circle() -> None:
    assert import_circles(package_root()) == []


def test_every_module_is_seen() -> None:
    names = set(modules(package_root()))
    assert {"", "errors", "types", "types.messages", "stream.message_stream", "providers.base"} <= names
    assert all(isinstance(module, Module) for module in modules(package_root()).values())


def test_an_import_upwards_is_found_wherever_it_hides(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "__init__.py": "",
            "errors.py": "def f():\n    from .agent.loop import g\n",
            "types/__init__.py": "from .. import providers\n",
            "types/a.py": "import cubepi_anyio.stream.draft\n",
            "events/b.py": "if TYPE_CHECKING:\n    from ..agent import Agent\n",
            "agent/__init__.py": "from ..types import a\n",
            "agent/loop.py": "from ..errors import E\nfrom . import state\n",
            "agent/state.py": "",
            "providers/__init__.py": "",
            "stream/draft.py": "",
        },
    )
    assert upward_imports(root) == [
        "errors imports agent.loop",
        "events.b imports agent",
        "types imports providers",
        "types.a imports stream.draft",
    ]


def test_a_new_room_has_to_be_put_on_the_ladder(tmp_path: Path) -> None:
    assert upward_imports(plant(tmp_path, {"attic/a.py": ""})) == ["attic.a is in no room of the ladder"]


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {"types/a.py": "from .b import x", "types/b.py": "from .c import x", "types/c.py": "from . import a"}
    assert import_circles(plant(tmp_path, {"types/__init__.py": "", **files})) == ["types.a <-> types.b <-> types.c"]
