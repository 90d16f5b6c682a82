"""How a run ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import CubepiError, RunAborted, RunLimitReached, RunSuspended
from ..events.agent import RunOutcome
from ..types.messages import Message
from ..types.usage import Usage

if TYPE_CHECKING:
    from ..types.hitl import PersonRequest

__all__ = ("RunResult",)


def _none_waits() -> list[PersonRequest]:
    return []


@dataclass(slots=True)
class RunResult:
    """What a run came to. Only cancellation and bugs of hooks, listeners and stores are exceptions instead."""

    run_id: str
    outcome: RunOutcome
    """``completed``, ``aborted``, ``suspended``, ``error`` or ``limit``."""
    text: str = ""
    """The text of the model's last message in this run."""
    messages: list[Message] = field(default_factory=list[Message])
    """The messages the run added to the transcript, prompts included."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of all model calls of the run."""
    error: Exception | None = None
    """The typed error, where ``outcome`` is ``error``."""
    requests: list[PersonRequest] = field(default_factory=_none_waits)
    """The questions that wait for a person, where ``outcome`` is ``suspended``."""
    abort_reason: str | None = None
    """What ``abort()`` was given."""
    limit: str | None = None
    """The field of ``RunLimits`` that ended the run, where ``outcome`` is ``limit``."""
    limit_value: float | None = None

    def raise_for_error(self) -> RunResult:
        """Return the result if the run completed; otherwise raise why it did not.

        Raises the model's own error for ``error``, ``RunAborted``, ``RunSuspended`` or ``RunLimitReached``.
        """
        match self.outcome:
            case "completed":
                return self
            case "aborted":
                raise RunAborted(self.abort_reason)
            case "suspended":
                raise RunSuspended
            case "limit":
                raise RunLimitReached(self.limit or "a limit", self.limit_value or 0)
            case "error":
                raise self.error if self.error is not None else CubepiError("the run failed")
