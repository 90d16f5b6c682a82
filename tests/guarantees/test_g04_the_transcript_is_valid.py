"""G4: The transcript is valid after every ending: each call answered exactly once, in order; no empty or unsigned blocks that a provider would refuse."""  # noqa: E501

from __future__ import annotations

import anyio
import pytest

from cubepi_anyio import AgentTool, ToolResultMessage, faux_tool_call

from .scenarios import Nothing, agent_with
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_every_ending_leaves_a_transcript_that_any_model_accepts(
    make: MakeScenario, anyio_backend: object
) -> None:
    assert faults_of(await swept(make, anyio_backend), "G4") == []


async def test_what_had_ended_keeps_its_result_and_the_rest_is_said_to_be_cancelled() -> None:
    async def quick(tool_call_id: str, params: Nothing) -> str:
        return "quick"

    async def slow(tool_call_id: str, params: Nothing) -> str:
        await anyio.sleep_forever()
        return "never"

    agent = agent_with(
        [AgentTool("quick", "Quick.", Nothing, quick), AgentTool("slow", "Slow.", Nothing, slow)],
        [faux_tool_call("slow", {}, id="a"), faux_tool_call("quick", {}, id="b"), faux_tool_call("slow", {}, id="c")],
    )
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.prompt, "Go.")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    results = [message for message in agent.state.messages if isinstance(message, ToolResultMessage)]
    assert [(r.tool_call_id, r.is_error) for r in results] == [("a", True), ("b", False), ("c", True)]
    assert results[1].text == "quick"
    assert all("cancelled" in results[n].text for n in (0, 2))
