"""A bounded buffer between producers and one consumer that is drained without a scheduler step for each item.

::

    put, wait_writable ──▶ [ item item item … ] ──▶ take, take_nowait
    (waits at ``size``)      first in, first out     (a checkpoint every ``size`` items)

A memory object stream of anyio switches tasks for every item, which costs more than all the rest of a text delta. Here
the two sides work in runs: the consumer takes what is there without a checkpoint, the producer is let on when the
buffer is empty, and fills it again. Three things hold it together:

* After ``size`` items without a checkpoint the consumer passes one, also if more lie ready: a consumer that never waits
  can be cancelled, and lets other tasks have their turn.
* An item leaves the buffer in the step that returns it. A cancelled wait loses nothing.
* The end is believed only after a checkpoint. On asyncio a cancelled producer ends before its consumer hears of the
  same cancellation; without the checkpoint the consumer would take its own cancellation for the end of the items.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from ..errors import StreamMisuse
from ..foreign.anyio_events import event_class_of

__all__ = ("EventBuffer", "StreamStatistics")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """What ``statistics()`` of a stream says of this moment."""

    current_buffer_used: int
    """How many events wait to be read."""
    max_buffer_size: int
    """How many events may wait before whoever sends another one has to wait."""
    tasks_waiting_send: int
    """How many tasks wait for room."""
    tasks_waiting_receive: int
    """How many tasks wait for an event: at most one."""
    is_entered: bool
    """Whether the block of the stream has been entered."""
    is_over: bool
    """Whether nothing is left to read and nothing more will come."""


class EventBuffer(Generic[_T]):
    """Items in order, for one consumer. What is put after the end is dropped."""

    __slots__ = (
        "_burst",
        "_is_taking",
        "_items",
        "_readable",
        "_writable",
        "ended",
        "is_writable",
        "last",
        "new_event",
        "size",
    )

    def __init__(self, size: int = 64) -> None:
        self.size: int = size
        self._items: deque[_T] = deque()
        self._burst = 0
        """How many items were taken since the last checkpoint."""
        self._is_taking = False
        self.new_event: Callable[[], anyio.Event] = anyio.Event
        self._readable: anyio.Event | None = None
        self._writable: anyio.Event | None = None
        self.is_writable: bool = True
        """Whether there is room, and somebody who may want it."""
        self.ended: bool = False
        """Whether nothing more will come."""
        self.last: _T | None = None
        """The item that was taken last."""

    def put(self, item: _T) -> None:
        """Add an item, also beyond ``size``. Dropped after the end."""
        if self.ended:
            return
        self._items.append(item)
        if len(self._items) >= self.size:
            self.is_writable = False
        if self._readable is not None:
            self._readable.set()
            self._readable = None

    def end(self) -> None:
        """Say that nothing more will come; what is there can still be taken, and waiting producers are let on."""
        self.ended, self.is_writable = True, False
        if self._readable is not None:
            self._readable.set()
            self._readable = None
        self._let_producers_on()

    def drop(self) -> None:
        """End, and forget what is there."""
        self._items.clear()
        self.end()

    async def wait_writable(self) -> None:
        """Return when there is room, or nobody wants more.

        A checkpoint if it has to wait, and after the end: a producer that goes on all the same can be cancelled.
        """
        if self.ended:
            await checkpoint()
        while not (self.is_writable or self.ended):
            if self._writable is None:  # several tasks may wait for the same room
                self._writable = anyio.Event()
            await self._writable.wait()

    def take_nowait(self) -> _T | None:
        """Return the next item; ``None`` if there is none, or if ``size`` were taken since the last checkpoint."""
        if self._items and self._burst < self.size:
            self._burst += 1
            self.last = item = self._items.popleft()
            if not self.is_writable:
                self.is_writable = not self.ended and len(self._items) < self.size
            return item
        return None

    async def take(self) -> _T:
        """Return the next item; raises ``StopAsyncIteration`` at the end. A cancelled wait loses nothing.

        A checkpoint if it has to wait, at the end, and at least for every ``size``-th item.
        Raises ``StreamMisuse`` while another task waits.
        """
        if (item := self.take_nowait()) is not None:
            return item
        if self._is_taking:
            raise StreamMisuse("two tasks iterate over one stream; it has a single consumer")
        self._is_taking = True
        self._burst = self.size  # nothing is given without waiting while this task waits
        try:
            self._let_producers_on()
            has_waited = False
            while not (self._items or self.ended):
                self._readable = readable = self.new_event()
                if self.new_event is anyio.Event:
                    self.new_event = event_class_of(readable)
                await readable.wait()
                has_waited = True
            if not (self._items and has_waited):
                await checkpoint()
        finally:
            self._is_taking = False
            self._burst = 1
        if not self._items:
            raise StopAsyncIteration
        self.last = item = self._items.popleft()
        self.is_writable = not self.ended and len(self._items) < self.size
        return item

    def _let_producers_on(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def statistics(self, *, is_entered: bool) -> StreamStatistics:
        """What the stream of this buffer says of it."""
        return StreamStatistics(
            current_buffer_used=len(self._items),
            max_buffer_size=self.size,
            tasks_waiting_send=self._writable.statistics().tasks_waiting if self._writable is not None else 0,
            tasks_waiting_receive=self._readable.statistics().tasks_waiting if self._readable is not None else 0,
            is_entered=is_entered,
            is_over=self.ended and not self._items,
        )
