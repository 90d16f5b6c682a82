from __future__ import annotations

from cubepi_anyio import (
    AgentEvent,
    AgentStartEvent,
    AssistantMessage,
    MessageEndEvent,
    MessageUpdateEvent,
    StreamEvent,
    TextContent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnStartEvent,
)
from cubepi_anyio.cli.chat.view import ConversationView, Piece, visible
from cubepi_anyio.cli.screen.text import ASCII


def piece(kind: str, delta: str | None = None) -> MessageUpdateEvent:
    return MessageUpdateEvent(StreamEvent(kind, 0, delta))  # type: ignore[arg-type]


def view_of(*events: AgentEvent, **options: bool) -> tuple[ConversationView, list[Piece]]:
    """A view that has heard ``events``, one each second, and what it showed."""
    view = ConversationView(ASCII, **{"has_region": False, **options})
    return view, [shown for at, event in enumerate(events) for shown in view.hear(event, float(at))]


def text_of(shown: list[Piece], *, answers_only: bool = False) -> str:
    lines = ["".join(span.text for span in p.spans) + ("\n" if p.is_line else "") for p in shown]
    return "".join(line for line, p in zip(lines, shown, strict=True) if p.is_answer or not answers_only)


def test_thinking_and_answer_stand_on_lines_of_their_own() -> None:
    events = [
        piece("thinking_delta", "Hm"),
        piece("thinking_delta", "."),
        piece("text_delta", "Yes"),
        piece("text_end"),
    ]
    _, shown = view_of(*events)
    assert text_of(shown) == "Hm.\nYes\n"
    assert text_of(shown, answers_only=True) == "Yes\n"
    assert [span.style for p in shown for span in p.spans if span.text == "Hm"] == ["dim"]
    _, shown = view_of(*events, show_thinking=False)
    assert text_of(shown) == "Yes\n"


def test_an_answer_that_ends_its_own_line_gets_no_second_end() -> None:
    view, shown = view_of(piece("text_delta", "Yes\n"), piece("text_end"))
    assert text_of(shown) == "Yes\n"
    assert view.at_line_start


def test_a_message_that_came_in_one_piece_is_shown_whole() -> None:
    _, shown = view_of(TurnStartEvent(1), MessageEndEvent(AssistantMessage(content=[TextContent(text="All at once")])))
    assert text_of(shown, answers_only=True) == "All at once\n"


def test_an_answer_that_was_cut_says_so() -> None:
    message = AssistantMessage(content=[TextContent(text="Half")], stop_reason="length")
    _, shown = view_of(TurnStartEvent(1), piece("text_delta", "Half"), MessageEndEvent(message))
    assert text_of(shown) == "Half\n(the answer is cut: it reached --max-tokens)\n"
    message = AssistantMessage(content=[TextContent(text="Half")], stop_reason="aborted")
    _, shown = view_of(TurnStartEvent(1), piece("text_delta", "Half"), MessageEndEvent(message))
    assert text_of(shown) == "Half\n(cut off here)\n"


def test_the_region_shows_the_wait_and_the_calls_but_never_stands_in_an_answer() -> None:
    begun = [AgentStartEvent(), TurnStartEvent(1)]
    view, _ = view_of(*begun, has_region=True)
    assert "waiting for the model" in text_of([Piece(line) for line in view.region(1.0, 80)])
    view, _ = view_of(*begun, piece("text_delta", "Yes"), has_region=True)
    assert view.region(2.0, 80) == []
    call = ToolExecutionStartEvent("1", "look", {})
    view, _ = view_of(*begun, piece("text_delta", "Yes"), piece("text_end"), call, has_region=True)
    assert "look" in text_of([Piece(line) for line in view.region(4.0, 80)])


def test_without_a_region_a_call_has_lines_for_its_start_progress_and_ending() -> None:
    _, shown = view_of(
        AgentStartEvent(),
        TurnStartEvent(1),
        piece("text_delta", "I look"),
        ToolExecutionStartEvent("1", "look", {"path": "a\x1b.txt", "text": "x" * 60}),
        ToolExecutionUpdateEvent("1", "look", {}, "too early"),
        ToolExecutionUpdateEvent("1", "look", {}, "half way"),
        ToolExecutionEndEvent("1", "look", None, ending="finished"),
    )
    lines = text_of(shown).splitlines()
    assert lines[0] == "I look"
    assert lines[1] == f"  look              started  path=a?.txt, text={'x' * 39}~"
    assert lines[-2] == "  look              half way"
    assert lines[-1].startswith("  look              + finished")


def test_text_of_a_model_shows_and_controls_nothing() -> None:
    assert visible("a\tb\nc\x1b[2J\x07\r\u202e") == "a\tb\nc?[2J???"
