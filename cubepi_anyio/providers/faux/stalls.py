"""Streams that wait in a stall, and those who wait for them to."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

__all__ = ("Stalls",)


class Stalls:
    """The stalls of one provider. Keeps nothing of an event loop when nobody waits."""

    def __init__(self) -> None:
        self._waiting: set[anyio.Event] = set()
        self._watchers: set[anyio.Event] = set()

    @property
    def count(self) -> int:
        """How many streams wait now."""
        return len(self._waiting)

    async def stall(self) -> None:
        """Wait for ``release()`` or for being cancelled."""
        released = anyio.Event()
        self._waiting.add(released)
        for watcher in self._watchers:
            watcher.set()
        try:
            await released.wait()
        finally:
            self._waiting.discard(released)

    async def wait_for(self, count: int) -> None:
        """Return when at least ``count`` streams wait. A checkpoint."""
        await checkpoint()
        while len(self._waiting) < count:
            watcher = anyio.Event()
            self._watchers.add(watcher)
            try:
                await watcher.wait()
            finally:
                self._watchers.discard(watcher)

    def release(self) -> None:
        """Let the streams that wait go on."""
        for released in self._waiting:
            released.set()
        self._waiting.clear()
