"""anyio: calling ``anyio.Event`` gives an instance of another class, that of the running event loop.

Why: to look that class up costs as much as a wait, and a stream waits for each delta. Who keeps the class makes the
next event without asking which loop runs.

What replaces it: an anyio whose lookup is cheap. No ticket asks for it. Not documented is that the class takes no
arguments, and that it serves all of one loop; outside of a loop ``anyio.Event()`` is an adapter (agronholm/anyio#651)
whose class must not be kept.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ("event_class_of",)


def event_class_of(event: anyio.Event) -> Callable[[], anyio.Event]:
    """What makes more events for the loop in which ``event`` was made."""
    return type(event)
