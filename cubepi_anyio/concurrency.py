"""The few idioms of structured concurrency that every room needs; it knows nothing of agents."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast

import anyio
from anyio.lowlevel import checkpoint

__all__ = (
    "DONE",
    "AbortSignal",
    "AbortSource",
    "Deferred",
    "OwnCancelCount",
    "bare_error",
    "has_native_cancellation",
    "hear_of_swallowed_cancellation",
    "native_cancel_requests",
    "run_in_tasks",
    "run_to_end",
    "shielded",
)


class AbortSignal:
    """Read-only news of an abort, for code that wants to poll or to wait for it.

    Cancellation is delivered by cancel scopes; the signal is for code that would rather look than be
    interrupted: a tool between two steps, or a plain function in a worker thread (``is_set`` may be
    read from any thread).
    """

    __slots__ = ("_event", "_reason", "_set")

    def __init__(self) -> None:
        self._set = False
        self._reason: str | None = None
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        """Whether the run, or this call, has been told to stop."""
        return self._set

    @property
    def reason(self) -> str | None:
        """What ``abort()`` was given, or why the library set it; ``None`` until then."""
        return self._reason

    async def wait(self) -> None:
        """Return when the signal is set. A checkpoint; cancelling it leaves the signal as it was."""
        if self._set:
            await checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


class AbortSource(AbortSignal):
    """The writable side of an ``AbortSignal``; kept by whoever may abort."""

    __slots__ = ()

    def set(self, reason: str | None = None) -> None:
        """Set the signal; the first reason stays. Call it in the event loop's thread."""
        if not self._set:
            self._reason, self._set = reason, True
            if self._event is not None:
                self._event.set()


class Deferred:
    """Something to wait for that begins when it is awaited. Unlike a coroutine it may be left unawaited."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Awaitable[None]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, None]:
        return self._begin().__await__()


class _Done:
    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


DONE = _Done()
"""An awaitable with nothing to wait for."""


@contextmanager
def shielded(seconds: float) -> Generator[anyio.CancelScope, None, None]:
    """Let the block finish although the surroundings are cancelled, but no longer than ``seconds``.

    ``scope.cancelled_caught`` says afterwards whether the time ran out.
    """
    with anyio.move_on_after(seconds, shield=True) as scope:
        yield scope


def native_cancel_requests() -> int:
    """Count the ``Task.cancel()`` calls that the current asyncio task has not been excused from; 0 on trio.

    A cancel scope tells a task again at each checkpoint, so code that swallows one cancellation hears
    of the next. ``Task.cancel()`` tells it once: after running foreign code in our own task, a higher
    count is the only trace of a cancellation that the code swallowed. asyncio is looked up among the
    loaded modules, because a trio program need not have it.
    """
    asyncio: Any = sys.modules.get("asyncio")
    current_task = getattr(asyncio, "current_task", None)
    if current_task is None:
        return 0
    try:
        task = current_task()
    except RuntimeError:  # no asyncio loop runs in this thread: trio
        return 0
    return 0 if task is None else task.cancelling()


def has_native_cancellation() -> bool:
    """Whether the current task can be cancelled past all scopes and shields, as asyncio's by ``Task.cancel()``."""
    asyncio: Any = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:
        return False


class OwnCancelCount:
    """Stands around the whole of a task, so that what is cancelled in it does not change its parent's count.

    anyio on asyncio lets a scope that is left inside cancelled surroundings hand the number of its own cancellations
    to the scope around it, also where that is another task's, which then takes back requests it never made
    (``Task.cancelling()`` is too low). A scope that is cancelled and shielded when it is left hands on nothing. The
    cancellation ends here, in the last frame of the task; the task group it belongs to is cancelled anyhow.

    Give it a ``scope`` that has to stand there anyhow, and it needs none of its own.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: anyio.CancelScope | None = None) -> None:
        self._scope = scope if scope is not None else anyio.CancelScope() if has_native_cancellation() else None

    def __enter__(self) -> None:
        if self._scope is not None:
            self._scope.__enter__()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        scope = self._scope
        if scope is None:
            return False
        if native_cancel_requests() and anyio.current_effective_deadline() == -math.inf:
            scope.shield = True
            scope.cancel()
        return bool(scope.__exit__(exc_type, exc, tb))


async def run_in_tasks(functions: Iterable[Callable[[], Awaitable[object]]], *, own_counts: bool = False) -> None:
    """Run functions in tasks of their own and wait for all; the first error cancels the rest and leaves as itself.

    ``own_counts`` says that the functions keep what they cancel to themselves (``OwnCancelCount``).

    ``KeyboardInterrupt`` and ``SystemExit`` are carried over to the waiting task: raised by a task of its own, they
    would stop asyncio's event loop on the spot. So is a group of errors, which trio would make anew without the
    cancellations of its siblings.
    """
    exits: list[BaseException] = []
    error: BaseException | None = None

    async def run(function: Callable[[], Awaitable[object]]) -> None:
        try:
            if own_counts:
                await function()
            else:
                with OwnCancelCount():
                    await function()
        except (KeyboardInterrupt, SystemExit, ExceptionGroup) as exit_request:
            exits.append(exit_request)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(run, function)
    except BaseExceptionGroup as group:
        error = bare_error(group)
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - an exit request goes first
        if not exits:
            raise
    if exits:
        raise exits[0]
    if error is not None:
        raise error


async def run_to_end(function: Callable[[], Awaitable[object]]) -> None:
    """Run ``function`` and wait for it, also when cancelled, by whatever way.

    In a task of its own, because ``Task.cancel()`` knows no shield and may come again. Scopes that ``function`` opens
    around what must not be cut need a shield of their own.
    """
    with anyio.CancelScope(shield=True):
        await run_in_tasks((function,))


async def hear_of_swallowed_cancellation(requests_before: int) -> None:
    """Raise the cancellation, if foreign code in our own task swallowed one that is meant for the task.

    ``requests_before`` is ``native_cancel_requests()`` from before the foreign code. A checkpoint if there is a reason.
    """
    if native_cancel_requests() > requests_before:
        # A cancel scope raises its own exception here, which it knows to catch; ours would pass through it.
        await checkpoint()
        if native_cancel_requests() > requests_before:
            raise anyio.get_cancelled_exc_class()


def bare_error(group: BaseExceptionGroup[Any]) -> BaseException:
    """What leaves in place of the group that one of our own task groups raised.

    Cancellation noise is removed; a single error leaves as itself, with its traceback; several stay a group.
    Groups inside ``group`` are somebody else's and are left as they are, unless they hold nothing but cancellations.
    """
    cancelled = anyio.get_cancelled_exc_class()
    errors = [error for error in group.exceptions if not _is_noise(error, cancelled)]
    if not errors:
        return group.exceptions[0]
    if len(errors) == 1:
        return errors[0]
    return group if len(errors) == len(group.exceptions) else group.derive(errors).with_traceback(group.__traceback__)


def _is_noise(error: BaseException, cancelled: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_noise(inner, cancelled) for inner in cast("BaseExceptionGroup[Any]", error).exceptions)
    return isinstance(error, cancelled)
