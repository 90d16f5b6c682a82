"""How long the model may say nothing.

::

    asked ──────────────▶ first token ─▶ … event ─┤ read ├─ nothing to read ─▶ event …
    │← first_token_timeout →│                              │← idle_timeout →│

There is one silence at a time. The first begins when the model is asked and ends with its first token; neither opening
the stream nor the head of the answer ends it. Each later one begins when there is nothing to read, so what listeners
take is not the model's time: what it said meanwhile lies ready, and is no silence.

A deadline is kept here as a number, and a scope is given it only now and then. Moving the deadline of a scope costs as
much as a wait, and most silences end long before it: so a scope stands around many silences with the deadline of the
first, and when it fires, ``is_too_long`` says whether the silence that goes on *now* is over its time. If it is not, a
new scope is opened with the deadline of this one. So no silence ends early or late.
"""

from __future__ import annotations

import math

import anyio

from .limits import RunLimits

__all__ = ("Silence",)


class Silence:
    """The silence of the model in one answer, from the moment it is asked."""

    __slots__ = ("_idle_timeout", "_since", "bound_seconds", "limit", "waits_for_token")

    def __init__(self, limits: RunLimits) -> None:
        self._idle_timeout = limits.idle_timeout
        self._since = anyio.current_time()
        self.limit: str = "first_token_timeout"
        """Which limit bounds it."""
        self.bound_seconds: float | None = limits.first_token_timeout
        """How long it may be; ``None`` for as long as it likes."""
        self.waits_for_token: bool = True
        """Whether this is the silence before the first token."""

    def end_first(self) -> None:
        """The first token is there."""
        self.waits_for_token = False
        self.limit, self.bound_seconds = "idle_timeout", self._idle_timeout

    def begin(self) -> None:
        """There is nothing to read now. Before the first token the silence goes on."""
        if not self.waits_for_token:
            self._since = anyio.current_time()

    @property
    def deadline(self) -> float:
        """When the silence is too long, by the event loop's clock."""
        return math.inf if self.bound_seconds is None else self._since + self.bound_seconds

    def is_too_long(self) -> bool:
        """Whether its time is over."""
        return anyio.current_time() >= self.deadline
