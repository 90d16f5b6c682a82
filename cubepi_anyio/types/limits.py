"""What bounds a run."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ("RunLimits",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Bounds of a run; timeouts in seconds, ``None`` for no bound.

    Reaching one ends the run with ``outcome="limit"``, and ``RunResult.limit`` says which; ``tool_timeout`` only
    ends its call, ``max_parallel_tools`` only makes calls wait. The work so far is kept, every call is answered,
    and the agent can go on. The defaults stop what would never end by itself: a model that falls silent and
    a model that never stops calling tools.
    """

    run_timeout: float | None = None
    """The whole run, from ``prompt()`` to idle."""
    turn_timeout: float | None = None
    """One turn: the model's answer and its calls."""
    tool_timeout: float | None = None
    """One call, for tools that have no timeout of their own."""
    first_token_timeout: float | None = 600.0
    """From asking the model to the first event of its answer."""
    idle_timeout: float | None = 300.0
    """Between two events of an answer. Keep-alives of the connection are no events."""
    settle_timeout: float = 5.0
    """Completing the record after the run has been ended: writing to the store, telling async listeners."""
    max_turns: int | None = 1000
    """Model answers in one run."""
    max_tool_calls: int | None = None
    """Calls in one run. The message that would exceed it runs none of its calls."""
    max_parallel_tools: int | None = None
    """Calls of one batch that run at the same time. Each batch has its own count: nested agents never wait for it."""
    max_total_tokens: int | None = None
    """Tokens read and written in one run, counted after each answer."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise ValueError(f"RunLimits.{field.name} must be positive or None, not {value!r}")
