"""An agent against a server that says exactly what it is told to, in the three formats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentEvent, AgentTool, ThinkingContent, tool
from cubepi_anyio.errors import (
    IncompleteStream,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderUnavailable,
    RateLimited,
)
from tests.support.agents import transcript_faults

from .aimock_server import AIMock
from .vendors import AnyProvider, Vendor

pytestmark = pytest.mark.anyio

TEXT = "It is sunny in both, and it will stay so."
ODD_ARGUMENTS = {"city": 'a "b" \\ {c} \n é 漢 \U0001f600', "days": [1, 2.5, None, True, {"deep": []}]}


def calls_of(*cities: str) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{number}", "name": "get_weather", "arguments": {"city": city}}
        for number, city in enumerate(cities)
    ]


def weather(answer: Callable[[str], Awaitable[str]]) -> AgentTool:
    @tool
    async def get_weather(city: str) -> str:
        """Say what the weather is like in a city."""
        return await answer(city)

    return get_weather


def agent_of(provider: AnyProvider, *tools: AgentTool) -> Agent:
    return Agent(model=provider.model("a-model", max_tokens=100), tools=tools, system_prompt="Be brief.")


async def test_parallel_calls_run_together_and_their_results_go_back_in_order(aimock: AIMock, vendor: Vendor) -> None:
    await aimock.script(
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {"content": "Let me look.", "toolCalls": calls_of("Paris", "Rome", "Oslo")},
        },
        {"match": {"toolCallId": "call_2"}, "response": {"content": TEXT}},
    )
    arrived = {city: anyio.Event() for city in ("Paris", "Rome", "Oslo")}

    async def answer(city: str) -> str:
        arrived[city].set()
        for event in arrived.values():
            await event.wait()
        return f"sunny in {city}"

    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather(answer))
        result = await agent.prompt("How is the weather?")
    assert (result.outcome, result.text) == ("completed", TEXT)
    roles = [message.role for message in agent.state.messages]
    assert roles == ["user", "assistant", "tool_result", "tool_result", "tool_result", "assistant"]
    called = agent.state.messages[1]
    assert called.role == "assistant"
    assert (called.text, called.stop_reason) == ("Let me look.", "tool_use")
    assert [call.arguments for call in called.tool_calls] == [{"city": city} for city in arrived]
    assert transcript_faults(agent.state.messages) == []
    first, second = await aimock.requests()
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert [each["function"]["name"] for each in first["tools"]] == ["get_weather"]
    results = [message for message in second["messages"] if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in results] == [
        (f"call_{number}", f"sunny in {city}") for number, city in enumerate(arrived)
    ]
    asked = [call["id"] for message in second["messages"] for call in message.get("tool_calls") or ()]
    assert asked == ["call_0", "call_1", "call_2"]


async def test_arguments_survive_whatever_characters_they_hold(aimock: AIMock, vendor: Vendor) -> None:
    call = {"id": "call_0", "name": "note", "arguments": ODD_ARGUMENTS}
    await aimock.script(
        {"match": {"userMessage": "note", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": TEXT}},
    )
    noted: list[Any] = []

    @tool
    def note(city: str, days: list[Any]) -> str:
        """Note something down."""
        noted.append({"city": city, "days": days})
        return "noted"

    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        result = await agent_of(provider, note).prompt("Take a note.")
    assert result.outcome == "completed"
    assert noted == [ODD_ARGUMENTS]


async def test_calls_may_come_before_the_text(aimock: AIMock, vendor: Vendor) -> None:
    blocks = [
        {"type": "toolCall", "id": "call_0", "name": "get_weather", "arguments": {"city": "Paris"}},
        {"type": "text", "text": "I am looking."},
    ]
    await aimock.script(
        {"match": {"userMessage": "weather", "hasToolResult": False}, "response": {"blocks": blocks}},
        {"match": {"hasToolResult": True}, "response": {"content": TEXT}},
    )

    async def answer(city: str) -> str:
        return f"sunny in {city}"

    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather(answer))
        result = await agent.prompt("How is the weather?")
    called = agent.state.messages[1]
    assert called.role == "assistant"
    assert (called.text, [call.arguments for call in called.tool_calls]) == ("I am looking.", [{"city": "Paris"}])
    assert (result.outcome, result.text) == ("completed", TEXT)


USAGE = {
    "anthropic": {"input_tokens": 11, "output_tokens": 7},
    "openai-chat": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    "openai-responses": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
}


async def test_thinking_and_usage_are_read(aimock: AIMock, vendor: Vendor) -> None:
    response = {"content": TEXT, "reasoning": "Both are in the south.", "usage": USAGE[vendor.name]}
    await aimock.script({"match": {"userMessage": "weather"}, "response": response})
    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        result = await agent_of(provider).prompt("How is the weather?")
    answer = result.messages[-1]
    assert answer.role == "assistant"
    thinking = [block.thinking for block in answer.content if isinstance(block, ThinkingContent)]
    assert (thinking, answer.text) == (["Both are in the south."], TEXT)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (11, 7)


async def test_an_answer_cut_by_its_limit_runs_no_tool(aimock: AIMock, vendor: Vendor) -> None:
    response = {"content": "Let me", "toolCalls": calls_of("Paris"), "finishReason": "length"}
    await aimock.script(
        {"match": {"userMessage": "weather", "hasToolResult": False}, "response": response},
        {"match": {"hasToolResult": True}, "response": {"content": TEXT}},
    )
    cities: list[str] = []

    async def answer(city: str) -> str:
        cities.append(city)
        return "sunny"

    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather(answer))
        result = await agent.prompt("How is the weather?")
    called = agent.state.messages[1]
    assert called.role == "assistant"
    assert called.stop_reason == "length"
    assert (result.outcome, result.text) == ("completed", TEXT)
    assert cities == []
    assert transcript_faults(agent.state.messages) == []


BREAKS: dict[str, dict[str, Any]] = {
    "truncated": {"latency": 20, "truncateAfterChunks": 6},
    "disconnected": {"latency": 80, "disconnectAfterMs": 600},
}


@pytest.mark.parametrize("name", BREAKS)
async def test_an_answer_that_breaks_off_is_an_error_and_runs_no_tool(
    aimock: AIMock, vendor: Vendor, name: str
) -> None:
    response = {"content": "Let me look at that for you.", "toolCalls": calls_of("Paris", "Rome")}
    await aimock.script(
        {"match": {"userMessage": "weather"}, "response": response, **BREAKS[name]},
        {"match": {"userMessage": "again"}, "response": {"content": TEXT}},
    )
    cities: list[str] = []

    async def answer(city: str) -> str:
        cities.append(city)
        return "sunny"

    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather(answer))
        broken = await agent.prompt("How is the weather?")
        assert (broken.outcome, type(broken.error)) == ("error", IncompleteStream)
        assert transcript_faults(agent.state.messages) == []
        whole = await agent.prompt("Try again.")
    assert (whole.outcome, whole.text) == ("completed", TEXT)
    assert cities == []


ERRORS: dict[int, tuple[str, type[ProviderError]]] = {
    400: ("invalid_request_error", ProviderBadRequest),
    401: ("authentication_error", ProviderAuthFailed),
    429: ("rate_limit_error", RateLimited),
    500: ("server_error", ProviderUnavailable),
    529: ("overloaded_error", ProviderOverloaded),
}


async def test_an_error_answer_keeps_its_status_its_code_and_its_words(aimock: AIMock, vendor: Vendor) -> None:
    await aimock.script(*(
        {
            "match": {"userMessage": f"fail with {status}"},
            "response": {"error": {"message": f"The words of {status}.", "type": code}, "status": status},
        }
        for status, (code, _) in ERRORS.items()
    ))  # fmt: skip
    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        for status, (code, kind) in ERRORS.items():
            result = await agent_of(provider).prompt(f"Please fail with {status}.")
            assert isinstance(result.error, ProviderError)
            assert type(result.error) is kind, status
            assert (result.error.status_code, result.error.error_code) == (status, code)
            assert result.error.message.startswith(f"The words of {status}.")
            assert result.error.request_id
    assert len(await aimock.requests()) == len(ERRORS)


async def test_an_abort_ends_a_slow_answer_and_keeps_what_had_come(aimock: AIMock, vendor: Vendor) -> None:
    await aimock.script(
        {"match": {"userMessage": "weather"}, "response": {"content": TEXT}, "latency": 200, "chunkSize": 4},
        {"match": {"userMessage": "again"}, "response": {"content": TEXT}},
    )
    async with vendor.at(aimock.base_url(vendor.name)) as provider:
        agent = agent_of(provider)

        def abort_at_the_first_words(event: AgentEvent) -> None:
            if event.type == "message_update" and event.stream_event.type == "text_delta":
                agent.abort()

        unsubscribe = agent.subscribe(abort_at_the_first_words)
        result = await agent.prompt("How is the weather?")
        unsubscribe()
        assert (result.outcome, result.text) == ("aborted", TEXT[:4])
        assert (await agent.prompt("Try again.")).text == TEXT
    assert transcript_faults(agent.state.messages) == []
