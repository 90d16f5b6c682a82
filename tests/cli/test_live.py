from __future__ import annotations

from cubepi_anyio import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    AgentToolResult,
    AssistantMessage,
    MessageEndEvent,
    MessageUpdateEvent,
    StreamEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnStartEvent,
    faux_assistant_message,
)
from cubepi_anyio.cli.demo.timeline import TimelineRecorder
from cubepi_anyio.cli.demo.tools import Progress
from cubepi_anyio.cli.screen.live import RunView
from cubepi_anyio.cli.screen.text import UNICODE, plain_text

START: list[tuple[float, AgentEvent]] = [(10.0, AgentStartEvent("r")), (10.0, TurnStartEvent(1))]


def a_view(*, has_region: bool) -> RunView:
    return RunView(TimelineRecorder(), UNICODE, has_region=has_region)


def said(view: RunView, *events: tuple[float, AgentEvent]) -> list[str]:
    return [plain_text(line) for at, event in events for line in view.hear(event, at)]


def region(view: RunView, at: float) -> list[str]:
    return [plain_text(line) for line in view.region(at, 80)]


def update(done: int) -> ToolExecutionUpdateEvent:
    return ToolExecutionUpdateEvent("c", "count", {}, Progress(done, 40, "files"))


def call_end(ending: str, result: AgentToolResult) -> ToolExecutionEndEvent:
    return ToolExecutionEndEvent("c", "count", result, ending=ending)


def test_without_a_region_starts_and_progress_are_lines_and_progress_is_rationed() -> None:
    view = a_view(has_region=False)
    lines = said(
        view,
        *START,
        (10.5, ToolExecutionStartEvent("c", "count", {})),
        (11.0, update(1)),
        (11.6, update(2)),
        (12.0, update(3)),
        (12.7, update(4)),
        (13.0, call_end("finished", AgentToolResult("{}", details="40 files"))),
    )
    assert lines == [
        "  count             started",
        "  count             2 of 40 files",
        "  count             4 of 40 files",
        "  count             ✓ finished    2.50 s  40 files",
    ]


def test_the_region_shows_how_far_each_call_is_and_how_long_it_has_taken() -> None:
    view = a_view(has_region=True)
    start = (11.0, ToolExecutionStartEvent("c", "count", {}))
    assert said(view, *START, (11.0, MessageEndEvent(AssistantMessage())), start, (12.0, update(10))) == []
    call, turn = region(view, 13.0)
    assert call[2:] == "count             ━━━━━━──────────────────  2.00 s  10 of 40 files"
    assert turn == "  turn 1 · 3.00 s · Ctrl-C stops it"
    assert said(view, (13.0, call_end("failed", AgentToolResult("bro\nken")))) == [
        "  count             ✗ failed      2.00 s  bro ken"
    ]


def test_the_region_shows_the_answer_as_it_is_written_and_then_it_stays() -> None:
    view = a_view(has_region=True)
    assert said(view, *START) == []
    assert region(view, 10.0)[0].endswith("waiting for the model")
    for delta in ("Hel", "lo"):
        said(view, (11.0, MessageUpdateEvent(StreamEvent("text_delta", 0, delta))))
    assert region(view, 11.0)[0] == "model  Hello"
    said(view, (11.0, MessageUpdateEvent(StreamEvent("toolcall_start", 1))))
    assert region(view, 11.0)[1].endswith("writing 1 tool call")
    assert said(view, (12.0, MessageEndEvent(faux_assistant_message("Hello\nyou")))) == [
        "model  Hello",
        "       you",
        "",
    ]


def test_an_answer_that_was_cut_off_says_where() -> None:
    message = faux_assistant_message("Hel", stop_reason="aborted")
    lines = said(a_view(has_region=True), *START, (11.0, MessageEndEvent(message)))
    assert lines == ["model  Hel", "       (cut off here)", ""]


def test_when_the_run_is_over_the_region_is_gone() -> None:
    view = a_view(has_region=True)
    said(view, *START, (11.0, AgentEndEvent(outcome="aborted")))
    assert region(view, 11.0) == []
