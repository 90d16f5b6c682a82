"""News of an abort, for code that would rather look than be interrupted."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.lowlevel import checkpoint

__all__ = ("AbortSignal", "AbortSource")


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
