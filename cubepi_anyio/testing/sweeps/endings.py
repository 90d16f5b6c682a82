"""The ways a run is ended from outside: each stands around the public call and goes off when it is told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import anyio

from .scenario import EndedRun
from .steps import StepWatch, uncounted

__all__ = ("ENDINGS", "Ending", "SiblingFailed", "endings_of")

Ending = Literal["abort", "scope", "task_cancel", "asyncio_timeout", "asyncio_sibling", "trio_scope", "trio_sibling"]
"""``abort``: ``agent.abort()``. ``scope``: an anyio cancel scope around the call. ``task_cancel``: ``Task.cancel()`` of
the asyncio task that calls. ``asyncio_timeout``: ``asyncio.timeout()``. ``asyncio_sibling``: another task of the
``asyncio.TaskGroup`` fails. ``trio_scope`` and ``trio_sibling``: the same with trio's own scope and nursery."""

_Arm = Callable[[EndedRun, StepWatch], AbstractAsyncContextManager[None]]


class SiblingFailed(Exception):
    """What a sibling of the run raises, to have the run cancelled."""


def endings_of(backend: str) -> list[Ending]:
    """The endings there are on a backend, ``"asyncio"`` or ``"trio"``."""
    return [ending for ending, (on, _) in ENDINGS.items() if on in (None, backend)]


@asynccontextmanager
async def _abort(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    watch.act = lambda: ended.scenario.agent.abort("the sweep")
    yield


@asynccontextmanager
async def _scope(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    with anyio.CancelScope() as scope:  # noqa: ASYNC100, RUF100 - the block is the caller's
        watch.act = scope.cancel
        yield
    ended.was_caught = scope.cancelled_caught


@asynccontextmanager
async def _task_cancel(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    import asyncio  # noqa: PLC0415 - only on its own backend

    task: Any = asyncio.current_task()
    watch.act = task.cancel
    yield


@asynccontextmanager
async def _asyncio_timeout(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    import asyncio  # noqa: PLC0415

    async with asyncio.timeout(None) as timeout:  # noqa: ASYNC100, RUF100 - the block is the caller's
        loop = asyncio.get_running_loop()

        def expire() -> None:
            if timeout.when() is None:  # it expires once, however often it is told to
                timeout.reschedule(loop.time())

        watch.act = expire
        yield


@asynccontextmanager
async def _asyncio_sibling(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    import asyncio  # noqa: PLC0415

    async with asyncio.TaskGroup() as tasks:
        told, fail = _failing_sibling(watch)
        watch.act = told.set
        with uncounted():
            sibling = tasks.create_task(fail())
        yield
        sibling.cancel()


@asynccontextmanager
async def _trio_scope(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    import trio  # noqa: PLC0415

    with trio.CancelScope() as scope:  # noqa: ASYNC100, RUF100 - the block is the caller's
        watch.act = scope.cancel
        yield
    ended.was_caught = scope.cancelled_caught


@asynccontextmanager
async def _trio_sibling(ended: EndedRun, watch: StepWatch) -> AsyncGenerator[None, None]:
    import trio  # noqa: PLC0415

    async with trio.open_nursery() as nursery:
        told, fail = _failing_sibling(watch)
        watch.act = told.set
        with uncounted():
            nursery.start_soon(fail)
        yield
        nursery.cancel_scope.cancel()


def _failing_sibling(watch: StepWatch) -> tuple[anyio.Event, Callable[[], Coroutine[Any, Any, None]]]:
    told = anyio.Event()

    async def fail() -> None:
        await told.wait()
        watch.steps_after = 0  # only now the run is cancelled
        raise SiblingFailed("a task beside the run failed")

    return told, fail


ENDINGS: dict[Ending, tuple[str | None, _Arm]] = {
    "abort": (None, _abort),
    "scope": (None, _scope),
    "task_cancel": ("asyncio", _task_cancel),
    "asyncio_timeout": ("asyncio", _asyncio_timeout),
    "asyncio_sibling": ("asyncio", _asyncio_sibling),
    "trio_scope": ("trio", _trio_scope),
    "trio_sibling": ("trio", _trio_sibling),
}
"""For each ending the backend it needs, ``None`` for any, and what arms it."""
