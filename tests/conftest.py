"""Runs every async test on asyncio, uvloop and trio, within a deadline, with the outside network closed.

With ``CUBEPI_TEST_EAGER=1`` in the environment also on asyncio with eager tasks, from Python 3.12 on.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from hypothesis import settings

DEADLINE_SECONDS = 30.0
BUSY_MACHINE = 3
"""How many times its deadline a test may take: a deadline says what a quiet machine needs, and ends what hangs."""
VIRTUAL_DEADLINE_SECONDS = 1e9
LOOPBACK = {"127.0.0.1", "::1", "localhost"}

needs_trio = pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")
needs_uvloop = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")

needs_eager_tasks = pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has eager tasks from 3.12 on")


def eager_loop() -> asyncio.AbstractEventLoop:
    """An event loop of asyncio whose tasks begin to run where they are made."""
    loop = asyncio.new_event_loop()
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    return loop


BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {"debug": True}),
    "asyncio+eager": ("asyncio", {"debug": True, "loop_factory": eager_loop}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
EAGER = [pytest.param("asyncio+eager", marks=needs_eager_tasks)] if os.environ.get("CUBEPI_TEST_EAGER") else []

# A shell that starts the suite in the background has it ignore SIGINT; every program that a test starts and interrupts
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Time is bounded by the test's own deadline, not by each example's; what CI reports can be repeated.
settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("suite")


@pytest.fixture(
    params=[
        pytest.param("asyncio"),
        *EAGER,
        pytest.param("uvloop", marks=needs_uvloop),
        pytest.param("trio", marks=needs_trio),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Backend name and options of one test; a test marked ``virtual_clock`` gets a fresh jumping clock."""
    if request.param == "virtual":
        from trio.testing import MockClock  # noqa: PLC0415 - trio is optional

        return "trio", {"clock": MockClock(autojump_threshold=0)}
    return BACKENDS[request.param]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests marked ``virtual_clock`` their one backend in place of the three."""
    if metafunc.definition.get_closest_marker("virtual_clock") and "anyio_backend" in metafunc.fixturenames:
        virtual = pytest.param("virtual", marks=needs_trio, id="trio-virtual")
        # As a mark, because only a mark takes precedence over the fixture's own parameters.
        metafunc.definition.add_marker(pytest.mark.parametrize("anyio_backend", [virtual], indirect=True))


def _seconds_allowed(item: pytest.Function) -> float:
    """The deadline of one test; on a virtual clock it only has to end a test in which all tasks wait forever."""
    backend = getattr(item, "funcargs", {}).get("anyio_backend")
    if isinstance(backend, tuple) and "clock" in backend[1]:
        return VIRTUAL_DEADLINE_SECONDS
    mark = item.get_closest_marker("deadline")
    return BUSY_MACHINE * (float(mark.args[0]) if mark else DEADLINE_SECONDS)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        with anyio.fail_after(seconds):
            await test(*args, **kwargs)

    return limited


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail an async test cleanly when its deadline passes: signal-based timeouts hang under trio and uvloop."""
    holder: Any = getattr(pyfuncitem.obj, "hypothesis", None)
    test: Any = holder.inner_test if holder else pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return (yield)
    limited = _within(_seconds_allowed(pyfuncitem), test)
    if holder:
        holder.inner_test = limited
    else:
        pyfuncitem.obj = limited
    try:
        return (yield)
    finally:
        if holder:
            holder.inner_test = test
        else:
            pyfuncitem.obj = test


@pytest.fixture(autouse=True, scope="session")
def no_outside_network() -> Iterator[None]:
    """Refuse connections to anything but this machine, so that no test depends on the world.

    uvloop connects without Python's sockets and is not held back; the same tests run on the other two.
    """
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOOPBACK:
            raise PermissionError(f"a test tried to reach {address[0]}: tests talk to this machine only")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield
