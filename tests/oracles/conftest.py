"""The process with the SDKs, one for a test process, and the server that it and our providers talk to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BACKENDS
from tests.servers.children import MISSING, ROOT, Child, child

from .canned import Canned, canned_server

ENVIRONMENT = ROOT / ".venv-oracles"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/oracles/" in item.path.as_posix():
            item.add_marker(pytest.mark.oracle)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """One backend: what is compared are bytes and values, which the others' tests have shown to be the same."""
    return BACKENDS[request.param]


class Oracle:
    """The SDKs of the vendors."""

    def __init__(self, process: Child) -> None:
        self._process = process

    def reading(self, vendor: str, base_url: str) -> dict[str, Any]:
        """How the vendor's SDK reads the answer that ``base_url`` gives."""
        return self._ask(vendor=vendor, base_url=base_url)

    def sends(self, vendor: str, base_url: str, body: dict[str, Any]) -> dict[str, Any]:
        """Have the SDK send ``body``; what of it its types know."""
        return self._ask(vendor=vendor, base_url=base_url, body=body)["known"]

    def _ask(self, **job: Any) -> dict[str, Any]:
        said = json.loads(self._process.ask(json.dumps(job)))
        assert "error" not in said, f"{said['error']}: {said['message']}\n{said['trace']}"
        return said


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    if not list((ENVIRONMENT / "lib").glob("python*/site-packages/anthropic/__init__.py")):
        pytest.skip(MISSING.format("the SDKs of the vendors", ENVIRONMENT.name))
    script = Path(__file__).with_name("sdk_child.py")
    with child([ENVIRONMENT / "bin" / "python", "-I", script]) as process:
        assert process.line() == "ready"
        yield Oracle(process)


@pytest.fixture(scope="session")
def canned() -> Iterator[Canned]:
    with canned_server() as server:
        yield server
