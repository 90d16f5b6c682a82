"""Things to await: one that begins late, one that is watched, and nothing at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from ..foreign.trio_outcome import error_sent

__all__ = ("NOTHING_TO_AWAIT", "Deferred", "WatchedCoroutine")


class Deferred:
    """Awaitable that starts when awaited; safe to drop.

    A coroutine that is never awaited warns, and one that is made early holds what it was given.
    """

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Awaitable[None]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, None]:
        return self._begin().__await__()


class WatchedCoroutine:
    """Awaits a coroutine as ``await`` would, and calls ``on_error`` with each exception that is delivered to it.

    An exception is delivered where the coroutine waits: a cancellation, or the error of what it waits for. Neither loop
    has a hook for that, so this class stands between the loop and the coroutine and passes everything on.
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
                # trio sends an outcome that raises where it is unwrapped; asyncio throws, and comes out below.
                if (sent := error_sent(value)) is not None:
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
