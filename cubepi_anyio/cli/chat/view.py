"""A conversation as a person reads it: answers as they are written, thinking beside them, calls with their endings.

Pure: it takes events, with their time, and says what to show. ``chat`` and ``run`` show it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ... import (
    AgentEvent,
    AssistantMessage,
    MessageEndEvent,
    MessageUpdateEvent,
    StreamEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnStartEvent,
)
from ...types.json import JsonObject
from ..demo.timeline import TimelineRecorder
from ..screen.live import RunView
from ..screen.text import Glyphs, Line, Span, Style, as_line, printable, shorten

__all__ = ("ConversationView", "Piece", "visible")

_ARGUMENT_COLUMNS = 40
_NAME_COLUMNS = 17


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to show: a whole line, or a piece of what the model writes."""

    spans: Line
    is_line: bool = True
    is_answer: bool = False
    """Whether it is part of the answer's text, or only tells of the way there."""


def visible(text: str) -> str:
    """``text`` with its lines and tabs, and a ``?`` for every other character that would control a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


class ConversationView:
    """Hears the events of one run and says what to show.

    ``has_region`` says whether the screen has a region that changes: ``region`` is drawn there, and starts and progress
    of calls are no lines of their own.
    """

    def __init__(self, glyphs: Glyphs, *, has_region: bool, show_thinking: bool = True) -> None:
        self._glyphs = glyphs
        self._has_region = has_region
        self._show_thinking = show_thinking
        self._recorder = TimelineRecorder()
        self._calls = RunView(self._recorder, glyphs, has_region=has_region)
        self._style: Style | None = None
        """That of the line that is being written; ``None`` at the start of a line."""
        self._turn_is_written = False

    @property
    def at_line_start(self) -> bool:
        """Whether nothing stands on the last line yet."""
        return self._style is None

    def hear(self, event: AgentEvent, at: float) -> list[Piece]:
        """Take one event, with its time in seconds on any one clock."""
        lines = self._calls.hear(event, at)
        match event:
            case TurnStartEvent():
                self._turn_is_written = False
            case MessageUpdateEvent(stream_event=step):
                return self._step(step)
            case MessageEndEvent(message=AssistantMessage() as message):
                return self._end_of_message(message)
            case ToolExecutionStartEvent(tool_name=name, args=arguments) if not self._has_region:
                return [*self.end_line(), Piece(_start_line(name, arguments, self._glyphs))]
            case ToolExecutionUpdateEvent() | ToolExecutionEndEvent() if lines:
                return [*self.end_line(), *(Piece(line) for line in lines)]
            case _:
                pass
        return []

    def region(self, at: float, width: int) -> list[Line]:
        """What goes on now: the wait for an answer, or the calls that run. Nothing while an answer is written."""
        calls_run = any(bar.is_open and bar.kind == "tool" for bar in self._recorder.timeline.bars)
        if not self.at_line_start or (self._turn_is_written and not calls_run):
            return []
        return self._calls.region(at, width)

    def end_line(self) -> list[Piece]:
        """What ends the line that is being written, if one is."""
        style, self._style = self._style, None
        return [] if style is None else [Piece((Span("\n", style),), is_line=False, is_answer=style == "plain")]

    # --- the answer ----------------------------------------------------------------------------

    def _step(self, step: StreamEvent) -> list[Piece]:
        if step.type == "text_delta" and step.delta:
            return self._write(step.delta, "plain")
        if step.type == "thinking_delta" and step.delta and self._show_thinking:
            return self._write(step.delta, "dim")
        if step.type in ("text_end", "thinking_end"):
            return self.end_line()
        return []

    def _write(self, text: str, style: Style) -> list[Piece]:
        before = self.end_line() if self._style not in (None, style) else []
        self._turn_is_written = True
        self._style = None if text.endswith("\n") else style
        return [*before, Piece((Span(visible(text), style),), is_line=False, is_answer=style == "plain")]

    def _end_of_message(self, message: AssistantMessage) -> list[Piece]:
        pieces: list[Piece] = []
        if message.text and not self._turn_is_written:  # a provider need not send pieces
            pieces += self._write(message.text, "plain")
        pieces += self.end_line()
        self._turn_is_written = True
        if message.stop_reason == "aborted" and message.content:
            pieces.append(Piece(as_line(Span("(cut off here)", "stopped"))))
        if message.stop_reason == "length":
            pieces.append(Piece(as_line(Span("(the answer is cut: it reached --max-tokens)", "late"))))
        return pieces


def _start_line(name: str, arguments: JsonObject, glyphs: Glyphs) -> Line:
    shown = ", ".join(
        f"{key}={shorten(printable(str(value)), _ARGUMENT_COLUMNS, glyphs.ellipsis)}"
        for key, value in arguments.items()
    )
    return as_line(f"  {name:<{_NAME_COLUMNS}} ", Span("started", "dim"), f"  {shown}" if shown else "")
