"""What is sent, delta by delta."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.events import StreamEvent
from cubepi_anyio.providers import (
    FauxProvider,
    FauxResponse,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.types import (
    AssistantMessage,
    ImageContent,
    Model,
    OpaqueContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)

pytestmark = pytest.mark.anyio

MODEL = Model(id="m", provider="faux")


async def events_of(response: Any, **settings: Any) -> tuple[list[StreamEvent], AssistantMessage]:
    provider = FauxProvider(**settings)
    provider.set_responses([response])
    with anyio.fail_after(5):
        async with await provider.stream(MODEL, []) as stream:
            events = [event async for event in stream]
            return events, await stream.result()


async def test_a_message_is_sent_as_a_well_formed_stream() -> None:
    response = ["Hello", faux_thinking("Hm"), faux_tool_call("add", {"a": 1}, id="c1")]
    events, message = await events_of(response, token_size_min=4, token_size_max=4)
    assert [(event.type, event.content_index, event.delta) for event in events] == [
        ("start", None, None),
        ("text_start", 0, None),
        ("text_delta", 0, "Hell"),
        ("text_delta", 0, "o"),
        ("text_end", 0, None),
        ("thinking_start", 1, None),
        ("thinking_delta", 1, "Hm"),
        ("thinking_end", 1, None),
        ("toolcall_start", 2, None),
        ("toolcall_delta", 2, '{"a"'),
        ("toolcall_delta", 2, ": 1}"),
        ("toolcall_end", 2, None),
        ("done", None, None),
    ]
    assert message.content == [
        TextContent(text="Hello"),
        ThinkingContent(thinking="Hm"),
        ToolCall(id="c1", name="add", arguments={"a": 1}),
    ]
    assert message.stop_reason == "tool_use"


async def test_a_call_has_no_arguments_until_it_ends() -> None:
    events, _ = await events_of(faux_tool_call("add", {"a": 1}, id="c1"))
    seen = [event.partial.tool_calls for event in events if event.partial is not None]
    assert seen[0] == []
    assert all(calls == [ToolCall(id="c1", name="add")] for calls in seen[1:-2])
    assert all(calls == [ToolCall(id="c1", name="add", arguments={"a": 1})] for calls in seen[-2:])


async def test_every_delta_is_within_the_token_sizes_and_only_the_last_may_be_short() -> None:
    events, message = await events_of("x" * 1000, token_size_min=2, token_size_max=6)
    lengths = [len(event.delta) for event in events if event.delta is not None]
    assert set(lengths[:-1]) == {2, 3, 4, 5, 6}
    assert 1 <= lengths[-1] <= 6
    assert message.text == "x" * 1000


async def test_the_same_seed_cuts_the_same_and_another_one_differs() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5
    cuts = [[event.delta for event in (await events_of(text, seed=seed))[0]] for seed in (1, 1, 2)]
    assert cuts[0] == cuts[1] != cuts[2]


async def test_how_one_answer_is_cut_does_not_depend_on_when_another_is_read() -> None:
    async def cuts(order: list[int]) -> dict[int, list[str | None]]:
        provider = FauxProvider()
        provider.set_responses(["a" * 200, "b" * 200])
        streams = [await provider.stream(MODEL, []) for _ in range(2)]
        found: dict[int, list[str | None]] = {}
        for number in order:
            async with streams[number] as stream:
                found[number] = [event.delta async for event in stream]
        return found

    assert await cuts([0, 1]) == await cuts([1, 0])


async def test_an_empty_text_has_a_block_and_no_delta() -> None:
    events, message = await events_of("")
    assert [event.type for event in events] == ["start", "text_start", "text_end", "done"]
    assert message.content == [TextContent(text="")]


async def test_a_message_without_content_is_start_and_done() -> None:
    events, message = await events_of(faux_assistant_message([]))
    assert [event.type for event in events] == ["start", "done"]
    assert message.content == []


async def test_blocks_of_one_kind_stay_apart() -> None:
    _, message = await events_of([faux_text("one"), faux_text("two")])
    assert message.content == [TextContent(text="one"), TextContent(text="two")]


async def test_what_only_the_vendor_understands_arrives_as_it_was_given() -> None:
    blocks = [
        ThinkingContent(thinking="Hm", signature="sig", vendor={"item": "r1"}),
        ThinkingContent(redacted="c2VjcmV0"),
        TextContent(text="See [1].", vendor={"citations": [1]}),
        ImageContent(source="aGk=", media_type="image/png"),
        OpaqueContent(kind="search", data={"query": "python"}),
        ToolCall(id="c1", name="add", arguments={"a": [1, None, "ü"]}, vendor={"item": "f1"}),
    ]
    _, message = await events_of(blocks)
    assert message.content == blocks


async def test_what_stands_beside_the_content_of_a_queued_message_arrives_too() -> None:
    queued = AssistantMessage(content=[faux_text("Hi")], id="a1", timestamp=5.0, metadata={"k": [1]}, response_id="r9")
    _, message = await events_of(queued)
    assert (message.id, message.timestamp, message.metadata, message.response_id) == ("a1", 5.0, {"k": [1]}, "r9")
    message.metadata["k"].append(2)
    assert queued.metadata == {"k": [1]}


async def test_a_message_says_which_model_answered() -> None:
    events, message = await events_of("Hi")
    start = events[0].partial
    assert start is not None
    for part in (start, message):
        assert (part.provider_id, part.model_id, part.api, part.response_id) == ("faux", "m", "faux", "faux_1")


@pytest.mark.parametrize("reason", ["stop", "length", "refusal", "pause_turn"])
async def test_done_carries_the_stop_reason_of_the_message(reason: str) -> None:
    events, message = await events_of(faux_assistant_message("Hi", stop_reason=reason))
    assert (events[-1].type, events[-1].stop_reason) == ("done", reason)
    assert message.stop_reason == reason


async def test_a_message_that_failed_is_streamed_and_ends_with_its_error_message() -> None:
    queued = faux_assistant_message("Half an ans", stop_reason="error", error_message="it broke")
    events, message = await events_of(queued)
    assert (events[-1].type, events[-1].error_message) == ("error", "it broke")
    assert (message.text, message.stop_reason, message.error_message) == ("Half an ans", "error", "it broke")
    assert message.error_type == "ProviderError"


async def test_a_message_that_was_aborted_ends_as_aborted_and_not_as_a_failure_of_the_provider() -> None:
    events, message = await events_of(faux_assistant_message("Half an ans", stop_reason="aborted"))
    assert (events[-1].type, events[-1].error) == ("error", None)
    assert (message.text, message.stop_reason, message.error_type) == ("Half an ans", "aborted", None)


async def test_arguments_that_are_no_json_arrive_as_invalid() -> None:
    _, message = await events_of(faux_tool_call("add", '{"a": 1', id="c1"))
    assert message.tool_calls == [ToolCall(id="c1", name="add", invalid_arguments='{"a": 1')]


async def test_garbled_arguments_are_no_json_for_any_call_of_the_message() -> None:
    calls = [faux_tool_call("add", {"a": 1}, id="c1"), faux_tool_call("now", {}, id="c2")]
    _, message = await events_of(FauxResponse(calls, garble_arguments=True))
    assert [(call.arguments, call.invalid_arguments) for call in message.tool_calls] == [({}, '{"a": 1'), ({}, "{")]
    assert message.stop_reason == "tool_use"


@pytest.mark.virtual_clock
async def test_a_pace_sends_so_many_deltas_in_a_second() -> None:
    provider = FauxProvider(tokens_per_second=10, token_size_min=4, token_size_max=4)
    provider.set_responses(["x" * 40])
    started = anyio.current_time()
    async with await provider.stream(MODEL, []) as stream:
        moments = [anyio.current_time() - started async for event in stream if event.delta is not None]
    assert moments == pytest.approx([n / 10 for n in range(1, 11)])


async def test_an_unread_answer_holds_the_model_back() -> None:
    provider = FauxProvider(token_size_min=1, token_size_max=1)
    provider.set_responses(["x" * 100_000])
    seen: list[str] = []
    provider.subscribe_chunk(lambda event, model: seen.append(event.type))
    async with await provider.stream(MODEL, []) as stream:
        await anyio.wait_all_tasks_blocked()
        assert 1 <= len(seen) <= 128
        assert (await stream.__anext__()).type == "start"


@given(
    texts=st.lists(st.text(max_size=60), max_size=4),
    arguments=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=20), max_size=4),
    low=st.integers(1, 5),
    more=st.integers(0, 5),
    seed=st.integers(0, 3),
)
async def test_any_message_arrives_as_it_was_written(
    texts: list[str], arguments: dict[str, Any], low: int, more: int, seed: int
) -> None:
    blocks = [*[faux_text(text) for text in texts], faux_tool_call("t", arguments, id="c1")]
    events, message = await events_of(blocks, token_size_min=low, token_size_max=low + more, seed=seed)
    assert message.content == blocks
    assert "".join(event.delta or "" for event in events if event.type == "text_delta") == "".join(texts)
