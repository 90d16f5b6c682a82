"""What was read of an event is not what its provider said: reading changes nothing, wherever the event goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cubepi_anyio import Agent, AgentEvent, AssistantMessage, BaseProvider, Model, UserMessage
from cubepi_anyio.errors import ProviderOverloaded
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.providers.base import StreamingModel
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryModel
from cubepi_anyio.stream import MessageBuilder, MessageDraft, MessageStream
from cubepi_anyio.types import ImageContent, OpaqueContent, TextContent, ThinkingContent

pytestmark = pytest.mark.anyio

Read = Callable[[StreamEvent], object]


def leave_alone(event: StreamEvent) -> None:
    """Read nothing of it."""


def look(event: StreamEvent) -> None:
    """Read all of it that is built when it is read."""
    assert event.partial is not None
    event.preview_arguments()


async def every_kind(stream: MessageStream) -> None:
    """Say something in a block of each kind."""
    draft = MessageDraft(stream, Model(id="m", provider="p"))
    await draft.thinking("hm")
    await draft.text("one ")
    await draft.text("two")
    call = await draft.tool_call("c", "tool")
    await draft.arguments(call, '{"a": ')
    await draft.arguments(call, "1}")
    await draft.end_block(call)
    draft.writer.block(ImageContent(source="aGk=", media_type="image/png"))
    draft.writer.block(OpaqueContent(kind="p", data={"x": 1}))
    await draft.text("three")


async def succeed(stream: MessageStream) -> None:
    await every_kind(stream)
    stream.push(StreamEvent("done", stop_reason="tool_use"))


async def fail(stream: MessageStream) -> None:
    await every_kind(stream)
    stream.fail(ProviderOverloaded("busy"))


async def give_messages(stream: MessageStream) -> None:
    """As a provider does that builds its messages itself."""
    for text in ("one ", "one two"):
        given = AssistantMessage(content=[TextContent(text=text)])
        stream.push(StreamEvent("text_delta", 0, text[-4:], given))
    stream.push(StreamEvent("done", partial=AssistantMessage(content=[TextContent(text="one two")])))


SCRIPTS = [succeed, fail, give_messages]


class Wrapping(BaseProvider):
    """Passes on what a script says, and says something of its own before the first word of it."""

    def __init__(self, script: Callable[[MessageStream], Any], read: Read, *, adds: bool) -> None:
        super().__init__(provider_id="wrapping")
        self.script, self.read, self.adds = script, read, adds

    async def stream(self, model: Model, messages: Sequence[Any], **_: Any) -> MessageStream:
        async def produce(outer: MessageStream) -> None:
            async with MessageStream(self.script) as inner:
                async for event in inner:
                    self.read(event)
                    await outer.send(event)
                    self.read(event)
                    if self.adds and event.type == "start":
                        outer.push(StreamEvent("text_start", 0, block=TextContent()))
                        outer.push(StreamEvent("text_delta", 0, "of its own "))

        return MessageStream(produce)


def told(event: StreamEvent) -> tuple[Any, ...]:
    return event.type, event.content_index, event.delta, event.partial, event.preview_arguments()


async def heard_of(model: StreamingModel) -> tuple[list[Any], AssistantMessage, AssistantMessage]:
    """What each event of an answer tells, the message, and what of it may be kept when it is broken."""
    async with await model.stream([UserMessage(content=[TextContent(text="hi")])]) as stream:
        events = [event async for event in stream]
        return [told(event) for event in events], await stream.result(), stream.broken_message()


COMPOSED: dict[str, Callable[[StreamingModel], StreamingModel]] = {
    "alone": lambda model: model,
    "retry": lambda model: RetryModel(model),
    "fallback": lambda model: FallbackModel([model]),
    "race": lambda model: RaceModel([model]),
    "all": lambda model: RetryModel(FallbackModel([RaceModel([model])])),
}


@pytest.mark.parametrize("adds", [False, True], ids=["passes on", "adds its own"])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("compose", COMPOSED.values(), ids=COMPOSED)
async def test_an_event_that_was_read_before_it_is_passed_on_gives_the_same(
    compose: Callable[[StreamingModel], StreamingModel], script: Any, adds: bool
) -> None:
    read = await heard_of(compose(Wrapping(script, look, adds=adds).model("m")))
    unread = await heard_of(compose(Wrapping(script, leave_alone, adds=adds).model("m")))
    assert read == unread
    types = {event[0] for event in read[0]}
    if script is not give_messages:
        assert {f"{kind}_start" for kind in ("text", "thinking", "toolcall", "image", "opaque")} <= types
        assert read[1].text.startswith("of its own ") is adds
    assert read[1].error_type == ("ProviderOverloaded" if script is fail else None)


async def test_an_event_in_two_streams_tells_of_its_own_stream_in_each() -> None:
    first, second = MessageStream(), MessageStream()
    second.push(StreamEvent("text_delta", 0, "second: "))
    event = StreamEvent("text_delta", 0, "word")
    first.push(event)
    assert event.partial is not None
    assert event.partial.text == "word"
    second.push(event)
    assert event.partial.text == "word"
    await anext(second)
    passed_on = await anext(second)
    assert passed_on.partial is not None
    assert passed_on.partial.text == second.message.text == "second: word"
    assert (await anext(first)).partial == first.message == event.partial


async def test_the_provider_has_said_nothing_where_somebody_has_read() -> None:
    builder = MessageBuilder()
    event = StreamEvent("text_delta", 0, "word")
    builder.apply(event)
    assert event.partial is not None
    assert event.partial is event.partial, "readers of one event share what is built"
    assert event.given is None
    other = MessageBuilder(AssistantMessage(content=[TextContent(text="before ")]), open_blocks=[0])
    other.apply(event)
    assert event.partial.text == "before word"


async def test_an_event_pushed_twice_counts_twice() -> None:
    stream = MessageStream()
    event = StreamEvent("text_delta", 0, "ha")
    for _ in range(2):
        stream.push(event)
        look(event)
    stream.push(StreamEvent("done"))
    assert [told(event)[3].text async for event in stream] == ["ha", "haha", "haha"]
    assert (await stream.result()).text == "haha"


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_listener_that_reads_every_snapshot_changes_nothing_of_a_run(script: Any) -> None:
    def listen(event: AgentEvent) -> None:
        if event.type == "message_update":
            look(event.stream_event)

    answers: list[AssistantMessage] = []
    for listener in (listen, lambda event: None):
        agent = Agent(model=Wrapping(script, leave_alone, adds=False).model("m"))
        agent.subscribe(listener)
        result = await agent.prompt("hi")
        answer = next(message for message in result.messages if isinstance(message, AssistantMessage))
        answers.append(answer.model_copy(update={"id": None, "timestamp": None, "run_id": None}))
    assert answers[0] == answers[1]
    assert any(isinstance(block, ThinkingContent | TextContent) for block in answers[0].content)
