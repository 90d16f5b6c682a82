"""Who watches is told of each request, each event, and once how it ended."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.errors import IncompleteStream, ProviderError
from cubepi_anyio.providers import FauxProvider, FauxResponse, faux_assistant_message, faux_thinking, faux_tool_call
from cubepi_anyio.providers.base import ProviderResponse, StreamOptions
from cubepi_anyio.types import AssistantMessage, Message, Model, TextContent, ToolDefinition, UserMessage

pytestmark = pytest.mark.anyio

MODEL = Model(id="m", provider="faux")
Ending = tuple[AssistantMessage | None, Exception | None]


def said(text: str) -> list[Message]:
    return [UserMessage(content=[TextContent(text=text)])]


def watched(*responses: Any) -> tuple[FauxProvider, list[Ending]]:
    provider = FauxProvider(token_size_min=4, token_size_max=4)
    provider.set_responses(responses)
    endings: list[Ending] = []

    async def ended(message: AssistantMessage | None, model: Model, error: Exception | None) -> None:
        await checkpoint()
        assert model == MODEL
        endings.append((message, error))

    provider.subscribe_response(ended)
    return provider, endings


async def test_a_request_observer_sees_what_is_sent() -> None:
    provider, _ = watched("Hi")
    payloads: list[dict[str, Any]] = []
    provider.subscribe_request(lambda payload, model: payloads.append(payload))
    tools = [ToolDefinition(name="add")]
    await provider.generate(MODEL, said("hi"), system_prompt="Be brief.", tools=tools)
    assert payloads == [{"model": "m", "messages": said("hi"), "system_prompt": "Be brief.", "tools": tools}]


async def test_the_payload_hook_can_replace_what_is_sent() -> None:
    async def shorten(payload: dict[str, Any], model: Model) -> dict[str, Any]:
        await checkpoint()
        return {**payload, "messages": payload["messages"][-1:]}

    def echo(messages: list[Message]) -> str:
        return " ".join(message.content[0].text for message in messages if isinstance(message, UserMessage))  # type: ignore[union-attr]

    provider, _ = watched(echo)
    messages = [*said("one"), *said("two")]
    message = await provider.generate(MODEL, messages, options=StreamOptions(on_payload=shorten))
    assert message.text == "two"
    assert message.usage is not None
    assert message.usage.context_tokens == 2
    call = provider.calls[0]
    assert call.messages == messages
    assert call.payload is not None
    assert call.payload["messages"] == said("two")


async def test_the_response_hook_sees_the_head_of_an_answer_and_none_of_a_refused_one() -> None:
    heads: list[ProviderResponse] = []
    options = StreamOptions(on_response=lambda response, model: heads.append(response))
    provider, _ = watched("Hi", ProviderError("down"), FauxResponse("Hi", fail_with=OSError(), fail_after_deltas=0))
    for _ in range(3):
        await provider.generate(MODEL, said("hi"), options=options)
    assert heads == [ProviderResponse(status=200)] * 2


async def test_a_hook_that_raises_fails_the_answer_with_its_own_exception() -> None:
    broken = RuntimeError("bad hook")

    def refuse(payload: dict[str, Any], model: Model) -> None:
        raise broken

    provider, endings = watched("Hi")
    stream = await provider.stream(MODEL, said("hi"), options=StreamOptions(on_payload=refuse))
    await stream.result()
    assert stream.error is broken
    assert [error for _, error in endings] == [broken]


async def test_chunk_observers_see_the_events_the_consumer_gets() -> None:
    provider, _ = watched(["Hello there", faux_tool_call("add", {"a": 1})])
    seen: list[Any] = []
    provider.subscribe_chunk(lambda event, model: seen.append(event))
    async with await provider.stream(MODEL, []) as stream:
        events = [event async for event in stream]
    assert len(seen) == len(events)
    assert all(one is other for one, other in zip(seen, events, strict=True))


CALL = faux_tool_call("add", {"a": 1}, id="c1")
FAILED = ProviderError("down")


@pytest.mark.parametrize(
    "response",
    [
        "Hello",
        ["Hello", faux_thinking("Hm", "sig"), CALL],
        faux_assistant_message("Hel", stop_reason="length"),
        faux_assistant_message(["Hel", faux_thinking("Hm"), CALL], stop_reason="error", error_message="broke"),
        faux_assistant_message("Hel", stop_reason="aborted"),
        FauxResponse(CALL, garble_arguments=True),
        FauxResponse(["Hello", CALL], forget_result=True),
        FauxResponse(["Hello", CALL], fail_with=FAILED, fail_after_deltas=1),
        FauxResponse([faux_thinking("Hmmm", "sig"), "x", CALL], fail_with=FAILED, fail_after_deltas=3),
        FauxResponse(faux_thinking("Hmmmmmm", "sig"), fail_with=FAILED, fail_after_deltas=1),
    ],
)
async def test_a_response_observer_is_told_once_and_the_same_as_the_consumer(response: Any) -> None:
    provider, endings = watched(response)
    async with await provider.stream(MODEL, said("hi")) as stream:
        message = await stream.result()
        assert endings == [(message, stream.error)]
    assert len(endings) == 1


def divide_by_zero() -> str:
    return str(1 / 0)


@pytest.mark.parametrize("response", [FAILED, divide_by_zero])
async def test_a_response_observer_is_told_of_a_call_that_never_began(response: Any) -> None:
    provider, endings = watched(response)
    stream = await provider.stream(MODEL, said("hi"))
    await stream.result()
    assert [error for _, error in endings] == [stream.error]


async def test_a_response_observer_is_told_of_an_answer_that_just_ended() -> None:
    provider, endings = watched(FauxResponse("Hello", end_after_deltas=1))
    await provider.generate(MODEL, said("hi"))
    ((message, error),) = endings
    assert message is not None
    assert (message.text, message.stop_reason) == ("Hell", "error")
    assert isinstance(error, IncompleteStream)


async def test_a_response_observer_is_told_of_a_cancelled_call_although_it_waits_itself() -> None:
    provider, endings = watched(FauxResponse("Hello", stall_after_deltas=1))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.generate, MODEL, said("hi"))
            await provider.wait_stalled()
            tasks.cancel_scope.cancel()
    ((message, error),) = endings
    assert message is not None
    assert (message.text, message.stop_reason, error) == ("Hell", "aborted", None)


@pytest.mark.virtual_clock
async def test_a_response_observer_that_never_returns_cannot_hold_a_cancelled_call() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("Hello", stall_after_deltas=1)])

    async def never(message: AssistantMessage | None, model: Model, error: Exception | None) -> None:
        await anyio.sleep_forever()

    provider.subscribe_response(never)
    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.generate, MODEL, said("hi"))
        await provider.wait_stalled()
        tasks.cancel_scope.cancel()
    assert anyio.current_time() - started == pytest.approx(1)


async def test_a_stream_that_is_never_entered_sends_nothing_and_tells_nobody() -> None:
    provider, endings = watched("Hi")
    requests: list[Any] = []
    provider.subscribe_request(lambda payload, model: requests.append(payload))
    await provider.stream(MODEL, said("hi"))
    assert (requests, endings, provider.calls[0].payload) == ([], [], None)
