"""G2: Cancellation from outside always leaves the public call; it is never swallowed or turned into a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest

from cubepi_anyio import AgentTool, faux_tool_call, tool_cycle_faults
from cubepi_anyio.testing import Scenario, endings_here, sweep

from .scenarios import Nothing, agent_with, parallel_tools, shielded_cleanup, sniffed_trio, stored_thread
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


@pytest.mark.parametrize("again_after", [1, 4])
@pytest.mark.parametrize("make", [parallel_tools, shielded_cleanup, stored_thread], ids=lambda make: make.__name__)
async def test_who_is_impatient_and_cancels_twice_changes_nothing(
    make: Callable[[], Scenario], again_after: int
) -> None:
    """Also while the run settles: the record is completed, tools clean up, and the cancellation leaves."""
    for number, ending in enumerate(endings_here()):
        report = await sweep(make, ending=ending, start=1 + number, stride=9, again_after=again_after)
        report.raise_for_faults()
