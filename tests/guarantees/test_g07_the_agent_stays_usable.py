"""G7: The agent is usable after every ending, and the next request contains nothing of the broken turn that a provider refuses."""  # noqa: E501

from __future__ import annotations

import pytest

from cubepi_anyio import AgentBusy, AgentEvent
from cubepi_anyio.testing import check_transcript

from .scenarios import parallel_tools
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_the_next_prompt_is_answered_after_every_ending(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G7") == []


async def test_a_listener_may_prompt_again_only_when_the_run_is_over() -> None:
    scenario = parallel_tools()
    refused: list[str] = []

    async def hear(event: AgentEvent) -> None:
        try:
            await scenario.agent.prompt("In between.")
        except AgentBusy:
            refused.append(event.type)

    unsubscribe = scenario.agent.subscribe(hear)
    await scenario.agent.prompt("Go.")
    unsubscribe()
    assert refused[0] == "agent_start"
    assert refused[-1] == "agent_end"
    assert (await scenario.prompt_again()).outcome == "completed"


async def test_the_agent_is_usable_after_a_bug_of_a_listener() -> None:
    scenario = parallel_tools()

    def hear(event: AgentEvent) -> None:
        if event.type == "tool_execution_start":
            raise LookupError("a bug of this listener")

    unsubscribe = scenario.agent.subscribe(hear)
    with pytest.raises(LookupError):
        await scenario.agent.prompt("Go.")
    unsubscribe()
    result = await scenario.prompt_again()
    assert (result.outcome, check_transcript(scenario.all_requests()[-1])) == ("completed", [])
