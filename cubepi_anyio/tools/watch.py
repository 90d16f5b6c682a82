"""Notices when a cancellation reaches a tool's coroutine, and can say where the coroutine waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio

__all__ = ("Watched", "where_it_waits")


_LOOPS = ("asyncio", "anyio", "trio", "outcome", "uvloop")


class Watched:
    """Awaits a coroutine, and calls ``on_cancelled`` each time a cancellation is thrown into it.

    It drives the coroutine as ``await`` would. Nothing else tells, on both backends, that a cancellation has
    arrived at code that then takes its time, or does not let itself be stopped.
    """

    __slots__ = ("_coroutine", "_on_cancelled")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], on_cancelled: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._on_cancelled = on_cancelled

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            try:
                trap = step(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield trap
                step = self._coroutine.send
                # trio sends an outcome into the coroutine, which raises it where it waits; asyncio throws.
                self._look_at(getattr(value, "error", None))
            except BaseException as error:  # noqa: ASYNC103 - thrown on
                self._look_at(error)
                value, step = error, self._coroutine.throw

    def _look_at(self, error: object) -> None:
        if error is not None and isinstance(error, anyio.get_cancelled_exc_class()):
            self._on_cancelled()


def where_it_waits(coroutine: Any) -> str:
    """The innermost line at which a suspended coroutine waits, outside the event loop's own code."""
    place = "an unknown place"
    inner = coroutine
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] not in _LOOPS:
            code = frame.f_code
            place = f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return place
