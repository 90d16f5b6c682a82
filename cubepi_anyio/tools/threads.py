"""Run a plain function in a worker thread, so that it can be told to stop, and left if it does not listen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import RunVar

from ..concurrency import AbortSource

__all__ = ("THREAD_NOTICE_SECONDS", "ThreadCall")

THREAD_NOTICE_SECONDS = 0.5
"""How long a cancelled call waits for its thread to look at the signal, before the thread is abandoned."""

_MAX_TOOL_THREADS = 64
_limiter: RunVar[CapacityLimiter] = RunVar("cubepi_anyio_tool_threads")


def _tool_limiter() -> CapacityLimiter:
    """The library's own limiter: tools that block do not use up the threads of the program around them."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_MAX_TOOL_THREADS)
        _limiter.set(limiter)
    return limiter


class ThreadCall:
    """One call of a plain function in a worker thread.

    After a cancelled ``run``, ``finished`` says whether the function came to an end all the same (then ``value`` or
    ``error`` is its real outcome) and ``abandoned`` whether it is still running. What an abandoned function returns
    or raises later is dropped.
    """

    def __init__(self, function: Callable[[], Any], signal: AbortSource) -> None:
        self._function = function
        self._signal = signal
        self._gate = threading.Lock()
        self._revoked = False
        self._done: anyio.Event | None = None
        self.started = False
        self.finished = False
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def abandoned(self) -> bool:
        """Whether the function began and has not ended."""
        return self.started and not self.finished

    async def run(self, notice_seconds: float) -> Any:
        """Run the function and return its value or raise its error. A checkpoint.

        When cancelled, the signal is set and the thread has ``notice_seconds`` to end by itself; the function may
        look at the signal or call ``anyio.from_thread.check_cancelled()``. A function that had not begun never does.
        """
        self._done = anyio.Event()
        try:
            await to_thread.run_sync(self._body, abandon_on_cancel=True, limiter=_tool_limiter())
        except anyio.get_cancelled_exc_class():
            self._signal.set("cancelled")
            with self._gate:
                self._revoked = True
            if self.abandoned:
                with anyio.move_on_after(notice_seconds, shield=True):
                    await self._done.wait()
            raise
        if self.error is not None:
            raise self.error
        return self.value

    def _body(self) -> None:
        with self._gate:
            if self._revoked:
                return
            self.started = True
        try:
            self.value = self._function()
        except BaseException as error:
            # Carried over to the event loop, where it is raised again or, for an abandoned call, dropped.
            self.error = error
        self.finished = True
        # The loop may be gone by the time an abandoned function ends; then nobody waits.
        with suppress(RuntimeError, anyio.RunFinishedError):
            assert self._done is not None
            from_thread.run_sync(self._done.set)
