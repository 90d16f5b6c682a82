"""A bounded buffer between one producer and one consumer that is drained without a scheduler step for each item."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from ..errors import StreamMisuse

__all__ = ("EventBuffer",)

_T = TypeVar("_T")


class EventBuffer(Generic[_T]):
    """Items in order, first in first out.

    Taking an item that is there costs no scheduler step, except that every ``size``-th passes a checkpoint. The
    producer is let on when the buffer is empty, so both sides work in runs of up to ``size`` items.
    """

    __slots__ = ("_burst", "_items", "_readable", "_size", "_waiting", "_writable", "ended")

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._items: deque[_T] = deque()
        self._burst = 0
        self._waiting = False
        self._readable: anyio.Event | None = None
        self._writable: anyio.Event | None = None
        self.ended: bool = False
        """Whether nothing more will come."""

    @property
    def is_full(self) -> bool:
        """Whether the producer should wait."""
        return len(self._items) >= self._size and not self.ended

    def put(self, item: _T) -> None:
        """Add an item, also beyond ``size``. Dropped after the end."""
        if not self.ended:
            self._items.append(item)
            self._wake_consumer()

    def end(self) -> None:
        """Say that nothing more will come; what is there can still be taken, and a waiting producer is let on."""
        self.ended = True
        self._wake_consumer()
        self._wake_producer()

    def drop(self) -> None:
        """End, and forget what is there."""
        self._items.clear()
        self.end()

    async def wait_writable(self) -> None:
        """Return when there is room, or nobody wants more. A checkpoint if it has to wait."""
        while self.is_full:
            if self._writable is None:  # several tasks may wait for the same room
                self._writable = anyio.Event()
            await self._writable.wait()

    async def take(self) -> _T:
        """Return the next item; raises ``StopAsyncIteration`` at the end. A cancelled wait loses nothing.

        A checkpoint if it has to wait, at the end, and at least for every ``size``-th item.
        Raises ``StreamMisuse`` while another task waits.
        """
        if self._items and self._burst < self._size and not self._waiting:
            self._burst += 1
            return self._items.popleft()
        if self._waiting:
            raise StreamMisuse("two tasks iterate over one stream; it has a single consumer")
        self._burst = 1
        self._waiting = True
        try:
            self._wake_producer()
            if self._items or self.ended:
                await checkpoint()
            while not self._items:
                if self.ended:
                    raise StopAsyncIteration
                self._readable = anyio.Event()
                await self._readable.wait()
        finally:
            self._waiting = False
        return self._items.popleft()

    def _wake_consumer(self) -> None:
        if self._readable is not None:
            self._readable.set()
            self._readable = None

    def _wake_producer(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
