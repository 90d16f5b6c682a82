"""When each model answer and tool call of a run began and ended, read off its events. Pure: time is given.

``TimelineRecorder`` turns events into the bars of a ``Timeline``; ``chart.py`` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ... import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    AssistantMessage,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RunOutcome,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnStartEvent,
)

__all__ = ("Bar", "Mark", "Timeline", "TimelineRecorder")

_ANSWER_ENDINGS = {"error": "failed", "aborted": "cancelled", "length": "cut"}
"""Endings of an answer by its stop reason; any other is ``finished``."""


@dataclass(slots=True)
class Bar:
    """One model answer or one tool call. Times are seconds since the run began."""

    kind: Literal["model", "tool"]
    name: str
    turn: int
    began_seconds: float
    call_id: str = ""
    first_seconds: float | None = None
    """Of an answer: when its first piece arrived."""
    ended_seconds: float | None = None
    ending: str = ""
    """``finished``, ``failed``, ``cut``, or what else ``ToolExecutionEndEvent.ending`` may be; empty while it runs."""
    progress: Any = None
    """What the tool reported last."""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_seconds is None

    def lasted_seconds(self, now_seconds: float) -> float:
        """How long it took, or has taken until now."""
        return (now_seconds if self.ended_seconds is None else self.ended_seconds) - self.began_seconds


@dataclass(frozen=True, slots=True)
class Mark:
    """Something from outside that happened at one moment of the run."""

    at_seconds: float
    label: str


@dataclass(slots=True)
class Timeline:
    """The bars of a run in the order they began."""

    bars: list[Bar] = field(default_factory=list[Bar])
    marks: list[Mark] = field(default_factory=list[Mark])
    total_seconds: float = 0.0
    """From the first event to the last so far."""
    outcome: RunOutcome | None = None
    """How the run ended; ``None`` while it goes on."""


class TimelineRecorder:
    """Hears the events of one run, each with its time in seconds on any clock, and keeps its ``timeline``."""

    def __init__(self) -> None:
        self.timeline: Timeline = Timeline()
        self._began: float | None = None
        self._turn = 0
        self._answer: Bar | None = None
        self._calls: dict[str, Bar] = {}

    def since_start(self, at: float) -> float:
        """Seconds since the run began; 0 before it has."""
        return max(at - self._began, 0.0) if self._began is not None else 0.0

    def mark(self, label: str, at: float) -> None:
        """Note that something happened at ``at``."""
        self.timeline.marks.append(Mark(self.since_start(at), label))

    def record(self, event: AgentEvent, at: float) -> Bar | None:
        """Take one event; returns the bar it began, changed or ended."""
        if isinstance(event, AgentStartEvent):
            self._began = at
        seconds = self.since_start(at)
        self.timeline.total_seconds = max(self.timeline.total_seconds, seconds)
        match event:
            case TurnStartEvent(turn=turn):
                # The answer's bar begins when the model is asked, not with the first piece of the answer.
                return self._begin("model", "model", turn, seconds)
            case MessageStartEvent() | MessageUpdateEvent() | MessageEndEvent():
                return self._record_message(event, seconds)
            case ToolExecutionStartEvent() | ToolExecutionUpdateEvent() | ToolExecutionEndEvent():
                return self._record_call(event, seconds)
            case AgentEndEvent(outcome=outcome):
                self.timeline.outcome = outcome
                self._close_answer(seconds, "cancelled")
            case _:
                pass
        return None

    def _begin(self, kind: Literal["model", "tool"], name: str, turn: int, seconds: float, call_id: str = "") -> Bar:
        bar = Bar(kind, name, turn, seconds, call_id)
        self.timeline.bars.append(bar)
        if kind == "model":
            self._turn, self._answer = turn, bar
        else:
            self._calls[call_id] = bar
        return bar

    def _close_answer(self, seconds: float, ending: str) -> None:
        if self._answer is not None:
            self._answer.ended_seconds, self._answer.ending = seconds, ending
            self._answer = None

    def _record_message(
        self, event: MessageStartEvent | MessageUpdateEvent | MessageEndEvent, seconds: float
    ) -> Bar | None:
        answer = self._answer
        if isinstance(event, MessageUpdateEvent):
            if answer is not None and answer.first_seconds is None:
                answer.first_seconds = seconds
        elif not isinstance(event.message, AssistantMessage):
            return None
        elif isinstance(event, MessageEndEvent):
            self._close_answer(seconds, _ANSWER_ENDINGS.get(event.message.stop_reason or "", "finished"))
        return answer

    def _record_call(
        self, event: ToolExecutionStartEvent | ToolExecutionUpdateEvent | ToolExecutionEndEvent, seconds: float
    ) -> Bar | None:
        if isinstance(event, ToolExecutionStartEvent):
            return self._begin("tool", event.tool_name, self._turn, seconds, event.tool_call_id)
        bar = self._calls.get(event.tool_call_id)
        if bar is not None and isinstance(event, ToolExecutionUpdateEvent):
            bar.progress = event.partial_result
        elif bar is not None and isinstance(event, ToolExecutionEndEvent):
            bar.ended_seconds, bar.ending = seconds, event.ending
        return bar
