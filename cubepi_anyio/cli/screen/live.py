"""A run as a person follows it: lines that stay, and a region that shows what goes on now. Pure: time is given."""

from __future__ import annotations

from typing import Any

from ... import (
    AgentEvent,
    AssistantMessage,
    MessageEndEvent,
    MessageUpdateEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnStartEvent,
    UserMessage,
)
from ...types.messages import text_of
from ..demo.chart import ending_span
from ..demo.timeline import Bar, TimelineRecorder
from .text import BLANK, Glyphs, Line, Span, as_line, counted, printable, seconds_text, shorten

__all__ = ("RunView",)

_NAME_COLUMNS = 17
_BAR_COLUMNS = 24
_TEXT_LINES = 3
_PROGRESS_SECONDS = 1.0
"""Without a region, progress is a line of its own, and no tool has more than one in this time."""
_FRAMES_PER_SECOND = 12


class RunView:
    """Hears the events of one run and says what to show of them.

    ``has_region`` says whether the screen is live: then ``region`` shows starts and progress, otherwise they are
    lines like all others.
    """

    def __init__(self, recorder: TimelineRecorder, glyphs: Glyphs, *, has_region: bool) -> None:
        self._recorder = recorder
        self._glyphs = glyphs
        self._has_region = has_region
        self._turn = 0
        self._text = ""
        self._calls_written = 0
        self._last_said: dict[str, float] = {}

    def hear(self, event: AgentEvent, at: float) -> list[Line]:
        """Take one event, with its time in seconds on the recorder's clock; returns the lines to show for good."""
        bar = self._recorder.record(event, at)
        match event:
            case TurnStartEvent(turn=turn):
                self._turn, self._text, self._calls_written = turn, "", 0
                return [BLANK] if turn > 1 else []
            case MessageUpdateEvent(stream_event=written) if written.type == "text_delta":
                self._text += written.delta or ""
            case MessageUpdateEvent(stream_event=written) if written.type == "toolcall_start":
                self._calls_written += 1
            case MessageEndEvent(message=message):
                return self._message_lines(message)
            case ToolExecutionEndEvent():
                return self._end_lines(event, bar)
            case ToolExecutionStartEvent() if not self._has_region and bar is not None:
                return [as_line(f"  {bar.name:<{_NAME_COLUMNS}} ", "started")]
            case ToolExecutionUpdateEvent() if not self._has_region and bar is not None:
                return self._progress(bar, at)
            case _:
                pass
        return []

    # --- lines that stay -----------------------------------------------------------------------

    def _message_lines(self, message: Any) -> list[Line]:
        if isinstance(message, UserMessage):
            return [as_line(Span("you    ", "strong"), printable(text_of(message.content))), BLANK]
        if not isinstance(message, AssistantMessage):
            return []
        self._text = ""
        lines: list[Line] = []
        for number, text in enumerate(message.text.splitlines()):
            lines.append(as_line(Span("       " if number else "model  ", "strong"), printable(text)))
        if message.stop_reason == "aborted":
            lines.append(as_line("       ", Span("(cut off here)", "stopped")))
        return [*lines, BLANK] if lines else []

    def _progress(self, bar: Bar, at: float) -> list[Line]:
        if (
            at - self._last_said.get(bar.call_id, at - bar.lasted_seconds(self._recorder.since_start(at)))
            < _PROGRESS_SECONDS
        ):
            return []
        self._last_said[bar.call_id] = at
        return [as_line(f"  {bar.name:<{_NAME_COLUMNS}} ", _progress_words(bar.progress))]

    def _end_lines(self, event: ToolExecutionEndEvent, bar: Bar | None) -> list[Line]:
        if bar is None:
            return []
        ending = ending_span(event.ending, self._glyphs)
        lasted = seconds_text(bar.lasted_seconds(self._recorder.timeline.total_seconds))
        return [
            as_line(
                "  ",
                Span(f"{event.tool_name:<{_NAME_COLUMNS}} ", "name"),
                Span(f"{ending.text:<12}", ending.style),
                Span(f"{lasted:>8}  ", "dim"),
                printable("" if event.ending in ("cancelled", "aborted") else _summary(event.result)),
            )
        ]

    # --- the region ----------------------------------------------------------------------------

    def region(self, at: float, width: int) -> list[Line]:
        """What goes on at ``at``, in lines of at most ``width`` columns; none when the run is over."""
        timeline = self._recorder.timeline
        open_bars = [bar for bar in timeline.bars if bar.is_open]
        if timeline.outcome is not None or not open_bars:
            return []
        now_seconds = self._recorder.since_start(at)
        frame = self._glyphs.frames[int(at * _FRAMES_PER_SECOND) % len(self._glyphs.frames)]
        calls = [bar for bar in open_bars if bar.kind == "tool"]
        lines = [self._call_line(bar, frame, now_seconds, width) for bar in calls]
        if not calls:
            lines = self._answer_lines(frame, width)
        hint = f" {self._glyphs.separator} {seconds_text(now_seconds)} {self._glyphs.separator} Ctrl-C stops it"
        return [*lines, as_line(Span(f"  turn {self._turn}{hint}"[:width], "dim"))]

    def _answer_lines(self, frame: str, width: int) -> list[Line]:
        """The last lines of what the model is writing."""
        columns = max(width - 8, 10)
        written = printable(self._text)
        pieces = [written[start : start + columns] for start in range(0, len(written), columns)]
        lines = [as_line(Span("model  ", "strong"), piece) for piece in pieces[-_TEXT_LINES:]]
        doing = f"writing {counted(self._calls_written, 'tool call')}" if self._calls_written else "writing"
        return [
            *lines,
            as_line(Span(f"{frame} ", "name"), Span(doing if self._text else "waiting for the model", "dim")),
        ]

    def _call_line(self, bar: Bar, frame: str, now_seconds: float, width: int) -> Line:
        name = f"{shorten(bar.name, _NAME_COLUMNS, self._glyphs.ellipsis):<{_NAME_COLUMNS}} "
        lasted = f"{seconds_text(bar.lasted_seconds(now_seconds)):>8}  "
        words = shorten(_progress_words(bar.progress), max(width - 60, 0), self._glyphs.ellipsis)
        return as_line(Span(f"{frame} ", "name"), Span(name, "name"), *self._share(bar), Span(lasted, "dim"), words)

    def _share(self, bar: Bar) -> list[Span]:
        """A progress bar where the tool says how far it is, else a line that waits."""
        done, total = getattr(bar.progress, "done", 0), getattr(bar.progress, "total", 0)
        if not total:
            return [Span(self._glyphs.waiting * _BAR_COLUMNS, "dim")]
        full = min(round(done / total * _BAR_COLUMNS), _BAR_COLUMNS)
        return [Span(self._glyphs.bar * full, "name"), Span(self._glyphs.rest * (_BAR_COLUMNS - full), "dim")]


def _progress_words(progress: Any) -> str:
    done, total, noun = (getattr(progress, name, None) for name in ("done", "total", "noun"))
    if isinstance(done, int) and isinstance(total, int):
        return f"{done:,} of {total:,} {noun or ''}".rstrip()
    return "" if progress is None else printable(str(progress))


def _summary(result: Any) -> str:
    """One line about a result: what the tool wrote for people, or the text the model reads."""
    details = getattr(result, "details", None)
    return details if isinstance(details, str) else text_of(getattr(result, "content", []))
