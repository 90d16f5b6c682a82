"""A run as a context manager: iterate over its events, then ask for its result.

::

      the run, a task                                  consumer, whose block it is
      every listener, then _hear ──▶ [ buffer, 64 ] ──▶ anext, then result
            ▲                                               │ leaves early: abort
            └──────── waits while the buffer is full ───────┘

The consumer is one more listener of the agent. What holds:

* **The order is the listeners' order**, because the buffer is filled where a listener would be called.
* **A consumer that is behind holds the run back**, and the run the model: the listener returns something to wait for
  when the buffer is full. A run that settles waits for nobody; its last events are few.
* **An error of the run is raised once**: to the consumer when it has read all events before it, or where the block is
  left, unless the block has an error of its own.
* **The run lives inside the block** (``TaskBlock``): leaving it aborts the run and waits until it has settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from ..concurrency import AbortSignal, Deferred
from ..errors import StreamMisuse
from ..events.agent import AgentEvent
from ..stream.block import TaskBlock
from ..stream.buffer import EventBuffer, StreamStatistics
from ..types.run import RunResult
from .listeners import ListenerList
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
        self._block = TaskBlock("the stream of a run")
        self._left = False
        self._result: RunResult | None = None
        self._error: Exception | None = None
        self._raised = False
        self._over = anyio.Event()

    @property
    def signal(self) -> AbortSignal | None:
        """The run's signal; ``None`` before the block is entered."""
        return self._run.ending.signal if self._run is not None else None

    def abort(self, reason: str | None = None) -> None:
        """End the run; its last events can still be read."""
        if self._run is not None:
            self._run.ending.abort(reason)

    async def __aenter__(self) -> Self:
        """Start the run. Raises ``AgentBusy`` while the agent has another."""
        if self._run is not None:
            raise StreamMisuse("the stream of a run can be entered once")
        self._run = run = self._begin()
        unsubscribe = self._listeners.subscribe(self._hear)
        await self._block.enter(partial(self._drive, run, unsubscribe))
        return self

    def _hear(self, event: AgentEvent) -> Awaitable[None] | None:
        self._buffer.put(event)
        if self._buffer.is_writable or self._buffer.ended or (self._run is not None and self._run.phase == "settling"):
            return None
        return Deferred(self._buffer.wait_writable)

    async def _drive(self, run: Run, unsubscribe: Callable[[], None]) -> None:
        try:
            self._result = await self._go(run)
        except Exception as error:
            self._error = error
        finally:
            unsubscribe()
            self._buffer.end()
            self._over.set()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Abort the run and wait until it has settled; events not yet read are dropped. A checkpoint.

        Raises what the run raised, if nobody was told yet and the block has no error of its own. The second time there
        is nothing to do.
        """
        if self._left:
            return
        self._left = True
        if not self._over.is_set():
            self.abort("the stream of the run was left")
        self._buffer.drop()
        await self._block.leave(exc)  # noqa: ASYNC102 - a block waits for its task
        if self._error is not None and not self._raised and exc is None:
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

    def statistics(self) -> StreamStatistics:
        """What fills the stream and who waits for it, at this moment."""
        return self._buffer.statistics(is_entered=self._run is not None)

    async def result(self) -> RunResult:
        """Wait for the run to end and return its result; events not yet read are passed over. A checkpoint.

        Raises what the run raised.
        """
        async for _ in self:
            pass
        await self._over.wait()
        if self._result is None:
            raise self._error or self._block.exit_request or StreamMisuse("the run was cancelled and has no result")
        return self._result
