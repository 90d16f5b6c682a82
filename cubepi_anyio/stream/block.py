"""A block that owns one task: what ``async with stream:`` is made of.

::

    async with stream:      enter   the task group is opened, the task begins
        ...                         the task and the block go on beside each other
                            leave   waits until the task has gone; then one error leaves, as itself

A task group alone has three traps, and each would be the caller's:

* It wraps the error of the block in an ``ExceptionGroup``. So the block's own error is kept out of the group, and
  leaves as itself. Only a cancellation is shown to the group: it may be the group's own, and then it ends there.
* A ``KeyboardInterrupt`` or ``SystemExit`` that a task raises stops asyncio's loop on the spot, past all cleanup.
  It is carried over: the block is cancelled, and the request is raised where the block is left, before anything else.
* What is cancelled inside the task changes ``Task.cancelling()`` of the task around it (``OwnCancelCount``).
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import cancel_shielded_checkpoint

from ..concurrency import OwnCancelCount, bare_error

__all__ = ("TaskBlock",)


class TaskBlock:
    """One task whose life is that of a block. Entered and never left, it warns when it is collected."""

    __slots__ = ("_group", "_is_open", "_name", "exit_request")

    def __init__(self, name: str) -> None:
        self._name = name
        """Whose block it is, for the warning."""
        self._group: TaskGroup | None = None
        self._is_open = False
        self.exit_request: BaseException | None = None
        """The ``KeyboardInterrupt`` or ``SystemExit`` that ended the task."""

    async def enter(self, function: Callable[[], Awaitable[object]] | None) -> None:
        """Open the block, with ``function`` running in a task of its own, if there is one."""
        self._is_open = True
        if function is not None:
            self._group = anyio.create_task_group()
            await self._group.__aenter__()
            self._group.start_soon(self._run, function)

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            with OwnCancelCount():
                await function()
        except (KeyboardInterrupt, SystemExit) as exit_request:
            self.exit_request = exit_request
            self.cancel()

    def cancel(self, *, after_seconds: float = 0.0) -> None:
        """Cancel the task, and with it whatever the block waits for, now or after a while."""
        if self._group is None:
            return
        if after_seconds:
            self._group.cancel_scope.deadline = anyio.current_time() + after_seconds
        else:
            self._group.cancel_scope.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """Wait until the task has gone; ``error`` is what ends the block. Does not cancel the task. A checkpoint.

        Raises what the task asked for (``exit_request``), or else what it raised or what cancelled the waiting. If
        neither is there, it returns, and ``error`` leaves the block as itself. Left a second time, there is nothing to
        do.
        """
        self._is_open = False
        group = self._group
        if group is None:
            await cancel_shielded_checkpoint()
            return
        foreign: BaseException | None = None
        shown = error if _holds_cancellation(error) else None
        try:
            await group.__aexit__(type(shown) if shown is not None else None, shown, None)
        except BaseExceptionGroup as errors:
            foreign = bare_error(errors)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - an exit request goes first
            if self.exit_request is None:
                raise
        finally:
            self._group = None
        if self.exit_request is not None:
            raise self.exit_request
        if foreign is not None and foreign is not error:
            raise foreign

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(f"{self._name} was entered and never left", ResourceWarning, stacklevel=1, source=self)


def _holds_cancellation(error: BaseException | None) -> bool:
    """Whether ``error`` is a cancellation, or a group with one in it, so that the task group has to see it."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[Any]", error).subgroup(cancelled) is not None
    return isinstance(error, cancelled)
