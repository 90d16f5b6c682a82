"""The custom provider of the manual, as it stands there: whole messages in its events, and its own result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.concurrency import AbortSource
from cubepi_anyio.providers.base import (
    AssistantMessage,
    BoundModel,
    Message,
    MessageStream,
    Model,
    StreamEvent,
    StreamOptions,
    TextContent,
    ToolCall,
    Usage,
    UserMessage,
)
from tests.seeds.minimal_provider import asked, provider_on

pytestmark = pytest.mark.anyio

MODEL = Model(id="m", provider="mine")
ASKED: list[Message] = [UserMessage(content=[TextContent(text="hi")])]


class Backend:
    """Stands in for the model: gives its tokens, waiting for ever before the one at ``stalls_at``."""

    def __init__(self, *tokens: str, stalls_at: int = -1, fails_after: int = -1) -> None:
        self.tokens, self.stalls_at, self.fails_after = tokens, stalls_at, fails_after

    def __call__(self, signal: Any) -> AsyncIterator[str]:
        self._numbers = iter(range(len(self.tokens)))
        return self

    def __aiter__(self) -> Backend:
        return self

    async def __anext__(self) -> str:
        # A consumer that has something to read reads it first: a network is slower than the event loop.
        await anyio.wait_all_tasks_blocked()
        number = next(self._numbers, None)
        if number is None:
            raise StopAsyncIteration
        if number == self.stalls_at:
            await anyio.sleep_forever()
        if number == self.fails_after:
            raise ConnectionError("backend went away")
        return self.tokens[number]


async def read(stream: MessageStream) -> tuple[list[StreamEvent], AssistantMessage]:
    async with stream:
        return [event async for event in stream], await stream.result()


async def test_the_seeds_provider_streams_and_sets_its_result() -> None:
    stream = await provider_on(Backend("Hel", "lo", "!")).stream(MODEL, ASKED)
    await anyio.wait_all_tasks_blocked()
    assert asked == []
    events, message = await read(stream)
    assert asked == [(ASKED, "m")]
    assert [(event.type, event.delta) for event in events] == [
        ("start", None),
        ("text_delta", "Hel"),
        ("text_delta", "lo"),
        ("text_delta", "!"),
        ("done", None),
    ]
    assert [event.partial.text for event in events if event.partial] == ["", "Hel", "Hello", "Hello!", "Hello!"]
    assert (message.text, message.stop_reason, message.provider_id, message.model_id) == ("Hello!", "stop", "mine", "m")
    assert message.usage == Usage()


async def test_the_seeds_provider_answers_generate() -> None:
    message = await BoundModel(provider_on(Backend("a", "b")), MODEL).generate(ASKED)
    assert message.text == "ab"


async def test_the_seeds_provider_aborted_by_its_signal_keeps_its_text() -> None:
    signal = AbortSource()
    stream = await provider_on(Backend("a", "b", "c")).stream(MODEL, ASKED, options=StreamOptions(signal=signal))
    async with stream:
        async for event in stream:
            if event.delta == "a":
                signal.set("enough")
        message = await stream.result()
    assert (message.text, message.stop_reason) == ("a", "aborted")


async def test_the_seeds_provider_failing_keeps_what_had_arrived() -> None:
    stream = await provider_on(Backend("a", "b", "c", fails_after=2)).stream(MODEL, ASKED)
    events, message = await read(stream)
    assert events[-1].type == "error"
    assert (message.text, message.stop_reason, message.error_message) == ("ab", "error", "backend went away")


async def test_leaving_the_seeds_provider_while_it_stalls_does_not_wait_for_it() -> None:
    stream = await provider_on(Backend("a", "b", stalls_at=1)).stream(MODEL, ASKED)
    with anyio.fail_after(5):
        async with stream:
            async for event in stream:
                if event.delta == "a":
                    break
    message = await stream.result()
    assert (message.text, message.stop_reason) == ("a", "aborted")


class ToolProvider:
    """The variant with a call: blocks appended to ``partial.content``, arguments parsed at the end."""

    def __init__(self, *, sends_partials: bool, stops_before: str = "") -> None:
        self.sends_partials, self.stops_before = sends_partials, stops_before

    async def stream(self, model: Model, messages: list[Message], **_: Any) -> MessageStream:
        ms = MessageStream()

        async def _produce() -> None:
            partial = AssistantMessage(content=[TextContent(text="calling")], usage=Usage(), model_id=model.id)

            def snapshot() -> AssistantMessage | None:
                return partial.model_copy(deep=True) if self.sends_partials else None

            ms.push(StreamEvent(type="start", partial=AssistantMessage(usage=Usage(), model_id=model.id)))
            ms.push(StreamEvent(type="text_delta", delta="calling", partial=snapshot()))
            tc = ToolCall(id="c1", name="search", arguments={})
            partial.content.append(tc)
            ms.push(
                StreamEvent(
                    type="toolcall_start",
                    content_index=len(partial.content) - 1,
                    partial=partial.model_copy(deep=True),
                )
            )
            for chunk in ('{"query": ', '"python"}'):
                ms.push(StreamEvent(type="toolcall_delta", delta=chunk, partial=snapshot()))
                await checkpoint()
            if self.stops_before == "toolcall_end":
                raise ConnectionError("cut")
            tc.arguments = {"query": "python"}
            ms.push(StreamEvent(type="toolcall_end", content_index=1, partial=snapshot()))
            ms.push(StreamEvent(type="done"))
            if self.stops_before != "set_result":
                ms.set_result(partial)

        ms.attach_task(_produce)
        return ms


@pytest.mark.parametrize("sends_partials", [True, False])
@pytest.mark.parametrize("stops_before", ["", "set_result"])
async def test_a_call_of_the_seeds_provider_arrives_whole(sends_partials: bool, stops_before: str) -> None:
    provider = ToolProvider(sends_partials=sends_partials, stops_before=stops_before)
    events, message = await read(await provider.stream(MODEL, ASKED))
    assert [event.type for event in events] == [
        "start",
        "text_delta",
        "toolcall_start",
        "toolcall_delta",
        "toolcall_delta",
        "toolcall_end",
        "done",
    ]
    started = events[2].partial
    assert started is not None
    assert started.tool_calls == [ToolCall(id="c1", name="search")]
    assert message.content == [
        TextContent(text="calling"),
        ToolCall(id="c1", name="search", arguments={"query": "python"}),
    ]


@pytest.mark.parametrize("sends_partials", [True, False])
async def test_a_cut_call_of_the_seeds_provider_is_dropped(sends_partials: bool) -> None:
    provider = ToolProvider(sends_partials=sends_partials, stops_before="toolcall_end")
    _, message = await read(await provider.stream(MODEL, ASKED))
    assert message.content == [TextContent(text="calling")]
    assert (message.stop_reason, message.error_message) == ("error", "cut")


async def test_a_provider_without_starts_ends_indices_and_partials_is_well_formed_enough() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("thinking_delta", delta="h"))
        await stream.send(StreamEvent("thinking_delta", delta="m"))
        await stream.send(StreamEvent("text_delta", delta="Hel"))
        await stream.send(StreamEvent("text_delta", delta="lo"))
        await stream.send(StreamEvent("done"))

    events, message = await read(MessageStream(produce))
    assert message.text == "Hello"
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert [event.content_index for event in events] == [0, 0, 1, 1, None]
