"""Responses are taken one for each call, and each call leaves a record."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.errors import FauxQueueEmpty, RateLimited
from cubepi_anyio.providers import FauxProvider, FauxResponse, faux_assistant_message, faux_text, faux_tool_call
from cubepi_anyio.providers.base import BoundModel, StreamOptions
from cubepi_anyio.types import AssistantMessage, Message, Model, TextContent, ToolDefinition, UserMessage

pytestmark = pytest.mark.anyio


def said(text: str) -> list[Message]:
    return [UserMessage(content=[TextContent(text=text)])]


def provider_of(*responses: Any) -> tuple[FauxProvider, BoundModel]:
    provider = FauxProvider()
    provider.set_responses(responses)
    return provider, provider.model("m")


async def test_each_call_takes_the_next_response() -> None:
    provider, model = provider_of("one", faux_assistant_message("two"))
    provider.append_responses([FauxResponse("three")])
    assert provider.pending_response_count == 3
    assert [(await model.generate(said("hi"))).text for _ in range(3)] == ["one", "two", "three"]
    assert (provider.pending_response_count, provider.call_count) == (0, 3)


async def test_setting_responses_drops_those_that_were_left() -> None:
    provider, model = provider_of("old", "older")
    provider.set_responses(["new"])
    assert (await model.generate(said("hi"))).text == "new"
    assert provider.pending_response_count == 0


async def test_a_response_is_taken_at_the_call_not_when_the_stream_is_entered() -> None:
    provider, model = provider_of("one", "two")
    first = await model.stream(said("hi"))
    second = await model.stream(said("hi"))
    assert provider.pending_response_count == 0
    assert (await second.result()).text == "two"
    assert (await first.result()).text == "one"


async def test_an_empty_queue_ends_the_stream_with_an_error_that_says_so() -> None:
    provider, model = provider_of("one")
    await model.generate(said("hi"))
    stream = await model.stream(said("again"))
    message = await stream.result()
    assert isinstance(stream.error, FauxQueueEmpty)
    assert stream.error.call_count == 2
    assert (message.stop_reason, message.error_type) == ("error", "FauxQueueEmpty")
    assert "set_responses()" in (message.error_message or "")
    assert provider.call_count == 2


async def test_a_model_made_by_hand_works_like_a_bound_one() -> None:
    provider, _ = provider_of("hello")
    message = await (await provider.stream(Model(id="test", provider="faux"), said("hi"))).result()
    assert (message.text, message.model_id, message.provider_id) == ("hello", "test", "faux")


async def test_all_ways_to_give_an_answer_give_the_same_answer() -> None:
    ways = ["Hi", faux_text("Hi"), ["Hi"], (faux_text("Hi"),), faux_assistant_message("Hi"), FauxResponse(["Hi"])]
    _, model = provider_of(*ways)
    answers = [await model.generate(said("hi")) for _ in ways]
    assert [answer.content for answer in answers] == [[TextContent(text="Hi")]] * len(ways)


async def test_a_factory_is_called_with_as_much_as_it_takes() -> None:
    seen: list[tuple[Any, ...]] = []

    def none() -> str:
        seen.append(())
        return "none"

    def one(messages: Any) -> str:
        seen.append((messages,))
        return "one"

    def two(messages: Any, model: Any) -> AssistantMessage:
        seen.append((messages, model))
        return faux_assistant_message("two")

    async def four(messages: Any, model: Any, system_prompt: Any, tools: Any) -> FauxResponse:
        await checkpoint()
        seen.append((messages, model, system_prompt, tools))
        return FauxResponse("four")

    async def everything(*given: Any) -> list[TextContent]:
        await checkpoint()
        seen.append(given)
        return [faux_text("everything")]

    prompt, tools = said("hi"), [ToolDefinition(name="add")]
    provider, model = provider_of(none, one, two, four, everything)
    texts = [(await model.generate(prompt, system_prompt="Be brief.", tools=tools)).text for _ in range(5)]
    assert texts == ["none", "one", "two", "four", "everything"]
    whole = (prompt, model.spec, "Be brief.", tools)
    assert seen == [(), whole[:1], whole[:2], whole, whole]
    assert provider.call_count == 5


async def test_parameters_with_a_default_belong_to_the_factory() -> None:
    def numbered(messages: list[UserMessage], number: int) -> str:
        return f"{number}: {messages[0].text}"

    _, model = provider_of(*[partial(numbered, number=number) for number in range(3)])
    assert [(await model.generate(said("hi"))).text for _ in range(3)] == ["0: hi", "1: hi", "2: hi"]


async def test_a_factory_that_raises_fails_the_answer_with_its_own_exception() -> None:
    broken = LookupError("no such line")

    def factory(messages: Any) -> str:
        raise broken

    _, model = provider_of(factory, "next")
    stream = await model.stream(said("hi"))
    message = await stream.result()
    assert stream.error is broken
    assert (message.stop_reason, message.error_message) == ("error", "no such line")
    assert (await model.generate(said("hi"))).text == "next"


async def test_a_factory_that_returns_nonsense_fails_the_answer() -> None:
    def three(messages: Any) -> Any:
        return 3

    _, model = provider_of(three)
    stream = await model.stream(said("hi"))
    await stream.result()
    assert isinstance(stream.error, TypeError)
    assert "int" in str(stream.error)


async def test_an_exception_in_the_queue_is_a_refused_request() -> None:
    refused = RateLimited("too many", status_code=429, retry_after_seconds=3)
    _, model = provider_of(refused, "served")
    stream = await model.stream(said("hi"))
    async with stream:
        assert [event.type async for event in stream] == ["error"]
    assert stream.error is refused
    assert (await model.generate(said("hi"))).text == "served"


async def test_a_call_is_recorded_as_it_was_asked() -> None:
    provider, model = provider_of("one", "two")
    messages, tools, options = said("hi"), [ToolDefinition(name="add")], StreamOptions(temperature=0.5)
    await model.generate(messages, system_prompt="Be brief.", tools=tools, tool_choice="required", options=options)
    messages.append(faux_assistant_message("one"))
    await model.generate(messages)
    first, second = provider.calls
    assert first.messages == said("hi")
    assert first.messages[0] is messages[0]
    assert (first.system_prompt, first.tools, first.tool_choice) == ("Be brief.", tools, "required")
    assert (first.options, first.model) == (options, model.spec)
    assert second.messages == messages
    assert (second.system_prompt, second.tools, second.tool_choice) == ("", [], None)


async def test_a_queued_message_is_not_changed_and_may_be_queued_again() -> None:
    message = faux_assistant_message(["Hi", faux_tool_call("add", {"numbers": [1]}, id="c1")])
    before = message.model_copy(deep=True)
    _, model = provider_of(message, message)
    first = await model.generate(said("hi"))
    first.tool_calls[0].arguments["numbers"].append(2)
    second = await model.generate(said("hi"))
    assert second.tool_calls[0].arguments == {"numbers": [1]}
    assert message == before


async def test_calls_at_the_same_time_each_get_a_whole_answer() -> None:
    texts = [f"answer {number} " * 50 for number in range(8)]
    _, model = provider_of(*texts)
    answers: list[str] = []

    async def ask() -> None:
        answers.append((await model.generate(said("hi"))).text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in texts:
                tasks.start_soon(ask)
    assert sorted(answers) == texts


def test_one_provider_serves_one_event_loop_after_another() -> None:
    provider, model = provider_of("one", FauxResponse("two", stall_after_deltas=0), "three")

    async def leave_in_a_stall() -> None:
        async with await model.stream(said("hi")):
            await provider.wait_stalled()

    async def ask() -> str:
        with anyio.fail_after(5):
            return (await model.generate(said("hi"))).text

    other = "trio" if find_spec("trio") is not None else "asyncio"
    assert anyio.run(ask, backend="asyncio") == "one"
    anyio.run(leave_in_a_stall, backend=other)
    assert provider.stalled_count == 0
    assert anyio.run(ask, backend="asyncio") == "three"
