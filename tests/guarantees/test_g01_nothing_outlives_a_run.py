"""G1: Nothing outlives a run: no task, response, child process; CPU idle afterwards."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import anyio
import pytest

from cubepi_anyio import Agent, FauxProvider, FauxResponse
from cubepi_anyio.testing import endings_here, sweep

from .scenarios import parallel_tools, sniffed_trio, thread_tools
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_no_task_and_no_tool_outlives_its_run(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G1") == []


@pytest.mark.parametrize("listener", ["plain", "async"])
async def test_no_thread_and_nothing_it_called_outlives_its_run(listener: Literal["plain", "async"]) -> None:
    """Threads take no part in the order of steps, so each sweep ends them elsewhere."""
    for ending in endings_here():
        report = await sweep(thread_tools, ending=ending, listener=listener, start=1, stride=4)
        report.raise_for_faults()


async def test_the_loop_is_idle_after_a_cancelled_run() -> None:
    """A scope that is cancelled and never left keeps asyncio busy for ever: anyio delivers anew in every cycle."""
    for ending in endings_here():
        await sweep(parallel_tools, ending=ending, start=1, stride=7)
        assert await callbacks_in_ten_cycles() == 0


async def callbacks_in_ten_cycles() -> int:
    """How many callbacks others schedule while this task does nothing but yield."""
    if sniffed_trio():
        import trio  # noqa: PLC0415 - trio is optional

        await trio.testing.wait_all_tasks_blocked()
        return trio.lowlevel.current_statistics().tasks_runnable
    loop = asyncio.get_running_loop()
    ready: Any = getattr(loop, "_ready", None)
    if ready is None:
        pytest.skip("this loop does not say what is ready")
    await anyio.wait_all_tasks_blocked()
    seen = 0
    for _ in range(10):
        await asyncio.sleep(0)
        seen += len(ready)
    return seen


async def test_a_run_in_a_plain_asyncio_program_leaves_no_task() -> None:
    if sniffed_trio():
        pytest.skip("asyncio's")
    before = asyncio.all_tasks()
    scenario = parallel_tools()
    task = asyncio.create_task(scenario.agent.prompt("Go."))
    for _ in range(6):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_model_that_falls_silent_is_let_go_of_before_the_run_ends() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("One two three four.", stall_after_deltas=2)])
    agent = Agent(model=provider.model("m"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Go.")
        await provider.wait_stalled()
        agent.abort()
        await agent.wait_for_idle()
        assert provider.stalled_count == 0
