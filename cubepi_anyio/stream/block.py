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

import math
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio import CancelScope, TaskHandle
from anyio.abc import TaskGroup
from anyio.lowlevel import cancel_shielded_checkpoint

from ..concurrency import OwnCancelCount, bare_error, holds_cancellation, native_cancel_counter
from ..foreign.anyio_events import event_class_of

__all__ = ("TaskBlock", "Worker")


class Worker:
    """A task that runs one function after the other, for blocks that are entered one after the other.

    To wake a task costs half of what it costs to start one. The task begins with the first function; one that is
    cancelled is replaced, so that nothing of a cancellation is left for the next function. Only for a task whose own
    surroundings are cancelled by scopes alone.
    """

    __slots__ = ("_count", "_function", "_group", "_is_closed", "_requests", "_task", "_wake", "new_event")

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._requests = native_cancel_counter()
        self._function: Callable[[], Awaitable[object]] | None = None
        self._task: TaskHandle[None, Any] | None = None
        self._count: OwnCancelCount | None = None
        self._wake: anyio.Event | None = None
        self._is_closed = False
        self.new_event: Callable[[], anyio.Event] = event_class_of(anyio.Event())
        """Makes an event of this event loop."""

    def start(self, function: Callable[[], Awaitable[object]]) -> None:
        """Run ``function`` now; the one before has ended."""
        self._function = function
        if self._task is None:
            self._task = self._group.create_task(self._keep_to_itself())
        elif self._wake is not None:
            self._wake.set()

    def cancel(self) -> None:
        """Cancel the function that runs."""
        if self._task is not None and self._count is not None:
            self._count.cancel(self._task)

    def close(self) -> None:
        """Let the task end."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.set()

    async def _keep_to_itself(self) -> None:
        with OwnCancelCount() as self._count:
            await self._work()

    async def _work(self) -> None:
        try:
            while not self._is_closed:
                function, self._function = self._function, None
                if function is not None:
                    await function()
                    if self._requests():
                        return
                else:
                    self._wake = self.new_event()
                    await self._wake.wait()
        finally:
            self._task = None
            if self._function is not None and not self._is_closed:
                self.start(self._function)


class TaskBlock:
    """One task whose life is that of a block. Entered and never left, it warns when it is collected."""

    __slots__ = ("_gone", "_group", "_is_gone", "_is_open", "_name", "_worker", "exit_request")

    def __init__(self, name: str) -> None:
        self._name = name
        """Whose block it is, for the warning."""
        self._group: TaskGroup | None = None
        """The block's own task group; ``None`` where a worker does the work, or there is none."""
        self._worker: Worker | None = None
        self._is_gone = True
        """Whether no worker is at work for the block."""
        self._gone: anyio.Event | None = None
        self._is_open = False
        self.exit_request: BaseException | None = None
        """The ``KeyboardInterrupt`` or ``SystemExit`` that ended the task."""

    async def enter(self, function: Callable[[], Awaitable[object]] | None, worker: Worker | None = None) -> None:
        """Open the block, with ``function``, if there is one, running in a task of its own, or in that of ``worker``.

        A worker's task has to be idle, and its group to stay open until the block has been left.
        """
        self._is_open = True
        if function is None:
            return
        if worker is not None:
            self._worker, self._is_gone = worker, False
            worker.start(partial(self._run_in_worker, function))
            return
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._run, function)

    async def _run_in_worker(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            await function()
        except (KeyboardInterrupt, SystemExit) as exit_request:
            self.exit_request = exit_request
        finally:
            self._is_gone = True
            if self._gone is not None:
                self._gone.set()

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            with OwnCancelCount():
                await function()
        except (KeyboardInterrupt, SystemExit) as exit_request:
            self.exit_request = exit_request
            self.cancel()

    def cancel(self) -> None:
        """Cancel the task, and in a block with a group of its own whatever the block waits for."""
        if self._group is not None:
            self._group.cancel_scope.cancel()
        elif self._worker is not None and not self._is_gone:
            self._worker.cancel()

    async def leave(self, error: BaseException | None, *, linger_seconds: float = math.inf) -> None:
        """Wait until the task has gone; ``error`` is what ends the block. A checkpoint.

        The task is cancelled after ``linger_seconds``. Raises what the task asked for (``exit_request``), or else what
        it raised or what cancelled the waiting. If neither is there, it returns, and ``error`` leaves the block as
        itself. Left a second time, there is nothing to do.
        """
        self._is_open = False
        if self._group is not None:
            self._group.cancel_scope.deadline = anyio.current_time() + linger_seconds
            await self._leave_group(self._group, error)
        elif self._worker is None:
            await cancel_shielded_checkpoint()
        elif not self._is_gone:
            await self._wait_until_gone(self._worker, linger_seconds)
        if self.exit_request is not None:
            raise self.exit_request

    async def _leave_group(self, group: TaskGroup, error: BaseException | None) -> None:
        foreign: BaseException | None = None
        shown = error if holds_cancellation(error) else None
        try:
            await group.__aexit__(type(shown) if shown is not None else None, shown, None)
        except BaseExceptionGroup as errors:
            foreign = bare_error(errors)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - an exit request goes first
            if self.exit_request is None:
                raise
        finally:
            self._group = None
        if foreign is not None and foreign is not error and self.exit_request is None:
            raise foreign

    async def _wait_until_gone(self, worker: Worker, linger_seconds: float) -> None:
        self._gone = worker.new_event()
        try:
            with anyio.move_on_after(linger_seconds):
                await self._gone.wait()
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - an exit request goes first
            await self._end_work(worker)  # noqa: ASYNC102 - a block waits for its task
            if self.exit_request is None:
                raise
        await self._end_work(worker)

    async def _end_work(self, worker: Worker) -> None:
        if not self._is_gone:
            assert self._gone is not None
            worker.cancel()
            with CancelScope(shield=True):
                await self._gone.wait()

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(f"{self._name} was entered and never left", ResourceWarning, stacklevel=1, source=self)
