"""G8: One tool's failure touches no sibling."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import AgentEvent, AgentTool, ToolResultMessage, faux_tool_call

from .scenarios import Nothing, agent_with, an_old_cancellation
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_no_ending_touches_what_stands_beside(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G8") == []


@pytest.mark.parametrize("how", ["raises", "raises a group", "cancels itself", "is told to end", "takes too long"])
async def test_the_siblings_of_a_call_that_fails_meet_and_return(how: str) -> None:
    """The two good calls wait for the bad one to have ended, and for each other: neither can have been cancelled."""
    bad_has_ended = anyio.Event()
    arrived: list[str] = []
    both = anyio.Event()

    async def good(tool_call_id: str, params: Nothing) -> str:
        await bad_has_ended.wait()
        arrived.append(tool_call_id)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return "good"

    async def bad(tool_call_id: str, params: Nothing) -> str:
        await checkpoint()
        if how == "raises":
            raise ValueError("bad")
        if how == "raises a group":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                raise ValueError("bad")
        if how == "cancels itself":
            raise await an_old_cancellation()
        await anyio.sleep_forever()
        return "never"

    timeout = 0.01 if how == "takes too long" else None
    agent = agent_with(
        [AgentTool("good", "Good.", Nothing, good), AgentTool("bad", "Bad.", Nothing, bad, timeout=timeout)],
        [faux_tool_call("good", {}, id="a"), faux_tool_call("bad", {}, id="b"), faux_tool_call("good", {}, id="c")],
        "Done.",
    )

    def hear(event: AgentEvent) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "b":
            bad_has_ended.set()
        if how == "is told to end" and event.type == "tool_execution_start" and event.tool_call_id == "c":
            agent.abort_tool_call("b", "not needed")

    agent.subscribe(hear)
    with anyio.fail_after(5):
        result = await agent.prompt("Go.")
    assert result.outcome == "completed"
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert [(r.text == "good", r.is_error) for r in results] == [(True, False), (False, True), (True, False)]
