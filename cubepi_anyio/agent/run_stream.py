"""A run as a context manager: iterate over its events, then ask for its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from ..concurrency import AbortSignal, Deferred, OwnCancelCount, bare_error
from ..errors import StreamMisuse
from ..events.agent import AgentEvent
from ..stream.buffer import EventBuffer
from ..types.run import RunResult
from .outbox import ListenerList
from .run import Run

__all__ = ("RunStream",)


class RunStream:
    """The events of one run, in order, for one consumer; made by ``agent.stream()``.

    The run starts when the block is entered. A consumer that is 64 events behind holds the run back. Leaving the
    block aborts the run and waits until it has settled. Iteration is a checkpoint whenever it has to wait, and at
    least every 64 events.
    """

    def __init__(
        self, begin: Callable[[], Run], go: Callable[[Run], Awaitable[RunResult]], listeners: ListenerList
    ) -> None:
        self._begin, self._go, self._listeners = begin, go, listeners
        self._buffer: EventBuffer[AgentEvent] = EventBuffer()
        self._run: Run | None = None
        self._tasks: TaskGroup | None = None
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self._raised = False
        self._over = anyio.Event()

    @property
    def signal(self) -> AbortSignal | None:
        """The run's signal; ``None`` before the block is entered."""
        return self._run.signal if self._run is not None else None

    def abort(self, reason: str | None = None) -> None:
        """End the run; its last events can still be read."""
        if self._run is not None:
            self._run.abort(reason)

    async def __aenter__(self) -> Self:
        """Start the run. Raises ``AgentBusy`` while the agent has another."""
        if self._run is not None:
            raise StreamMisuse("the stream of a run can be entered once")
        self._run = run = self._begin()
        unsubscribe = self._listeners.subscribe(self._hear, may_wait=True)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._drive, run, unsubscribe)
        return self

    def _hear(self, event: AgentEvent) -> Awaitable[None] | None:
        self._buffer.put(event)
        # A run that settles is as good as over: its last events are few, and wait for nobody.
        is_held_back = self._buffer.is_full and self._run is not None and self._run.phase != "settling"
        return Deferred(self._buffer.wait_writable) if is_held_back else None

    async def _drive(self, run: Run, unsubscribe: Callable[[], None]) -> None:
        try:
            with OwnCancelCount():
                self._result = await self._go(run)
        except Exception as error:
            self._error = error
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised here, it would stop asyncio's loop on the spot; the block is ended, and it is raised from there.
            self._error = error
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
        finally:
            unsubscribe()
            self._buffer.end()
            self._over.set()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        if not self._over.is_set():
            self.abort("the stream of the run was left")
        self._buffer.drop()
        foreign: BaseException | None = None
        try:
            if exc is None or isinstance(exc, Exception):
                # Kept out of the task group, which would put it into an ExceptionGroup; it leaves as itself.
                await tasks.__aexit__(None, None, None)  # noqa: ASYNC102 - a task group waits for its tasks
            else:
                await tasks.__aexit__(exc_type, exc, tb)  # noqa: ASYNC102 - a task group waits for its tasks
        except BaseExceptionGroup as errors:
            foreign = bare_error(errors)
        if foreign is not None and foreign is not exc:
            raise foreign
        if self._error is not None and not self._raised and (exc is None or not isinstance(self._error, Exception)):
            raise self._error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._run is None:
            raise StreamMisuse("enter the stream before iterating: 'async with agent.stream(...) as run:'")
        try:
            return await self._buffer.take()
        except StopAsyncIteration:
            if self._error is not None and not self._raised:
                self._raised = True
                raise self._error from None
            raise

    async def result(self) -> RunResult:
        """Wait for the run to end and return its result; events not yet read are passed over. A checkpoint.

        Raises what the run raised.
        """
        async for _ in self:
            pass
        await self._over.wait()
        if self._result is None:
            raise self._error or StreamMisuse("the run was cancelled and has no result")
        return self._result
