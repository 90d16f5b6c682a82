"""For functions of tests that run in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


def until(condition: Callable[[], object]) -> None:
    """Look again and again until ``condition`` holds or raises: a signal to be looked at is no event for a thread.

    Gives up with an error after half a minute, so that a failing test ends.
    """
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise TimeoutError("it did not come")
