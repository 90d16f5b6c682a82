"""G3: `abort()` returns the run within the grace times, whatever the run waits for."""

from __future__ import annotations

import threading

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AgentEvent,
    AgentTool,
    FauxResponse,
    RunLimits,
    RunResult,
    faux_tool_call,
    tool_cycle_faults,
)

from .scenarios import Nothing, agent_with
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_every_abort_returns_the_run(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G3") == []


@pytest.mark.parametrize("where", ["before the answer", "in the answer", "in a tool", "in a thread", "in a listener"])
async def test_whatever_the_run_waits_for_an_abort_ends_it(where: str) -> None:
    released = threading.Event()
    agent = waiting(where, released)
    result: list[RunResult] = []

    async def prompt() -> None:
        result.append(await agent.prompt("Go."))

    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                await anyio.wait_all_tasks_blocked()
                agent.abort("enough")
    finally:
        released.set()
    assert (result[0].outcome, result[0].abort_reason) == ("aborted", "enough")
    assert tool_cycle_faults(agent.state.messages) == []


def waiting(where: str, released: threading.Event) -> Agent:
    """An agent whose run waits for ever at the named place."""

    async def wait(tool_call_id: str, params: Nothing) -> str:
        await anyio.sleep_forever()
        return "never"

    def block(tool_call_id: str, params: Nothing) -> str:
        released.wait()
        return "never"

    async def hear(event: AgentEvent) -> None:
        if event.type == "message_end":
            await anyio.sleep_forever()

    call = {"in a tool": faux_tool_call("wait", {}), "in a thread": faux_tool_call("block", {})}.get(
        where, "A few words."
    )
    stall = 2 if where == "in the answer" else None
    response = FauxResponse(call, stall_before_start=where == "before the answer", stall_after_deltas=stall)
    agent = agent_with(
        [AgentTool("wait", "Waits.", Nothing, wait), AgentTool("block", "Blocks.", Nothing, block)], response
    )
    if where == "in a listener":
        agent.limits = RunLimits(settle_timeout=0.05)
        agent.subscribe(hear)
    return agent


@pytest.mark.virtual_clock
async def test_settling_takes_no_longer_than_settle_timeout() -> None:
    async def hear(event: AgentEvent) -> None:
        if event.type == "agent_end":
            with anyio.CancelScope():
                await anyio.sleep(1000)

    agent = agent_with([], FauxResponse("A few words.", stall_after_deltas=1))
    agent.limits = RunLimits(settle_timeout=7)
    agent.subscribe(hear)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Go.")
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        agent.abort()
        await agent.wait_for_idle()
        assert anyio.current_time() - began == pytest.approx(7)
