"""G2: Cancellation from outside always leaves the public call; it is never swallowed or turned into a result."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import AgentTool, faux_tool_call, tool_cycle_faults

from .scenarios import Nothing, agent_with, parallel_tools, sniffed_trio
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_every_cancellation_from_outside_leaves_the_call(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G2") == []


async def test_a_tool_that_swallows_a_native_cancellation_does_not_keep_it_from_the_caller() -> None:
    if sniffed_trio():
        pytest.skip("asyncio's")

    async def deaf(tool_call_id: str, params: Nothing) -> str:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return "went on"
        return "never"

    calls = [faux_tool_call("deaf", {}), faux_tool_call("deaf", {})]
    for alone in (True, False):
        agent = agent_with([AgentTool("deaf", "Swallows.", Nothing, deaf)], calls[:1] if alone else calls)
        task = asyncio.create_task(agent.prompt("Go."))
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tool_cycle_faults(agent.state.messages) == []


async def test_a_second_cancellation_while_the_run_settles_leaves_too() -> None:
    if sniffed_trio():
        pytest.skip("asyncio's")
    for later in range(6):
        scenario = parallel_tools()
        scenario.agent.subscribe(lambda event: checkpoint())
        task = asyncio.create_task(scenario.agent.prompt("Go."))
        while not scenario.agent.state.pending_tool_calls:  # noqa: ASYNC110 - the step matters, not the news
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(later):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tool_cycle_faults(scenario.agent.state.messages) == []
        assert not scenario.agent.state.is_running
