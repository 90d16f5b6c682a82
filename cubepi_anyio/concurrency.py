"""The few idioms of structured concurrency that every room needs; it knows nothing of agents."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
from anyio import CancelScope, TaskHandle
from anyio.abc import TaskGroup
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

_T = TypeVar("_T")

__all__ = (
    "NOTHING_TO_AWAIT",
    "AbortSignal",
    "AbortSource",
    "Deferred",
    "OwnCancelCount",
    "WatchedCoroutine",
    "bare_error",
    "has_native_cancellation",
    "hear_of_swallowed_cancellation",
    "holds_cancellation",
    "let_own_cancellation_pass",
    "native_cancel_counter",
    "native_cancel_requests",
    "run_in_group",
    "run_in_own_task",
    "run_in_tasks",
    "run_to_end",
    "shielded",
    "surroundings_are_cancelled",
)


class AbortSignal:
    """Read-only news of an abort, for code that wants to poll or to wait for it.

    Cancellation is delivered by cancel scopes; the signal is for code that would rather look than be
    interrupted: a tool between two steps, or a plain function in a worker thread (``is_set`` may be
    read from any thread).
    """

    __slots__ = ("_event", "_followers", "_reason", "_set")

    def __init__(self) -> None:
        self._set = False
        self._reason: str | None = None
        self._event: anyio.Event | None = None
        self._followers: dict[Callable[[str | None], object], None] | None = None

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

    def follow(self, told: Callable[[str | None], object]) -> None:
        """Have ``told(reason)`` called when the signal is set, in the event loop's thread; at once if it is set."""
        if self._set:
            told(self._reason)
            return
        if self._followers is None:
            self._followers = {}
        self._followers[told] = None

    def unfollow(self, told: Callable[[str | None], object]) -> None:
        """Take back ``follow``. Nothing happens if it was not said, or the signal has been set."""
        if self._followers is not None:
            self._followers.pop(told, None)


class AbortSource(AbortSignal):
    """The writable side of an ``AbortSignal``; kept by whoever may abort."""

    __slots__ = ()

    def set(self, reason: str | None = None) -> None:
        """Set the signal; the first reason stays. Call it in the event loop's thread."""
        if self._set:
            return
        self._reason, self._set = reason, True
        if self._event is not None:
            self._event.set()
        followers, self._followers = self._followers, None
        for told in followers or ():
            told(reason)


class Deferred:
    """Something to wait for that begins when it is awaited. Unlike a coroutine it may be left unawaited."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Awaitable[None]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, None]:
        return self._begin().__await__()


class WatchedCoroutine:
    """Awaits a coroutine as ``await`` would, and calls ``on_error`` with each exception that is thrown into it.

    Nothing else tells of that on both backends.
    """

    __slots__ = ("_coroutine", "_on_error")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, on_error: Callable[[BaseException], None]) -> None:
        self._coroutine, self._on_error = coroutine, on_error

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine = self._coroutine
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            try:
                error = None
                value = yield trap
                # trio sends an outcome into the coroutine, which raises it where it waits; asyncio throws.
                if (sent := getattr(value, "error", None)) is not None:
                    self._on_error(sent)
            except BaseException as thrown:  # noqa: ASYNC103 - thrown on
                self._on_error(thrown)
                error = thrown


class _NothingToAwait:
    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


NOTHING_TO_AWAIT = _NothingToAwait()
"""Awaiting it returns at once."""


@contextmanager
def shielded(seconds: float) -> Generator[CancelScope, None, None]:
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
    return native_cancel_counter()()


def native_cancel_counter() -> Callable[[], int]:
    """``native_cancel_requests`` for any task of the event loop that runs now: to ask which it is costs the most."""
    asyncio: Any = sys.modules.get("asyncio")
    current_task: Any = getattr(asyncio, "current_task", None)
    if current_task is None:
        return _none
    try:
        if current_task() is None:
            return _none
    except RuntimeError:  # no asyncio loop runs in this thread: trio
        return _none
    return _requests_on_asyncio


def _requests_on_asyncio() -> int:
    asyncio: Any = sys.modules["asyncio"]
    return asyncio.current_task().cancelling()


def _none() -> int:
    return 0


def has_native_cancellation() -> bool:
    """Whether the current task can be cancelled past all scopes and shields, as asyncio's by ``Task.cancel()``."""
    return native_cancel_counter() is not _none


class OwnCancelCount:
    """Stands around the whole of a task, so that what is cancelled in it does not change its parent's count.

    anyio on asyncio lets a scope that is left inside cancelled surroundings hand the number of its own cancellations
    to the scope around it, also where that is another task's, which then takes back requests it never made
    (``Task.cancelling()`` is too low). A scope that is cancelled and shielded when it is left hands on nothing. The
    cancellation ends here, in the last frame of the task; the task group it belongs to is cancelled anyhow.
    """

    __slots__ = ("_requests", "_scope")

    def __init__(self) -> None:
        self._requests = native_cancel_counter()
        self._scope = CancelScope() if self._requests is not _none else None

    def cancel(self, task: TaskHandle[Any, Any]) -> None:
        """Cancel ``task``, the one this stands around, and nobody's count with it."""
        if self._scope is not None:
            self._scope.cancel()
        else:
            task.cancel()

    def __enter__(self) -> Self:
        if self._scope is not None:
            self._scope.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        scope = self._scope
        if scope is None:
            return False
        if self._requests() and surroundings_are_cancelled():
            scope.shield = True
            scope.cancel()
        return bool(scope.__exit__(exc_type, exc, tb))


async def run_in_tasks(
    functions: Iterable[Callable[..., Awaitable[_T]]],
    *,
    name: str | None = None,
    counted: bool = True,
    given_group: bool = False,
) -> list[_T]:
    """Run functions in tasks of their own and wait for all; the first error cancels the rest and leaves as itself.

    Returns what they returned, in the order in which they ended.
    ``name`` is what the tasks are called in listings of tasks, instead of after the function they run.

    The tasks keep what is cancelled in them to themselves (``OwnCancelCount``), unless the current task is not
    ``counted``: one that only scopes cancel, so that nobody asks for its count of cancellations. ``given_group`` says
    that the functions want the task group they run in.

    ``KeyboardInterrupt`` and ``SystemExit`` are carried over to the waiting task: raised by a task of its own, they
    would stop asyncio's event loop on the spot. So is a group of errors, which trio would make anew without the
    cancellations of its siblings.
    """
    outcomes: list[_T] = []
    exits: list[BaseException] = []
    error: BaseException | None = None

    async def run(function: Callable[..., Awaitable[_T]]) -> None:
        arguments = (tasks,) if given_group else ()
        try:
            if counted:
                with OwnCancelCount():
                    outcomes.append(await function(*arguments))
            else:
                outcomes.append(await function(*arguments))
        except (KeyboardInterrupt, SystemExit, ExceptionGroup) as exit_request:
            exits.append(exit_request)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(run, function, name=name)
    except BaseExceptionGroup as group:
        error = bare_error(group)
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - an exit request goes first
        if not exits:
            raise
    if exits:
        raise exits[0]
    if error is not None:
        raise error
    return outcomes


async def run_to_end(function: Callable[[], Awaitable[object]]) -> None:
    """Run ``function`` and wait for it, also when cancelled, by whatever way.

    In a task of its own, because ``Task.cancel()`` knows no shield and may come again. Scopes that ``function`` opens
    around what must not be cut need a shield of their own.
    """
    with CancelScope(shield=True):
        await run_in_tasks((function,))


async def run_in_own_task(function: Callable[[TaskGroup], Awaitable[_T]]) -> _T:
    """Run ``function`` in a task that only scopes cancel, where the current one may be cancelled by ``Task.cancel()``.

    ``function`` is given the task group of its task, for tasks that it starts and waits for itself. Whoever cancels the
    waiting task cancels that group, a scope, so that shields hold inside however often the caller is cancelled. A
    checkpoint; cancelled, it waits for ``function`` to end.
    """
    outcomes = await run_in_tasks((function,), name="agent run", given_group=True)
    if not outcomes:  # the task was cancelled past the scopes, by what runs in it or by whoever cancels all tasks
        await checkpoint_if_cancelled()
        raise anyio.get_cancelled_exc_class()
    return outcomes[0]


async def run_in_group(function: Callable[[TaskGroup], Awaitable[_T]]) -> _T:
    """Run ``function`` in the current task, with a task group for tasks that it starts and waits for itself.

    What it raises leaves as itself. A checkpoint.
    """
    outcomes: list[_T] = []
    own: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                outcomes.append(await function(tasks))
            except Exception as error:
                if holds_cancellation(error):
                    raise
                own = error  # kept out of the group, which would put it into another
    except BaseExceptionGroup as group:
        foreign = bare_error(group)
    else:
        if own is not None:
            raise own
        return outcomes[0]
    raise foreign


def holds_cancellation(error: BaseException | None) -> bool:
    """Whether ``error`` is a cancellation, or a group with one in it."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[Any]", error).subgroup(cancelled) is not None
    return isinstance(error, cancelled)


async def hear_of_swallowed_cancellation() -> None:
    """Raise the cancellation, if foreign code in a task of ours swallowed one that is meant for the task.

    A checkpoint if there is a reason.
    """
    if native_cancel_requests():
        # A cancel scope raises its own exception here, which it knows to catch; ours would pass through it.
        await checkpoint()
        if native_cancel_requests():
            raise anyio.get_cancelled_exc_class()


def surroundings_are_cancelled() -> bool:
    """Whether the current task is being cancelled by a scope around it. The type of an exception does not say so."""
    return anyio.current_effective_deadline() == -math.inf


async def let_own_cancellation_pass() -> None:
    """Meet the ``Task.cancel()`` that foreign code aimed at the task it ran in, a task of ours, and take it back.

    The code has ended, perhaps before its cancellation hit. Nothing happens where a scope is cancelled: then the
    requests are the scope's.
    """
    if not native_cancel_requests() or surroundings_are_cancelled():
        return
    try:
        await cancel_shielded_checkpoint()
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
        if surroundings_are_cancelled():
            raise
    asyncio: Any = sys.modules["asyncio"]
    task = asyncio.current_task()
    while task.uncancel():
        pass


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
