"""How a run ended, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

from ..errors import CubepiError, RunAborted, RunLimitReached, RunSuspended
from .json import JsonObject
from .messages import Message
from .usage import Usage

if TYPE_CHECKING:
    from .hitl import PersonRequest

__all__ = ("OutputT", "RunOutcome", "RunResult")

OutputT = TypeVar("OutputT", default=None)
"""The type of what a run answers with besides its text."""

RunOutcome = Literal["completed", "aborted", "suspended", "error", "limit"]
"""How a run ended, as its caller, its listeners and its store are told.

One that was cancelled from outside is ``aborted`` to listeners and store; its caller gets the cancellation instead.
"""


def _none_waits() -> list[PersonRequest]:
    return []


@dataclass(slots=True)
class RunResult(Generic[OutputT]):
    """What a run came to. Only cancellation and bugs of hooks, listeners and stores are exceptions instead."""

    run_id: str
    outcome: RunOutcome
    """``completed``, ``aborted``, ``suspended``, ``error`` or ``limit``."""
    text: str = ""
    """The text of the model's last message in this run."""
    messages: list[Message] = field(default_factory=list[Message])
    """The messages the run added to the transcript, prompts included."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of the run: of all its model calls, and of what hooks and tools added to them."""
    usage_by: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """What hooks and tools added to ``usage``, by the name each gave: the model calls they made by themselves."""
    notes: JsonObject = field(default_factory=dict[str, Any])
    """What hooks and tools noted about the run for its caller, for instance the id of its trace. Not stored."""
    error: Exception | None = None
    """The typed error, where ``outcome`` is ``error``."""
    requests: list[PersonRequest] = field(default_factory=_none_waits)
    """The questions that wait for a person, where ``outcome`` is ``suspended``."""
    abort_reason: str | None = None
    """What ``abort()`` was given."""
    limit: str | None = None
    """The field of ``RunLimits`` that ended the run, where ``outcome`` is ``limit``."""
    limit_value: float | None = None
    output: OutputT | None = None
    """What the run answered with, where the agent wants more than text."""

    def raise_for_error(self) -> RunResult[OutputT]:
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
