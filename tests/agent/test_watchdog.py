"""The thread that names calls which go on after their cancellation."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator

import pytest

from cubepi_anyio import ToolCall
from cubepi_anyio.agent.watchdog import Watchdog, WatchThread
from cubepi_anyio.tools.run.call import CallSlot
from cubepi_anyio.tools.run.outcome import CallOutcome

pytestmark = pytest.mark.deadline(20)

LONG_SECONDS = 5.0
SOON_SECONDS = 0.02


class Warned(list[str]):
    """What was warned of; grows while it is watched."""

    def __init__(self) -> None:
        super().__init__()
        self.has_some = threading.Event()


@pytest.fixture
def warned() -> Iterator[Warned]:
    said = Warned()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            said.has_some.set()

    keep = Keep()
    logger = logging.getLogger("cubepi_anyio.agent.watchdog")
    logger.addHandler(keep)
    yield said
    logger.removeHandler(keep)


def slot_of(name: str) -> CallSlot:
    return CallSlot(ToolCall(id=f"id-{name}", name=name))


def watching_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before]


def test_a_call_that_goes_on_is_named_when_its_time_is_over(warned: Warned) -> None:
    Watchdog("run-1", SOON_SECONDS, WatchThread()).watch([slot_of("stubborn")])
    warned.has_some.wait()
    assert len(warned) == 1
    assert "run run-1 waits for tool 'stubborn' (call id-stubborn), which was cancelled 0.02 s ago" in warned[0]


def test_a_call_that_has_ended_in_time_is_not_named(warned: Warned) -> None:
    slots = [slot_of("ended"), slot_of("stubborn")]
    slots[0].outcome = CallOutcome.cancelled(slots[0].call)
    Watchdog("run-1", SOON_SECONDS, WatchThread()).watch(slots)
    warned.has_some.wait()
    assert len(warned) == 1
    assert "'stubborn'" in warned[0]


def test_nothing_is_named_or_held_of_a_run_that_is_over(warned: Warned) -> None:
    class Held(list[CallSlot]):
        """Calls that can be referred to weakly."""

    thread = WatchThread()
    over = Watchdog("run-1", SOON_SECONDS, thread)
    held = Held([slot_of("of a run that is over")])
    ref = weakref.ref(held)
    over.watch(held)
    over.stop()
    del held
    assert ref() is None
    Watchdog("run-2", 2 * SOON_SECONDS, thread).watch([slot_of("later")])
    warned.has_some.wait()
    assert ["'later'" in one for one in warned] == [True]


def test_one_thread_watches_for_all_runs_and_ends_when_the_last_is_due(warned: Warned) -> None:
    before = set(threading.enumerate())
    thread = WatchThread()
    for number in range(50):
        Watchdog(f"run-{number}", 0.2, thread).watch([slot_of("stubborn")])
    [watching] = watching_threads(before)
    assert watching.daemon
    watching.join()
    assert len(warned) == 50


def test_a_call_that_is_due_sooner_than_all_others_is_named_in_its_time(warned: Warned) -> None:
    thread = WatchThread()
    late = Watchdog("run-late", LONG_SECONDS, thread)
    late.watch([slot_of("late")])
    Watchdog("run-soon", SOON_SECONDS, thread).watch([slot_of("soon")])
    warned.has_some.wait()
    assert "run-soon" in warned[0]
    late.stop()


def test_after_the_thread_has_ended_another_one_watches(warned: Warned) -> None:
    before = set(threading.enumerate())
    thread = WatchThread()
    for number in (1, 2):
        Watchdog(f"run-{number}", SOON_SECONDS, thread).watch([slot_of("stubborn")])
        [watching] = watching_threads(before)
        watching.join()
        assert len(warned) == number
