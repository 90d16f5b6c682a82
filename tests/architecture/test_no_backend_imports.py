"""The package imports neither event loop: only anyio. It works with one of them uninstalled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.source import Import, Module, imports, modules, package_root
from tests.architecture.test_ladder import plant

BACKENDS = {"asyncio", "trio", "sniffio", "uvloop"}
HTTP_CLIENTS = {"httpx", "httpx2", "httpcore"}
HTTP_ROOMS = {"providers.http.client", "testing.http"}

IMPORT_ALL_WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
for name in ("trio", "uvloop", "rich"):
    sys.modules[name] = None
import cubepi_anyio
for module in pkgutil.walk_packages(cubepi_anyio.__path__, "cubepi_anyio."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def backend_imports(root: Path) -> list[str]:
    """Imports of an event loop. Testing tools for one backend may import it inside a function."""
    return [
        f"{module.name}:{each.line} imports {each.target}"
        for module in modules(root).values()
        for each in imports(module)
        if each.target.split(".")[0] in BACKENDS and not _is_testing_tool(module, each)
    ]


def http_imports(root: Path) -> list[str]:
    """Imports of an HTTP client outside the modules that are there for it."""
    return [
        f"{module.name}:{each.line} imports {each.target}"
        for module in modules(root).values()
        for each in imports(module)
        if each.target.split(".")[0] in HTTP_CLIENTS and module.name not in HTTP_ROOMS
    ]


def _is_testing_tool(module: Module, each: Import) -> bool:
    return module.room == "testing" and each.inside_function


def test_no_event_loop_is_imported() -> None:
    assert backend_imports(package_root()) == []


def test_the_http_client_is_imported_in_one_place() -> None:
    assert http_imports(package_root()) == []


def test_every_module_imports_without_any_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL_WITHOUT_EXTRAS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_backend_import_is_found_wherever_it_hides(tmp_path: Path) -> None:
    files = {
        "a.py": "import asyncio.events",
        "b.py": "def f():\n    from trio import run",
        "c.py": "import importlib\nx = importlib.import_module('sniffio')",
        "testing/clock.py": "def f():\n    import trio.testing",
        "testing/d.py": "import uvloop",
        "fine.py": "import anyio\nfrom .trio import x",
    }
    assert backend_imports(plant(tmp_path, files)) == [
        "a:1 imports asyncio.events",
        "b:2 imports trio.run",
        "c:2 imports sniffio",
        "testing.d:1 imports uvloop",
    ]
    planted = {"providers/http/client.py": "import httpx", "tools/a.py": "import httpx"}
    assert http_imports(plant(tmp_path, planted)) == ["tools.a:1 imports httpx"]
