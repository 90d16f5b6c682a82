"""One event of a stream by itself."""

from __future__ import annotations

import copy

import pytest

from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageBuilder, MessageStream
from cubepi_anyio.types import AssistantMessage, TextContent, ToolCall, Usage


def test_an_event_takes_what_the_manual_gives_it_by_name_and_by_position() -> None:
    partial = AssistantMessage(content=[TextContent(text="a")])
    named = StreamEvent(type="text_delta", content_index=0, delta="a", partial=partial)
    assert named == StreamEvent("text_delta", 0, "a", partial)
    assert (named.type, named.content_index, named.delta, named.partial) == ("text_delta", 0, "a", partial)
    failed = StreamEvent(type="error", error_message="aborted", stop_reason="aborted", usage=Usage(output_tokens=1))
    assert (failed.error_message, failed.stop_reason, failed.usage) == ("aborted", "aborted", Usage(output_tokens=1))
    assert failed.error is None


@pytest.mark.parametrize(
    ("type", "terminal"),
    [("start", False), ("text_delta", False), ("toolcall_end", False), ("done", True), ("error", True)],
)
def test_done_and_error_are_terminal(type: str, terminal: bool) -> None:
    assert StreamEvent(type).is_terminal is terminal  # type: ignore[reportArgumentType]


def test_an_event_that_went_through_no_stream_has_no_partial_and_no_preview() -> None:
    event = StreamEvent("toolcall_delta", 0, '{"a": 1}')
    assert event.partial is None
    assert event.preview_arguments() == {}


def test_an_event_does_not_print_the_whole_message() -> None:
    builder = MessageBuilder()
    events = [StreamEvent("text_delta", 0, "abcd") for _ in range(1_000)]
    for event in events:
        builder.apply(event)
    event = events[-1]
    assert event.partial is not None
    assert len(repr(event)) < 300


def test_events_are_equal_by_what_they_say_not_by_where_they_were() -> None:
    builder = MessageBuilder()
    event = StreamEvent("text_delta", 0, "a")
    builder.apply(event)
    assert event == StreamEvent("text_delta", 0, "a")
    assert event != StreamEvent("text_delta", 0, "b")


def test_a_partial_is_built_once_and_kept() -> None:
    builder = MessageBuilder()
    event = StreamEvent("text_delta", 0, "a")
    builder.apply(event)
    first = event.partial
    builder.apply(StreamEvent("text_delta", 0, "b"))
    assert event.partial is first
    assert first is not None
    assert first.text == "a"


def test_an_event_copied_before_its_partial_was_read_still_has_it() -> None:
    builder = MessageBuilder()
    event = StreamEvent("text_delta", 0, "a")
    builder.apply(event)
    copied = copy.copy(event)
    builder.apply(StreamEvent("text_delta", 0, "b"))
    assert copied.partial is not None
    assert copied.partial.text == "a"


def test_the_preview_of_a_given_partial_is_the_providers_own() -> None:
    call = ToolCall(id="1", name="t", arguments={"a": 1})
    event = StreamEvent("toolcall_delta", 0, "1}", AssistantMessage(content=[call]))
    MessageStream().push(event)
    assert event.preview_arguments() == {"a": 1}
    text = StreamEvent("text_delta", 3, "x", AssistantMessage(content=[TextContent(text="x")]))
    MessageStream().push(text)
    assert text.preview_arguments() == {}
