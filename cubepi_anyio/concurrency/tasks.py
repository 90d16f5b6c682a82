"""Run functions in tasks and wait for them; shields that end; the error that leaves a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from ..foreign.anyio_scopes import OwnCancelCount

__all__ = (
    "bare_error",
    "holds_cancellation",
    "run_in_group",
    "run_in_own_task",
    "run_in_tasks",
    "run_to_end",
    "shielded",
)

_T = TypeVar("_T")


@contextmanager
def shielded(seconds: float) -> Generator[CancelScope, None, None]:
    """Let the block finish although the surroundings are cancelled, but no longer than ``seconds``.

    ``scope.cancelled_caught`` says afterwards whether the time ran out.
    """
    with anyio.move_on_after(seconds, shield=True) as scope:
        yield scope


async def run_in_tasks(
    functions: Iterable[Callable[..., Awaitable[_T]]],
    *,
    name: str | None = None,
    counted: bool = True,
    given_group: bool = False,
) -> list[_T]:
    """Run functions in tasks of their own and wait for all; the first error cancels the rest and leaves as itself.

    Returns what they returned, in the order in which they ended. ``name`` is what listings of tasks call them.

    Cancellations of the tasks do not change the ``cancelling()`` count of the current task. ``counted=False`` saves
    that care, where the current task is one that only scopes cancel, and nobody asks for its count. With
    ``given_group`` the functions are called with the task group they run in.

    ``KeyboardInterrupt`` and ``SystemExit`` are carried over to the waiting task: raised in a task, they would stop
    asyncio's event loop on the spot. A checkpoint; cancelled, it cancels the tasks and waits until all have ended.
    """
    outcomes: list[_T] = []
    exits: list[BaseException] = []
    error: BaseException | None = None

    async def run(function: Callable[..., Awaitable[_T]]) -> None:
        try:
            if counted:
                with OwnCancelCount():
                    outcomes.append(await function())
            else:
                outcomes.append(await function())
        except (KeyboardInterrupt, SystemExit, ExceptionGroup) as exit_request:
            # A group of errors is carried over too: trio would split it, and drop the cancellations of its siblings.
            exits.append(exit_request)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(run, partial(function, tasks) if given_group else function, name=name)
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
    """Run ``function`` and wait for it, however the current task is cancelled. A checkpoint.

    A cancellation arrives when ``function`` has ended. Scopes inside that are shielded stay so.
    """
    # The shield holds off scopes. Task.cancel() knows no shield: it cancels the waiting, and the task group waits on.
    with CancelScope(shield=True):
        await run_in_tasks((function,))


async def run_in_own_task(function: Callable[[TaskGroup], Awaitable[_T]]) -> _T:
    """Run ``function`` in a task that only scopes cancel, and return what it returns.

    It is given the task group of its task, for tasks that it starts and waits for itself.
    ``Task.cancel()`` of the waiting task becomes a cancellation of its task group, which is a scope: so shields hold
    inside, however often the caller is cancelled. A checkpoint; cancelled, it waits for ``function`` to end.
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
