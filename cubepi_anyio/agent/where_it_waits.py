"""Where a coroutine waits that does not end although it was cancelled."""

from __future__ import annotations

from typing import Any

__all__ = ("where_it_waits",)


_LOOPS = ("asyncio", "anyio", "trio", "outcome", "uvloop")


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
