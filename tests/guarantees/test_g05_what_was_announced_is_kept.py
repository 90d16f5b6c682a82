"""G5: What was announced is stored: a result whose `tool_execution_end` was seen survives a kill."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from cubepi_anyio import Agent, AgentEvent, AgentTool, FauxProvider, Message, ToolResultMessage, faux_tool_call
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.testing import check_transcript

from .scenarios import Nothing, agent_with, stored_thread
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


async def test_what_is_announced_has_been_stored_before_and_a_killed_run_goes_on_from_it() -> None:
    """The process may die at each event: only the store is left, and another agent goes on from it."""
    store = MemoryCheckpointer()
    agent = stored_thread(store).agent
    moments: list[tuple[dict[str, str], Sequence[Message]]] = []
    announced: dict[str, str] = {}

    async def hear(event: AgentEvent) -> None:
        if event.type == "tool_execution_end":
            announced[event.tool_call_id] = event.result.content[0].text
        record = await store.load("thread")
        moments.append((dict(announced), record.messages if record is not None else ()))

    agent.subscribe(hear)
    assert (await agent.prompt("Go.")).outcome == "completed"
    assert len(moments) > 20
    assert len(announced) == 4
    for number, (heard, stored) in enumerate(moments):
        request = await request_after_death(stored)
        assert check_transcript(request) == [], number
        answers = {message.tool_call_id: message.text for message in request if isinstance(message, ToolResultMessage)}
        assert {call_id: answers.get(call_id) for call_id in heard} == heard, number


async def request_after_death(stored: Sequence[Message]) -> list[Message]:
    """What the model is sent by the next prompt of an agent that finds ``stored`` in its store."""
    left = MemoryCheckpointer()
    if stored:
        await left.append("thread", stored)
    provider = FauxProvider()
    provider.set_responses(["Yes."])
    agent = Agent(model=provider.model("m"), checkpointer=left, thread_id="thread")
    assert (await agent.prompt("Are you there?")).outcome == "completed"
    return provider.calls[-1].messages
