"""Recorded conversations, replayed by an agent: each request it sends carries what the recording's own client sent."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anyio
import pytest

from cubepi_anyio import Agent, AgentTool, AgentToolResult, RunLimits, tool_cycle_faults
from cubepi_anyio.providers.anthropic import AnthropicProvider
from tests.recordings import MISSING, Replay

from .test_request import normal, recorded_sequences

pytestmark = [pytest.mark.anyio, pytest.mark.needs_shared]

GROUPS = recorded_sequences()


def _recorded_results(messages: list[dict[str, Any]]) -> dict[str, str]:
    """What each call was answered, by the call's id, from the last request of a conversation."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return {
        block["tool_use_id"]: normal(block)["content"][0]["text"] for block in blocks if block["type"] == "tool_result"
    }


class _Tools:
    """The recorded tools: each call is answered as it was, and all calls of a batch are running before one ends."""

    def __init__(self, described: list[dict[str, Any]], results: dict[str, str]) -> None:
        self._results = results
        self._running = 0
        self.most_at_once = 0
        self.tools = [
            AgentTool(tool["name"], tool["description"], tool["input_schema"], self._answer) for tool in described
        ]

    async def _answer(self, tool_call_id: str, params: object) -> AgentToolResult:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await anyio.wait_all_tasks_blocked()
        self._running -= 1
        return AgentToolResult(self._results[tool_call_id])


@pytest.mark.parametrize("chunk", ["0", "1"], ids=["whole", "1-byte"])
@pytest.mark.parametrize("name", sorted(GROUPS) or ["missing"])
async def test_an_agent_continues_a_recorded_conversation_as_its_client_did(
    replay: Replay, name: str, chunk: str
) -> None:
    if name not in GROUPS:
        pytest.skip(MISSING)
    group = GROUPS[name]
    first, last = group[0]["request"]["json"], group[-1]["request"]["json"]
    tools = _Tools(first["tools"], _recorded_results(last["messages"]))
    sent: list[dict[str, Any]] = []
    async with AnthropicProvider(
        api_key="k", base_url=f"{replay.base}/_seq/{name};chunk={chunk};s={uuid4().hex}"
    ) as model:
        model.subscribe_request(lambda payload, _: sent.append(payload))
        agent = Agent(model=model.model(first["model"]), tools=tools.tools, limits=RunLimits(max_turns=len(group)))
        result = await agent.prompt(normal(first["messages"])[0]["content"][0]["text"])

    assert (result.outcome, result.error) == ("completed", None)
    assert result.text == group[-1]["expected"]["text"]
    assert [normal(request["messages"]) for request in sent] == [
        normal(recording["request"]["json"]["messages"]) for recording in group
    ]
    assert tool_cycle_faults(agent.state.messages) == []
    widest = max(len(recording["expected"]["tool_calls"]) for recording in group)
    assert tools.most_at_once == widest
