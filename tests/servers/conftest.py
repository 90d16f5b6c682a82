"""The servers, one of each for a test process, and the three vendors that every test here runs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import BACKENDS, needs_trio

from .aimock_server import AIMock, running_aimock
from .llmock_server import LLMock, running_llmock
from .vendors import VENDORS, Vendor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/servers/" in item.path.as_posix():
            item.add_marker(pytest.mark.servers)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=needs_trio)])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The two backends, without the third event loop: these tests take real time."""
    return BACKENDS[request.param]


@pytest.fixture(params=VENDORS, ids=[vendor.name for vendor in VENDORS])
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return request.param


@pytest.fixture(scope="session")
def llmock_process() -> Iterator[LLMock]:
    with running_llmock() as server:
        yield server


@pytest.fixture
def llmock(llmock_process: LLMock) -> LLMock:
    """A llmock that nobody has asked anything."""
    llmock_process.reset()
    return llmock_process


@pytest.fixture(scope="session")
def aimock_process() -> Iterator[AIMock]:
    with running_aimock() as server:
        yield server


@pytest.fixture
def aimock(aimock_process: AIMock) -> AIMock:
    """An aimock without answers."""
    aimock_process.reset()
    return aimock_process
