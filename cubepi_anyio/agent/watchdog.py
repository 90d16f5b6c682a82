"""Names the calls that go on after their cancellation, while the run still has to wait for them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence

from ..tools.run.call import CallSlot
from .where_it_waits import where_it_waits

__all__ = ("WatchThread", "Watchdog")

_log = logging.getLogger(__name__)


class Watchdog:
    """Watches the cancelled calls of one run, and warns of each that is not over after ``seconds``."""

    __slots__ = ("_run_id", "_seconds", "_thread", "_watches")

    def __init__(self, run_id: str, seconds: float, thread: WatchThread | None = None) -> None:
        self._run_id, self._seconds = run_id, seconds
        self._thread = thread if thread is not None else _SHARED
        self._watches: list[_Watch] = []

    def watch(self, slots: Sequence[CallSlot]) -> None:
        """A cancellation has reached these calls."""
        watch = _Watch(self._run_id, self._seconds, slots)
        self._watches.append(watch)
        self._thread.add(watch)

    def stop(self) -> None:
        """Nothing of the run goes on any more."""
        self._thread.forget(self._watches)
        self._watches.clear()


class _Watch:
    """Calls that were cancelled at the same time, and when they have to be over."""

    __slots__ = ("due", "run_id", "seconds", "slots")

    def __init__(self, run_id: str, seconds: float, slots: Sequence[CallSlot]) -> None:
        self.run_id: str = run_id
        self.seconds: float = seconds
        self.slots: Sequence[CallSlot] = slots
        self.due: float = time.monotonic() + seconds

    def warn(self) -> None:
        """Name the calls that go on."""
        for slot in self.slots:
            if slot.outcome is None:
                _log.warning(
                    "run %s waits for tool %r (call %s), which was cancelled %g s ago and goes on at %s",
                    self.run_id,
                    slot.call.name,
                    slot.call.id,
                    self.seconds,
                    where_it_waits(slot.coroutine),
                )


class WatchThread:
    """The one thread that watches for all runs of the process. It is a daemon, and holds nothing of a run that is over.

    A thread, because the event loop may be the very thing that a tool holds up; one for all, because a program that
    ends cancels all its runs at once. It sleeps until the first calls it was given are due, also when they end before,
    and ends if there are no others then: to wake it at the end of each run, and to start it again with the next, takes
    longer than most runs take to end.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: set[_Watch] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        """Until when the thread sleeps, by the monotonic clock."""

    def add(self, watch: _Watch) -> None:
        """Warn of these calls when they are due."""
        with self._changed:
            self._watches.add(watch)
            if self._thread is None or not self._thread.is_alive():  # a fork leaves no thread but the one that forked
                self._thread = threading.Thread(target=self._run, name="cubepi_anyio watchdog", daemon=True)
                self._thread.start()
            elif watch.due < self._wakes_at:
                self._changed.notify()

    def forget(self, watches: Iterable[_Watch]) -> None:
        """These calls are over."""
        with self._changed:
            self._watches.difference_update(watches)

    def _run(self) -> None:
        while (watch := self._next()) is not None:
            watch.warn()

    def _next(self) -> _Watch | None:
        """Wait for the next calls to be due; ``None`` when there are no more."""
        with self._changed:
            while self._watches:
                first = min(self._watches, key=_due)
                seconds = first.due - time.monotonic()
                if seconds <= 0:
                    self._watches.remove(first)
                    return first
                self._wakes_at = first.due
                del first  # it may be over before the thread wakes
                self._changed.wait(seconds)
            self._thread = None
            return None


def _due(watch: _Watch) -> float:
    return watch.due


_SHARED = WatchThread()
