"""The clock of the event loop that runs now, as a function.

Why: ``anyio.current_time()`` finds out each time which loop runs, which costs ten times the reading of the clock, and
the silence of a model begins anew with each of its chunks.

What replaces it: an anyio whose lookup is cheap. No ticket asks for it. ``loop.time()`` is public in asyncio; that
anyio's deadlines on asyncio are measured by it is not documented, and is what the test holds. Elsewhere anyio's own
function serves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import anyio

__all__ = ("loop_clock",)


def loop_clock() -> Callable[[], float]:
    """What gives the time in seconds by which deadlines are measured, for the loop that runs now."""
    asyncio: Any = sys.modules.get("asyncio")
    get_running_loop: Any = getattr(asyncio, "get_running_loop", None)
    if get_running_loop is None:
        return anyio.current_time
    try:
        return get_running_loop().time
    except RuntimeError:  # no asyncio loop runs in this thread: trio
        return anyio.current_time
