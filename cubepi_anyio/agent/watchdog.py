"""Names the calls that go on after their cancellation, while the run still has to wait for them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from ..tools.call import CallSlot
from ..tools.watch import where_it_waits

__all__ = ("Watchdog",)

_log = logging.getLogger(__name__)


class Watchdog:
    """Watches the cancelled calls of one run, and warns of each that is not over after ``seconds``.

    One thread for all of them: the event loop may be the very thing that such a tool holds up, and a single call has
    no task group in which a watching task could live.
    """

    def __init__(self, run_id: str, seconds: float) -> None:
        self._run_id, self._seconds = run_id, seconds
        self._watched: deque[tuple[float, CallSlot]] = deque()
        """When each is due, and the call; in that order, because all have the same time."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, slot: CallSlot) -> None:
        """A cancellation has reached this call."""
        self._watched.append((time.monotonic() + self._seconds, slot))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cubepi_anyio watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Nothing of the run goes on any more. Waits for the thread to end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # What is not there yet is not due sooner than a whole time from now.
        while not self._stopped.wait(self._watched[0][0] - time.monotonic() if self._watched else self._seconds):
            while self._watched and self._watched[0][0] <= time.monotonic():
                _, slot = self._watched.popleft()
                if slot.outcome is None:
                    self._name(slot)

    def _name(self, slot: CallSlot) -> None:
        _log.warning(
            "run %s waits for tool %r (call %s), which was cancelled %g s ago and goes on at %s",
            self._run_id,
            slot.call.name,
            slot.call.id,
            self._seconds,
            where_it_waits(slot.coroutine),
        )
