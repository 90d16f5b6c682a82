"""G5: What was announced is stored: a result whose `tool_execution_end` was seen survives a kill."""

from __future__ import annotations

import anyio
import pytest

from cubepi_anyio import AgentEvent, AgentTool, ToolResultMessage, faux_tool_call

from .scenarios import Nothing, agent_with
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_every_announced_and_every_returned_result_is_in_the_transcript(
    make: MakeScenario, anyio_backend: object
) -> None:
    assert faults_of(await swept(make, anyio_backend), "G5") == []


async def test_a_result_is_kept_when_its_tool_ends_and_not_when_the_slowest_does() -> None:
    """At the moment of ``tool_execution_end`` an abort can come, and the result is what the tool said."""

    async def quick(tool_call_id: str, params: Nothing) -> str:
        return f"result of {tool_call_id}"

    async def slow(tool_call_id: str, params: Nothing) -> str:
        await anyio.sleep_forever()
        return "never"

    agent = agent_with(
        [AgentTool("quick", "Quick.", Nothing, quick), AgentTool("slow", "Slow.", Nothing, slow)],
        [faux_tool_call("slow", {}, id="a"), faux_tool_call("quick", {}, id="b")],
    )

    def hear(event: AgentEvent) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "b":
            agent.abort()

    agent.subscribe(hear)
    result = await agent.prompt("Go.")
    texts = {
        message.tool_call_id: message.text for message in result.messages if isinstance(message, ToolResultMessage)
    }
    assert result.outcome == "aborted"
    assert texts["b"] == "result of b"
