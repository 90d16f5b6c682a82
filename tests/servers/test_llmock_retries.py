"""What llmock says of the package's own retries: they wait as told, end, and never repeat what was delivered."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import Agent, AgentTool, tool
from cubepi_anyio.errors import IncompleteStream, ProviderError, ProviderUnavailable
from cubepi_anyio.providers.composed.retry import RetryNotice, RetryPolicy
from cubepi_anyio.providers.http.client import Timeouts

from .llmock_server import LLMock
from .vendors import AnyProvider, Vendor

pytestmark = pytest.mark.anyio

TEXT = "one two three four five six seven eight"
REPLY: dict[str, Any] = {"type": "reply", "text": TEXT, "times": 3}
POLICY = RetryPolicy(initial_delay_seconds=0.1, jitter=0.2)
IMPATIENT = Timeouts(first_byte_seconds=0.3, idle_seconds=0.3)

FAULTS: dict[str, dict[str, Any]] = {
    "429": {"type": "fail", "status": 429, "retry_after": 0.3, "times": 2},
    "500": {"type": "fail", "status": 500},
    "503": {"type": "fail", "status": 503, "retry_after": 0.1, "times": 2},
    "disconnect": {"type": "stream_fault", "kind": "disconnect", "after_chunks": 1},
    "truncate": {"type": "stream_fault", "kind": "truncate", "after_chunks": 1},
    "stall": {"type": "stream_fault", "kind": "stall", "after_chunks": 1, "stall_seconds": 60.0},
    "slow first token": {"type": "slow_first_token", "seconds": 60.0},
}


def retrying(provider: AnyProvider, notices: list[RetryNotice], *tools: AgentTool) -> Agent:
    model = POLICY.wrap(provider.model("a-model", max_tokens=100), on_retry=notices.append)
    return Agent(model=model, tools=tools)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_before_the_first_token_is_not_seen_by_the_run(llmock: LLMock, vendor: Vendor, name: str) -> None:
    await llmock.queue(FAULTS[name], REPLY)
    notices: list[RetryNotice] = []
    async with vendor.at(llmock.base_url(vendor.name), timeouts=IMPATIENT) as provider:
        agent = retrying(provider, notices)
        result = await agent.prompt("Tell me something.")
    assert (result.outcome, result.text) == ("completed", TEXT)
    assert [notice.attempt for notice in notices] == list(range(1, FAULTS[name].get("times", 1) + 1))
    assert [message.role for message in agent.state.messages] == ["user", "assistant"]
    assert len(await llmock.requests()) == len(notices) + 1
    assert await llmock.findings() == []


async def test_retries_end(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "fail", "status": 500, "retry_after": 0.05, "times": None})
    notices: list[RetryNotice] = []
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        result = await retrying(provider, notices).prompt("Tell me something.")
    assert isinstance(result.error, ProviderUnavailable)
    assert result.error.status_code == 500
    assert [request["status"] for request in await llmock.requests()] == [500, 500, 500]
    assert await llmock.findings() == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_cannot_help_is_not_tried(llmock: LLMock, vendor: Vendor, status: int) -> None:
    await llmock.queue({"type": "fail", "status": status})
    notices: list[RetryNotice] = []
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        result = await retrying(provider, notices).prompt("Tell me something.")
    assert isinstance(result.error, ProviderError)
    assert notices == []
    assert [request["status"] for request in await llmock.requests()] == [status]
    assert await llmock.findings() == []


async def test_a_break_after_the_first_token_is_told_and_not_repeated(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "stream_fault", "kind": "disconnect", "after_chunks": 6}, REPLY)
    notices: list[RetryNotice] = []
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        result = await retrying(provider, notices).prompt("Tell me something.")
    assert type(result.error) is IncompleteStream
    assert result.text
    assert TEXT.startswith(result.text)
    assert notices == []
    assert len(await llmock.requests()) == 1


async def test_a_fault_after_a_tool_has_run_does_not_run_it_again(llmock: LLMock, vendor: Vendor) -> None:
    calls: list[str] = []

    @tool
    async def get_weather(city: str) -> str:
        """Say what the weather is like in a city."""
        calls.append(city)
        await llmock.queue(FAULTS["503"], FAULTS["truncate"], REPLY)
        return "sunny"

    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        model = RetryPolicy(initial_delay_seconds=0.1, max_attempts=5).wrap(provider.model("a-model"))
        result = await Agent(model=model, tools=[get_weather]).prompt("How is the weather?")
    assert (result.outcome, result.text) == ("completed", TEXT)
    assert calls == ["mock-city"]
    requests = await llmock.requests()
    assert [(request["status"], request["completed"]) for request in requests] == [
        (200, True),
        (503, True),
        (503, True),
        (200, False),
        (200, True),
    ]
    assert await llmock.findings() == []
