"""Run a plain function in a worker thread, so that it can be told to stop, and left if it does not listen.

::

    the task         run ─▶ waits ──── ✗ cancelled: signal.set(), waits notice_seconds more ──▶ goes on its way
                      │                     │ it looks at its signal         ▲ _heard_of_end
    anyio's thread   _body ─▶ waits ────────┼────────────────── _released ───┤──▶ back to anyio's pool
                      │                     ▼                                │
    our thread       _work ─▶ the function ──────────────────────────────────┘ or it never ends: abandoned

A thread cannot be cancelled. It can look at its signal, and the task can stop waiting. The invariants:

* *The function runs at most once, and never begins after its call was cancelled.* ``_gate`` makes ``_revoked`` (the
  task gave up) and ``started`` (the thread began) one decision. Without it, a call that was reported as not begun
  might still act.
* *Who waits for the end hears of it.* ``finished`` is written and ``_revoked`` is read under the same gate. Until the
  task gives up, anyio tells it; afterwards the thread calls back into the loop, which may be gone by then.
* *An abandoned function holds up nothing.* It does not keep its place among the calls, nor anyio's thread, nor the end
  of the program: under asyncio it runs in a daemon thread of our own. trio's threads are daemons already.
* *What it says after the end is dropped*: its value, its error, its progress.
"""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import RunVar

from ...concurrency import AbortSource
from ...foreign.anyio_threads import become_worker_thread, worker_thread_state

__all__ = ("THREAD_NOTICE_SECONDS", "ThreadCall")

THREAD_NOTICE_SECONDS = 0.5
"""How long a cancelled call waits for its thread to look at the signal, before the thread is abandoned."""

_MAX_TOOL_THREADS = 64
_limiters: RunVar[tuple[CapacityLimiter, CapacityLimiter]] = RunVar("cubepi_anyio_tool_threads")


def _tool_limiters() -> tuple[CapacityLimiter, CapacityLimiter]:
    """The library's own limiters: tools that block do not use up the threads of the program around them.

    The first bounds the calls that somebody waits for. The second, for the threads themselves, has no bound: on trio an
    abandoned thread keeps its place, and the calls of later runs would wait for functions that never end.
    """
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = CapacityLimiter(_MAX_TOOL_THREADS), CapacityLimiter(math.inf)
        _limiters.set(limiters)
    return limiters


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
        self._heard_of_end: anyio.Event | None = None
        self._released = threading.Event()
        self._reports: set[CancelScope] = set()
        self.started: bool = False
        self.finished: bool = False
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
        self._heard_of_end = anyio.Event()
        calls, threads = _tool_limiters()
        # On behalf of the call, not of the task: on trio a thread that calls back runs things in the task it came from.
        await calls.acquire_on_behalf_of(self)
        try:
            await to_thread.run_sync(self._body, abandon_on_cancel=True, limiter=threads)
        except anyio.get_cancelled_exc_class():
            await self._leave(notice_seconds)  # noqa: ASYNC102 - the move_on_after around it is the shield
            raise
        finally:
            calls.release_on_behalf_of(self)
        if self.error is not None:
            raise self.error
        return self.value

    async def _leave(self, notice_seconds: float) -> None:
        """Tell the function to stop, and wait a little for it."""
        self._signal.set("cancelled")
        with self._gate:
            self._revoked = True
        # A thread that waits for a listener cannot look at its signal.
        for report in tuple(self._reports):
            report.cancel()
        try:
            if self.abandoned:
                with anyio.move_on_after(notice_seconds, shield=True):
                    assert self._heard_of_end is not None
                    await self._heard_of_end.wait()
        finally:
            self._released.set()

    async def report(self, say: Callable[[], Awaitable[object]]) -> None:
        """Wait, on behalf of the thread, for what ``say`` begins; no longer than the call is not cancelled.

        Called through ``from_thread.run``, which on asyncio counts its task to the scope that the call waits in. When
        the call has been cancelled that scope has been left, and anyio would wait without end, and without rest, for
        a cancellation that is delivered no more. So the wait has a shield, and the call cancels it.
        """
        with CancelScope(shield=True) as scope:
            self._reports.add(scope)
            try:
                if self._revoked:
                    scope.cancel()
                await say()
            finally:
                self._reports.discard(scope)

    def _body(self) -> None:
        """In the worker thread: run the function here, or, where this thread would outlive the program, beside it."""
        with self._gate:
            if self._revoked:
                return
            self.started = True
        if threading.current_thread().daemon:
            self._work(None)
            return
        # anyio's threads under asyncio hold up the end of the program, and with them a function that does not listen
        # would. So it runs in a thread that does not, and that knows all the same which scope it works for.
        work = partial(contextvars.copy_context().run, self._work, worker_thread_state())
        thread = threading.Thread(target=work, name="cubepi_anyio tool", daemon=True)
        thread.start()
        self._released.wait()
        if self.finished:
            thread.join()  # it has nothing left to do; a listing of threads does not show it any more

    def _work(self, state: Mapping[str, Any] | None) -> None:
        """Run the function and keep its outcome; ``state`` is what anyio's thread knew, if this is one of ours."""
        if state is not None:
            become_worker_thread(state)
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: ASYNC103 - kept, and raised in the loop
            # Carried over to the event loop, where it is raised again or, for an abandoned call, dropped.
            self.error = error
        # One decision: the task gave up before this (then it waits for the event), or it sees that there is an end.
        with self._gate:
            self.finished = True
            somebody_waits = self._revoked
        self._released.set()
        if somebody_waits:
            # The loop may be gone by the time an abandoned function ends; then nobody waits.
            with suppress(RuntimeError, anyio.RunFinishedError):
                assert self._heard_of_end is not None
                from_thread.run_sync(self._heard_of_end.set)
