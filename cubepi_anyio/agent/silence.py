"""How long the model may say nothing.

::

    asked ──────────────▶ first token ─▶ … event ─┤ read ├─ nothing to read ─▶ event …
    │← first_token_timeout →│                              │← idle_timeout →│

There is one silence at a time. The first begins when the model is asked and ends with its first token; neither opening
the stream nor the head of the answer ends it. Each later one begins when there is nothing to read, so what listeners
take is not the model's time: what it said meanwhile lies ready, and is no silence.

A deadline is kept here as a number, and a scope is given it only now and then. Moving the deadline of a scope costs as
much as a wait, and most silences end long before it. So a scope stands around many silences with the deadline of the
first, which is never later than that of the silence that goes on. When it fires, ``is_too_long`` says whether the time
of *this* silence is over; if it is not, a new scope is opened with its deadline. So no silence ends early or late.
"""

from __future__ import annotations

import math

from ..events.stream import StreamEvent
from ..foreign.loop_clock import loop_clock
from ..types.limits import RunLimits

__all__ = ("Silence",)


class Silence:
    """The silence of the model in one answer, from the moment it is asked."""

    __slots__ = ("_idle_timeout", "_now", "bound_seconds", "deadline", "goes_on", "limit", "waits_for_token")

    def __init__(self, limits: RunLimits) -> None:
        self._now = loop_clock()
        self._idle_timeout = limits.idle_timeout
        self.waits_for_token: bool = True
        """Whether the model has said nothing yet but the head of its answer."""
        self.limit: str = "first_token_timeout"
        """Which limit bounds it."""
        self.bound_seconds: float | None = limits.first_token_timeout
        """How long it may be; ``None`` for as long as it likes."""
        self.goes_on: bool = False
        """Whether it has begun and no event has ended it."""
        self.deadline: float = math.inf
        """When it is too long, by the event loop's clock."""
        self.begin()

    def begin(self) -> None:
        """There is nothing to read. A silence that goes on is not begun anew."""
        if not self.goes_on:
            self.goes_on = True
            if self.bound_seconds is not None:
                self.deadline = self._now() + self.bound_seconds

    def end(self, event: StreamEvent) -> None:
        """The model has said something; the head of an answer is nothing."""
        if self.waits_for_token:
            if event.type == "start":
                return
            self.waits_for_token = False
            self.limit, self.bound_seconds, self.deadline = "idle_timeout", self._idle_timeout, math.inf
        self.goes_on = False

    def is_too_long(self) -> bool:
        """Whether its time is over."""
        return self.goes_on and self._now() >= self.deadline
