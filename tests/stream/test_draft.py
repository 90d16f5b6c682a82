"""Saying what arrives, and getting a well-formed stream."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import StreamMisuse
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import DraftWriter, MessageBuilder, MessageDraft, MessageStream
from cubepi_anyio.types import (
    AssistantMessage,
    Model,
    OpaqueContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)


class Recorder:
    """A writer, its events, and what they make of a message."""

    def __init__(self, model: Model | None = None, api: str = "") -> None:
        self.events: list[StreamEvent] = []
        self.writer = DraftWriter(self.events.append, model, api=api)

    @property
    def trace(self) -> list[tuple[str, int | None]]:
        return [(event.type, event.content_index) for event in self.events]

    def message(self) -> AssistantMessage:
        builder = MessageBuilder()
        for event in self.events:
            if event.given is None:
                builder.apply(event)
        return builder.finished()


def test_running_text_is_ended_by_whatever_comes_next() -> None:
    recorder = Recorder()
    writer = recorder.writer
    writer.thinking("a")
    writer.thinking("b")
    writer.text("c")
    call = writer.tool_call("1", "t")
    writer.append(call, '{"x": 1}')
    writer.text("d")
    writer.tool_call("2", "t", {"y": 2})
    writer.done()
    assert recorder.trace == [
        ("start", None),
        ("thinking_start", 0),
        ("thinking_delta", 0),
        ("thinking_delta", 0),
        ("thinking_end", 0),
        ("text_start", 1),
        ("text_delta", 1),
        ("text_end", 1),
        ("toolcall_start", 2),
        ("toolcall_delta", 2),
        ("text_start", 3),
        ("text_delta", 3),
        ("text_end", 3),
        ("toolcall_start", 4),
        ("toolcall_end", 4),
        ("toolcall_end", 2),
        ("done", None),
    ]
    assert recorder.message().content == [
        ThinkingContent(thinking="ab"),
        TextContent(text="c"),
        ToolCall(id="1", name="t", arguments={"x": 1}),
        TextContent(text="d"),
        ToolCall(id="2", name="t", arguments={"y": 2}),
    ]


def test_calls_may_grow_by_turns() -> None:
    recorder = Recorder()
    first, second = recorder.writer.tool_call("1", "t"), recorder.writer.tool_call("2", "t")
    for index, piece in ((first, '{"a"'), (second, '{"b"'), (first, ": 1}"), (second, ": 2}")):
        recorder.writer.append(index, piece)
    recorder.writer.close(second)
    assert (recorder.writer.is_open(first), recorder.writer.is_open(second)) == (True, False)
    recorder.writer.done()
    assert [block.arguments for block in recorder.message().tool_calls] == [{"a": 1}, {"b": 2}]


def test_start_says_who_answers_and_counts_once() -> None:
    recorder = Recorder(Model(id="m", provider="p", api="wire"))
    recorder.writer.start(response_id="r", request_id="q", model_id="m-2", usage=Usage(input_tokens=1))
    recorder.writer.start(response_id="other")
    recorder.writer.done()
    assert [event.type for event in recorder.events] == ["start", "done"]
    assert recorder.events[0].partial == AssistantMessage(
        usage=Usage(input_tokens=1), provider_id="p", model_id="m-2", api="wire", response_id="r", request_id="q"
    )


@pytest.mark.parametrize(("own", "header"), [("", "wire"), ("own", "own")])
def test_the_wire_format_given_wins_over_the_models(own: str, header: str) -> None:
    recorder = Recorder(Model(id="m", api="wire"), own)
    recorder.writer.start()
    assert recorder.events[0].partial is not None
    assert recorder.events[0].partial.api == header


def test_done_without_anything_is_start_and_done() -> None:
    recorder = Recorder()
    recorder.writer.done("stop", usage=Usage(output_tokens=0))
    assert [event.type for event in recorder.events] == ["start", "done"]
    assert (recorder.events[1].stop_reason, recorder.events[1].usage) == ("stop", Usage())


def test_empty_text_opens_no_block() -> None:
    recorder = Recorder()
    recorder.writer.text("")
    recorder.writer.thinking("")
    recorder.writer.text("a")
    recorder.writer.text("")
    recorder.writer.done()
    assert recorder.message().content == [TextContent(text="a")]


def test_fail_leaves_open_what_is_not_complete() -> None:
    recorder = Recorder()
    recorder.writer.text("a")
    error = TimeoutError()
    recorder.writer.fail(error, usage=Usage(input_tokens=2))
    assert [event.type for event in recorder.events] == ["start", "text_start", "text_delta", "error"]
    last = recorder.events[-1]
    assert (last.error, last.error_message, last.usage) == (error, "TimeoutError", Usage(input_tokens=2))


@pytest.mark.parametrize("end", ["done", "fail"])
def test_nothing_follows_the_terminal_event(end: str) -> None:
    recorder = Recorder()
    recorder.writer.text("a")
    recorder.writer.done() if end == "done" else recorder.writer.fail(ValueError("x"))
    said = len(recorder.events)
    recorder.writer.text("b")
    recorder.writer.thinking("b")
    recorder.writer.tool_call("1", "t", {})
    recorder.writer.done()
    recorder.writer.fail(ValueError("y"))
    assert len(recorder.events) == said
    assert recorder.writer.ended


@pytest.mark.parametrize("act", ["append", "close"])
def test_a_block_that_is_not_open_is_named(act: str) -> None:
    writer = Recorder().writer
    index = writer.tool_call("1", "t", {})
    with pytest.raises(StreamMisuse, match=f"block {index} of the draft is not open"):
        writer.append(index, "x") if act == "append" else writer.close(index)


def test_whole_blocks_and_vendors_notes_pass_through() -> None:
    recorder = Recorder()
    opaque = OpaqueContent(kind="search", data={"q": 1})
    assert recorder.writer.block(ThinkingContent(redacted="r")) == 0
    assert recorder.writer.block(opaque) == 1
    recorder.writer.text("a", vendor={"id": "i"})
    recorder.writer.done()
    assert recorder.message().content == [
        ThinkingContent(redacted="r"),
        opaque,
        TextContent(text="a", vendor={"id": "i"}),
    ]


acts = st.lists(
    st.sampled_from(["text", "thinking", "call", "whole call", "append", "close", "block"]) | st.just("text"),
    max_size=30,
)


@given(acts, st.sampled_from(["done", "fail"]))
def test_whatever_is_said_the_stream_is_well_formed(said: list[str], end: str) -> None:
    recorder = Recorder()
    writer = recorder.writer
    for number, act in enumerate(said):
        running = [index for index in range(writer._count) if writer.is_open(index)]
        match act:
            case "text":
                writer.text("x")
            case "thinking":
                writer.thinking("x")
            case "call":
                writer.tool_call(str(number), "t")
            case "whole call":
                writer.tool_call(str(number), "t", {"n": number})
            case "block":
                writer.block(OpaqueContent(kind="k"))
            case "append" if running:
                writer.append(running[number % len(running)], "1")
            case "close" if running:
                writer.close(running[number % len(running)])
            case _:
                pass
    writer.done() if end == "done" else writer.fail(ValueError("x"))
    _check_well_formed(recorder.events, ended=end == "done")


def _check_well_formed(events: list[StreamEvent], *, ended: bool) -> None:
    running: dict[int, str] = {}
    count = 0
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert events[0].type == ("start" if ended or len(events) > 1 else "error")
    for event in events[1:-1]:
        kind, _, step = event.type.partition("_")
        index = event.content_index
        assert index is not None
        if step == "start":
            assert index == count
            running[index], count = kind, count + 1
        elif step == "delta":
            assert running[index] == kind
        else:
            assert running.pop(index) == kind
    assert not ended or running == {}


# --- into a stream ---------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_custom_provider_is_ten_lines() -> None:
    model = Model(id="m", provider="mine")

    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream, model)
        await draft.thinking("hm")
        for token in ("Hel", "lo"):
            await draft.text(token)
        await draft.tool_call("1", "t", {"a": 1})
        index = await draft.tool_call("2", "t")
        await draft.arguments(index, '{"b": ')
        await draft.arguments(index, "2}")
        await draft.end_block(index)
        await draft.flush()
        await draft.done(usage=Usage(output_tokens=5))

    async with MessageStream(produce) as stream:
        events = [event async for event in stream]
        message = await stream.result()
    _check_well_formed(events, ended=True)
    assert message == AssistantMessage(
        content=[
            ThinkingContent(thinking="hm"),
            TextContent(text="Hello"),
            ToolCall(id="1", name="t", arguments={"a": 1}),
            ToolCall(id="2", name="t", arguments={"b": 2}),
        ],
        stop_reason="tool_use",
        usage=Usage(output_tokens=5),
        provider_id="mine",
        model_id="m",
    )


@pytest.mark.anyio
async def test_a_failed_draft_keeps_text_and_drops_the_open_call() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.text("kept")
        await draft.tool_call("1", "t")
        await draft.fail(ValueError("cut"), usage=Usage(output_tokens=1))

    async with MessageStream(produce) as stream:
        message = await stream.result()
    assert message.content == [TextContent(text="kept")]
    assert (message.stop_reason, message.error_message, message.usage) == ("error", "cut", Usage(output_tokens=1))


@pytest.mark.anyio
async def test_a_cancelled_wait_of_a_draft_has_handed_its_event_over() -> None:
    stream = MessageStream()
    draft = MessageDraft(stream)
    for _ in range(61):
        await draft.text("a")
    calls: list[Any] = [draft.text("b"), draft.thinking("c"), draft.tool_call("1", "t"), draft.flush()]
    for call in calls:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await call
        assert scope.cancelled_caught
    draft.writer.done()
    assert (await stream.result()).content == [
        TextContent(text="a" * 61 + "b"),
        ThinkingContent(thinking="c"),
        ToolCall(id="1", name="t"),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("act", ["done", "fail"])
async def test_the_last_word_of_a_draft_is_a_checkpoint(act: str) -> None:
    stream = MessageStream()
    draft = MessageDraft(stream)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await (draft.done() if act == "done" else draft.fail(ValueError("x")))
    assert scope.cancelled_caught
    assert (await stream.result()).stop_reason == ("stop" if act == "done" else "error")
