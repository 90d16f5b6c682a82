"""Agents as tools of agents: cancellation reaches every level, and every level keeps its record."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import AssistantMessage, FauxResponse, RunLimits
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    bench,
    calling,
    running_tasks,
    saying,
    tool_of,
    transcript_faults,
)
from tests.support.backends import on_asyncio

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


def delegating(to: Bench) -> Any:
    async def delegate(tool_call_id: str, params: NoParams) -> str:
        return (await to.agent.prompt("sub task")).raise_for_error().text

    return tool_of("delegate", delegate)


def three_levels() -> tuple[Bench, Bench, Bench]:
    inner = bench(FauxResponse("one two three", stall_after_deltas=1))
    middle = bench(calling("delegate"), "from the middle", tools=[delegating(inner)])
    outer = bench(calling("delegate", "say"), "from outside", tools=[delegating(middle), saying("say")])
    return outer, middle, inner


async def test_an_agent_as_a_tool_answers_with_its_text() -> None:
    outer, middle, inner = three_levels()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outer.agent.prompt, "hi")
        await inner.provider.wait_stalled()
        inner.provider.release_stalls()
    assert outer.texts == ["from the middle", "say"]
    assert middle.texts == ["one two three"]
    await assert_well_ended(outer)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_cancellation_reaches_every_level(way: str) -> None:
    before = running_tasks()
    levels = three_levels()
    outer, _, inner = levels
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outer.agent.prompt, "hi")
        await inner.provider.wait_stalled()
        await anyio.wait_all_tasks_blocked()
        if way == "abort":
            outer.agent.abort()
        else:
            tasks.cancel_scope.cancel()
    assert running_tasks() == before
    [kept] = [message for message in inner.agent.state.messages if isinstance(message, AssistantMessage)]
    assert kept.stop_reason == "aborted"
    assert kept.text
    for made in levels:
        assert made.labels[-1] == "agent_end:aborted"
        await assert_well_ended(made)


@on_asyncio
async def test_a_native_cancellation_reaches_every_level() -> None:
    import asyncio  # noqa: PLC0415

    before = running_tasks()
    levels = three_levels()
    task = asyncio.create_task(levels[0].agent.prompt("hi"))
    await levels[2].provider.wait_stalled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running_tasks() == before
    for made in levels:
        assert made.labels[-1] == "agent_end:aborted"
        await assert_well_ended(made)


async def test_aborting_the_inner_agent_alone_is_an_error_of_its_call() -> None:
    outer, middle, inner = three_levels()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outer.agent.prompt, "hi")
        await inner.provider.wait_stalled()
        inner.agent.abort("too slow")
    assert middle.texts == ["the run was aborted: too slow"]
    assert middle.results[0].is_error
    assert outer.texts == ["from the middle", "say"]
    await assert_well_ended(inner)


async def test_a_bound_on_parallel_tools_does_not_make_nested_agents_wait_for_each_other() -> None:
    limits = RunLimits(max_parallel_tools=1)
    leaves = [bench(calling("say", "say"), "leaf", tools=[saying("say")], limits=limits) for _ in range(3)]
    tools = []
    for number, leaf in enumerate(leaves):

        async def delegate(tool_call_id: str, params: NoParams, leaf: Bench = leaf) -> str:
            return (await leaf.agent.prompt("sub")).text

        tools.append(tool_of(f"delegate{number}", delegate))
    outer = bench(calling(*[tool.name for tool in tools]), "done", tools=tools, limits=limits)
    result = await outer.agent.prompt("hi")
    assert (result.text, outer.texts) == ("done", ["leaf"] * 3)
    assert all(transcript_faults(leaf.agent.state.messages) == [] for leaf in leaves)
