"""How one call ended, and the result the model reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ...errors import error_text
from ...types.content import ToolCall
from ...types.messages import ToolResultMessage
from ..define.definition import AgentToolResult

if TYPE_CHECKING:
    from ...types.hitl import PersonRequest

__all__ = (
    "CallEnding",
    "CallOutcome",
)


class CallEnding(StrEnum):
    """Every way a call can end. Anything but ``finished`` and ``failed`` was decided outside the tool."""

    FINISHED = "finished"
    """The tool returned; its result may still say ``is_error``."""
    FAILED = "failed"
    """The tool raised, or cancelled itself."""
    TIMED_OUT = "timed_out"
    """The call took longer than its timeout."""
    ABORTED = "aborted"
    """``abort_tool_call`` ended this call alone."""
    CANCELLED = "cancelled"
    """The call was cancelled together with its run."""
    REFUSED = "refused"
    """The call never began: unknown tool, invalid arguments, a veto, a limit, or a message that was cut."""
    ABANDONED = "abandoned"
    """The call was cancelled, but a worker thread cannot be stopped, and goes on unseen."""
    ANSWERED = "answered"
    """Middleware answered in the tool's place: the tool did not run, and no hook and no approval was asked."""
    SUSPENDED = "suspended"
    """The call waits for a person's answer; it has no result yet and goes on in a later run."""
    IGNORED_CANCELLATION = "ignored_cancellation"
    """The call was cancelled, went on regardless, and returned later."""


@dataclass(slots=True)
class CallOutcome:
    """The end of a call: how, with which result for the model, and, where the tool raised, its exception."""

    call: ToolCall
    ending: CallEnding
    result: AgentToolResult
    is_error: bool
    error: BaseException | None = None
    block_reason: str | None = None
    """Why a hook refused the call, where one did."""
    request: PersonRequest | None = None
    """The question a suspended call waits for."""

    @classmethod
    def finished(cls, call: ToolCall, result: AgentToolResult) -> CallOutcome:
        """The tool returned ``result``."""
        return cls(call, CallEnding.FINISHED, result, result.is_error)

    @classmethod
    def failed(cls, call: ToolCall, error: BaseException) -> CallOutcome:
        """The tool raised ``error``; the model reads its text."""
        return cls._error(call, CallEnding.FAILED, error_text(error), error=error, error_type=type(error).__name__)

    @classmethod
    def refused(cls, call: ToolCall, why: str, *, by_hook: bool = False) -> CallOutcome:
        """The call never began, because of ``why``."""
        outcome = cls._error(call, CallEnding.REFUSED, why)
        outcome.block_reason = why if by_hook else None
        return outcome

    @classmethod
    def timed_out(cls, call: ToolCall, seconds: float) -> CallOutcome:
        """The call was cancelled after ``seconds``."""
        text = f"The call timed out: it was cancelled after {seconds:.3g} seconds."
        return cls._error(call, CallEnding.TIMED_OUT, text, timeout_seconds=seconds)

    @classmethod
    def aborted(cls, call: ToolCall, reason: str | None) -> CallOutcome:
        """The call alone was ended from outside."""
        text = f"The call was cancelled by the user{f': {reason}' if reason else '.'}"
        return cls._error(call, CallEnding.ABORTED, text, reason=reason)

    @classmethod
    def cancelled(cls, call: ToolCall, why: str | None = None, *, started: bool = True) -> CallOutcome:
        """The call was cancelled together with its run; ``started`` says whether its tool had begun."""
        text = "The call was cancelled before it was complete" if started else "The call was cancelled before it began"
        return cls._error(call, CallEnding.CANCELLED, f"{text}{f': {why}' if why else '.'}", reason=why)

    @classmethod
    def abandoned(cls, call: ToolCall, why: str) -> CallOutcome:
        """The call was cancelled but goes on in a thread."""
        text = (
            f"The call was cancelled ({why}), but its function runs in a thread that does not look at its signal: "
            "it was abandoned, may still be running, and its outcome is unknown."
        )
        return cls._error(call, CallEnding.ABANDONED, text, reason=why)

    @classmethod
    def suspended(cls, call: ToolCall, request: PersonRequest) -> CallOutcome:
        """The call waits for a person."""
        return cls(call, CallEnding.SUSPENDED, AgentToolResult(), False, request=request)

    @classmethod
    def ignored_cancellation(cls, call: ToolCall, end: CallOutcome | None, seconds: float) -> CallOutcome:
        """The call came to ``end``, or to none, but only ``seconds`` after it had been cancelled."""
        text = f"The call was cancelled, but went on for {seconds:.1f} seconds before it ended."
        outcome = cls._error(call, CallEnding.IGNORED_CANCELLATION, text, seconds=seconds)
        if end is not None:
            outcome.error, outcome.is_error = end.error, end.is_error
            outcome.result.content = [*end.result.content, *outcome.result.content]
            outcome.result.is_error = end.is_error
            outcome.result.details["details"] = end.result.details
        return outcome

    @classmethod
    def _error(
        cls, call: ToolCall, ending: CallEnding, text: str, *, error: BaseException | None = None, **details: Any
    ) -> CallOutcome:
        known = {"ending": ending.value, **{key: value for key, value in details.items() if value is not None}}
        return cls(call, ending, AgentToolResult(text, known, True), True, error)

    def message(self, *, id: str = "", timestamp: float | None = None, run_id: str | None = None) -> ToolResultMessage:
        """The message that answers the call in the transcript."""
        return ToolResultMessage(
            tool_call_id=self.call.id,
            tool_name=self.call.name,
            content=self.result.content,
            details=self.result.details,
            is_error=self.is_error,
            id=id,
            timestamp=timestamp,
            run_id=run_id,
        )
