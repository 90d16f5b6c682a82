"""Every way a model can fail, at the place the script says."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import IncompleteStream, ProviderError, ProviderOverloaded, ProviderTimeout, RateLimited
from cubepi_anyio.providers import FauxProvider, FauxResponse, faux_thinking, faux_tool_call
from cubepi_anyio.stream import MessageStream
from cubepi_anyio.types import AssistantMessage, Message, Model, TextContent, Usage

pytestmark = pytest.mark.anyio

MODEL = Model(id="m", provider="faux")
NOTHING: list[Message] = []
TEXT = "one two three four"  # five deltas of four characters, the last of two


def provider_of(*responses: Any) -> FauxProvider:
    provider = FauxProvider(token_size_min=4, token_size_max=4)
    provider.set_responses(responses)
    return provider


async def opened(*responses: Any) -> tuple[FauxProvider, MessageStream]:
    provider = provider_of(*responses)
    return provider, await provider.stream(MODEL, [])


async def played(response: Any) -> tuple[list[str], AssistantMessage, Exception | None]:
    """The types of the events, the result, and the typed error."""
    _, stream = await opened(response)
    with anyio.fail_after(5):
        async with stream:
            types = [event.type async for event in stream]
            return types, await stream.result(), stream.error


@pytest.mark.parametrize("error", [RateLimited("slow down"), ProviderOverloaded("busy"), ValueError("not even ours")])
async def test_a_failure_without_a_place_comes_before_anything_is_sent(error: Exception) -> None:
    types, message, found = await played(FauxResponse(TEXT, fail_with=error))
    assert types == ["error"]
    assert found is error
    assert (message.content, message.stop_reason, message.error_type) == ([], "error", type(error).__name__)


@pytest.mark.parametrize("deltas", range(6))
async def test_a_failure_comes_after_so_many_deltas_and_what_was_sent_is_kept(deltas: int) -> None:
    error = ProviderTimeout("silence")
    types, message, found = await played(FauxResponse(TEXT, fail_with=error, fail_after_deltas=deltas))
    opening = ["start", "text_start"] if deltas else ["start"]
    assert types == [*opening, *["text_delta"] * min(deltas, 5), "error"]
    assert found is error
    assert message.text == TEXT[: deltas * 4]
    assert message.stop_reason == "error"


async def test_a_place_beyond_the_last_delta_is_before_the_terminal_event() -> None:
    types, message, _ = await played(FauxResponse("four", fail_with=ProviderError("late"), fail_after_deltas=1000))
    assert types == ["start", "text_start", "text_delta", "text_end", "error"]
    assert message.text == "four"


async def test_deltas_are_counted_over_all_blocks() -> None:
    blocks = [faux_thinking("Hmmm", "sig"), "four", faux_tool_call("add", {"a": 1}, id="c1")]
    response = FauxResponse(blocks, fail_with=ProviderError("cut"), fail_after_deltas=3)
    types, message, _ = await played(response)
    assert types[-3:] == ["toolcall_start", "toolcall_delta", "error"]
    assert message.content == [faux_thinking("Hmmm", "sig"), TextContent(text="four")]


async def test_a_call_that_was_whole_survives_a_later_failure_and_one_that_was_cut_does_not() -> None:
    calls = [faux_tool_call("add", {}, id="c1"), faux_tool_call("add", {"a": 1}, id="c2")]
    _, message, _ = await played(FauxResponse(calls, fail_with=ProviderError("cut"), fail_after_deltas=2))
    assert message.tool_calls == calls[:1]


async def test_a_failed_answer_bills_what_was_sent_and_a_refused_one_nothing() -> None:
    error = ProviderError("cut")
    _, message, _ = await played(FauxResponse(TEXT, fail_with=error, fail_after_deltas=2))
    assert message.usage == Usage(output_tokens=2)
    _, message, _ = await played(FauxResponse(TEXT, fail_with=error))
    assert message.usage == Usage()


@pytest.mark.parametrize("deltas", [0, 1, 3, 1000])
async def test_an_answer_that_ends_without_a_terminal_event_is_an_incomplete_stream(deltas: int) -> None:
    types, message, error = await played(FauxResponse(TEXT, end_after_deltas=deltas))
    assert types.count("text_delta") == min(deltas, 5)
    assert types[-1] == "error"
    assert "done" not in types
    assert isinstance(error, IncompleteStream)
    assert (message.text, message.stop_reason) == (TEXT[: deltas * 4], "error")


async def test_a_forgotten_result_is_the_message_that_was_sent() -> None:
    response = FauxResponse(["Hello", faux_tool_call("add", {"a": 1}, id="c1")], forget_result=True)
    types, message, error = await played(response)
    assert types[-1] == "done"
    assert error is None
    assert (message.text, message.stop_reason) == ("Hello", "tool_use")
    assert message.tool_calls == [faux_tool_call("add", {"a": 1}, id="c1")]


PLACES: list[tuple[dict[str, Any], list[str]]] = [
    ({"stall_before_start": True}, []),
    ({"stall_after_deltas": 0}, ["start"]),
    ({"stall_after_deltas": 2}, ["start", "text_start", "text_delta", "text_delta"]),
    ({"stall_after_deltas": 99}, ["start", "text_start", *["text_delta"] * 5, "text_end"]),
]


@pytest.mark.parametrize(("place", "sent"), PLACES)
async def test_a_stall_comes_where_it_was_put_and_waits(place: dict[str, Any], sent: list[str]) -> None:
    provider, stream = await opened(FauxResponse(TEXT, **place))
    with anyio.fail_after(5):
        async with stream:
            await provider.wait_stalled()
            assert provider.stalled_count == 1
            assert [(await stream.__anext__()).type for _ in sent] == sent
            await anyio.wait_all_tasks_blocked()
            assert provider.stalled_count == 1
    assert provider.stalled_count == 0


@pytest.mark.parametrize(("place", "sent"), PLACES)
async def test_a_released_stall_goes_on_to_the_whole_answer(place: dict[str, Any], sent: list[str]) -> None:
    provider, stream = await opened(FauxResponse(TEXT, **place))
    with anyio.fail_after(5):
        async with stream:
            await provider.wait_stalled()
            provider.release_stalls()
            assert provider.stalled_count == 0
            types = [event.type async for event in stream]
            message = await stream.result()
    assert types[: len(sent)] == sent
    assert (message.text, message.stop_reason) == (TEXT, "stop")


async def test_a_stall_and_a_failure_at_one_place_happen_in_this_order() -> None:
    response = FauxResponse(TEXT, stall_after_deltas=1, fail_with=ProviderError("down"), fail_after_deltas=1)
    provider, stream = await opened(response)
    with anyio.fail_after(5):
        async with stream:
            await provider.wait_stalled()
            provider.release_stalls()
            message = await stream.result()
    assert (message.text, message.error_message) == (TEXT[:4], "down")


async def test_several_stalls_can_be_waited_for_and_are_released_together() -> None:
    provider = provider_of(*[FauxResponse(TEXT, stall_after_deltas=1)] * 3)
    texts: list[str] = []

    async def ask() -> None:
        texts.append((await provider.generate(MODEL, [])).text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await provider.wait_stalled(3)
            assert texts == []
            provider.release_stalls()
    assert texts == [TEXT] * 3


async def test_waiting_for_a_stall_can_be_given_up() -> None:
    provider = provider_of(FauxResponse(TEXT, stall_after_deltas=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.wait_stalled)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        async with await provider.stream(MODEL, []):
            await provider.wait_stalled()
            assert provider.stalled_count == 1


LEAVES: list[Callable[[], Any]] = [
    lambda: FauxResponse(TEXT, stall_before_start=True),
    lambda: FauxResponse(TEXT, stall_after_deltas=3),
    lambda: anyio.sleep_forever,
]


@pytest.mark.parametrize("make", LEAVES, ids=["before start", "in the text", "in the factory"])
async def test_a_cancelled_call_leaves_the_provider_usable(make: Callable[[], Any]) -> None:
    provider = provider_of(make(), "next")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.generate, MODEL, NOTHING)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert provider.stalled_count == 0
        assert (await provider.generate(MODEL, [])).text == "next"


async def test_leaving_a_stalled_stream_keeps_what_was_read() -> None:
    provider, stream = await opened(FauxResponse(TEXT, stall_after_deltas=2))
    with anyio.fail_after(5):
        async with stream:
            await provider.wait_stalled()
            for _ in range(4):
                await stream.__anext__()
        message = await stream.result()
    assert (message.text, message.stop_reason) == (TEXT[:8], "aborted")


@pytest.mark.parametrize("events", range(9))
async def test_a_stream_left_at_any_event_leaves_the_next_answer_whole(events: int) -> None:
    provider = provider_of(TEXT, TEXT)
    with anyio.fail_after(5):
        async with await provider.stream(MODEL, []) as stream:
            for _ in range(events):
                await stream.__anext__()
        message = await provider.generate(MODEL, [])
    assert (message.text, message.stop_reason) == (TEXT, "stop")


async def test_a_cancelled_call_has_used_its_response_and_is_recorded() -> None:
    provider = provider_of("one", "two")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await provider.stream(MODEL, [])
    assert scope.cancelled_caught
    assert (provider.call_count, provider.pending_response_count) == (1, 1)


async def test_one_error_may_fail_many_calls_and_gathers_nothing_of_them() -> None:
    error = RateLimited("slow down")
    provider = provider_of(*[FauxResponse(TEXT, fail_with=error, fail_after_deltas=1)] * 3)
    depths: list[int] = []
    for _ in range(3):
        await provider.generate(MODEL, [])
        depths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(depths)) == 1
