"""How long a vendor asks us to wait, from the headers of its answer. Pure."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

__all__ = ("MAX_RETRY_AFTER_SECONDS", "retry_after_seconds")

MAX_RETRY_AFTER_SECONDS = 24 * 3600.0
"""A wait longer than a day is no advice; it is ignored, as if the vendor had said nothing."""

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Read ``retry-after-ms`` (milliseconds), else ``retry-after`` (seconds or an HTTP date), as seconds.

    ``headers`` have lower-case names. ``now`` is the time in seconds since the epoch, by default this machine's; a date
    that has passed means 0. What is negative, not a finite number, or longer than a day is passed over for the next;
    ``None`` if nothing is left.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None and milliseconds / 1000 <= MAX_RETRY_AFTER_SECONDS:
        return milliseconds / 1000
    advice = headers.get("retry-after")
    seconds = _number(advice)
    if seconds is None:
        seconds = _until(advice, time.time() if now is None else now)
    return seconds if seconds is not None and seconds <= MAX_RETRY_AFTER_SECONDS else None


def _number(text: str | None) -> float | None:
    """A decimal number as the header grammar has it: no sign, no exponent, no ``inf``."""
    text = (text or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _until(text: str | None, now: float) -> float | None:
    if not text:
        return None
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
