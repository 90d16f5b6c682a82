"""G11: Cost is linear: in deltas, calls, turns, blocks, argument bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from cubepi_anyio import Agent, AgentTool, FauxProvider, RunLimits, faux_text, faux_thinking, faux_tool_call

from .scenarios import Nothing

pytestmark = pytest.mark.anyio


async def answer(tool_call_id: str, params: Any) -> str:
    return "ok"


def agent_for(*responses: Any) -> Agent:
    provider = FauxProvider(prompt_cache=False)
    provider.set_responses(responses)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [AgentTool("answer", "Answers.", Nothing, answer), AgentTool("take", "Takes a text.", schema, answer)]
    return Agent(model=provider.model("m"), tools=tools, limits=RunLimits(max_turns=None))


def deltas(size: int) -> Agent:
    return agent_for("abcd" * size)


def calls(size: int) -> Agent:
    return agent_for([faux_tool_call("answer", {}) for _ in range(size)], "Done.")


def turns(size: int) -> Agent:
    return agent_for(*[faux_tool_call("answer", {})] * 0, *[faux_tool_call("answer", {}) for _ in range(size)], "Done.")


def blocks(size: int) -> Agent:
    return agent_for([block for _ in range(size) for block in (faux_thinking("hm", signature="s"), faux_text("so"))])


def argument_bytes(size: int) -> Agent:
    return agent_for(faux_tool_call("take", {"text": "abcd" * size}), "Done.")


async def work_of(agent: Agent) -> int:
    """How many Python functions are called while the agent answers: a measure of work that no clock disturbs."""
    count = 0

    def tick(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    heard: list[object] = []
    agent.subscribe(heard.append)
    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        result = await agent.prompt("Go.")
    finally:
        sys.setprofile(before)
    assert result.outcome == "completed"
    return count


@pytest.mark.parametrize("make", [deltas, calls, turns, blocks, argument_bytes], ids=lambda make: make.__name__)
async def test_twice_as_much_takes_twice_the_work(make: Callable[[int], Agent]) -> None:
    """Work for n, 2n and 4n: the second step costs twice what the first did, where it would be four times for n²."""
    await work_of(make(20))  # caches are filled by whoever comes first
    small, middle, large = [await work_of(make(size)) for size in (100, 200, 400)]
    assert (large - middle) / (middle - small) < 2.3
