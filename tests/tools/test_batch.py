"""The calls of one message together: in parallel, in order, bounded, and what a cancellation leaves of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import RunLimits, faux_assistant_message, faux_tool_call
from tests.support.agents import (
    NoParams,
    assert_well_ended,
    bench,
    calling,
    running_tasks,
    saying,
    sleeping,
    tool_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


class Overlap:
    """Tools that note how many of them run at once, and in which order they began and ended."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.log: list[str] = []

    def tool(self, name: str, **options: Any) -> Any:
        async def execute(tool_call_id: str, params: NoParams) -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            self.log.append(f"{name} begins")
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            self.log.append(f"{name} ends")
            self.now -= 1
            return tool_call_id

        return tool_of(name, execute, **options)


async def test_calls_run_at_the_same_time_by_default() -> None:
    overlap = Overlap()
    made = bench(calling("a", "b", "c"), "done", tools=[overlap.tool(name) for name in "abc"])
    await made.agent.prompt("hi")
    assert (overlap.most, made.texts) == (3, ["c1", "c2", "c3"])


@pytest.mark.parametrize("how", ["the agent", "one tool"])
async def test_a_sequential_batch_never_overlaps_and_keeps_its_order(how: str) -> None:
    overlap = Overlap()
    tools = [
        overlap.tool("a"),
        overlap.tool("b", execution_mode="sequential" if how == "one tool" else None),
        overlap.tool("c", execution_mode="parallel"),
    ]
    mode: Any = "sequential" if how == "the agent" else "parallel"
    made = bench(calling("a", "b", "c"), "done", tools=tools, tool_execution=mode)
    await made.agent.prompt("hi")
    assert overlap.most == 1
    assert overlap.log == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_a_sequential_tool_makes_only_its_own_batch_sequential() -> None:
    overlap = Overlap()
    tools = [overlap.tool("a"), overlap.tool("b"), overlap.tool("alone", execution_mode="sequential")]
    made = bench(calling("a", "alone"), calling("a", "b"), "done", tools=tools)
    await made.agent.prompt("hi")
    assert overlap.most == 2


async def test_an_error_in_a_sequential_batch_lets_the_next_call_run() -> None:
    async def fail(tool_call_id: str, params: NoParams) -> str:
        raise ValueError("no")

    made = bench(
        calling("fail", "nope", "say"),
        "done",
        tools=[tool_of("fail", fail), saying("say")],
        tool_execution="sequential",
    )
    await made.agent.prompt("hi")
    assert made.texts == ["no", "There is no tool named 'nope'. The tools are: fail, say.", "say"]


@pytest.mark.parametrize("bound", [1, 4, 200, 1000])
async def test_a_bound_holds_for_two_hundred_calls(bound: int) -> None:
    overlap = Overlap()
    made = bench(
        calling(*["work"] * 200), "done", tools=[overlap.tool("work")], limits=RunLimits(max_parallel_tools=bound)
    )
    await made.agent.prompt("hi")
    assert overlap.most == min(bound, 200)
    assert made.texts == [f"c{number}" for number in range(1, 201)]
    starts = [name for name in made.labels if name.startswith("tool_execution_start")]
    assert starts == [f"tool_execution_start:c{number}" for number in range(1, 201)]


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_calls_that_wait_when_the_run_is_ended_never_begin(way: str) -> None:
    before = running_tasks()
    began: list[str] = []
    full = anyio.Event()

    async def wait(tool_call_id: str, params: NoParams) -> str:
        began.append(tool_call_id)
        if len(began) == 4:
            full.set()
        await anyio.sleep_forever()
        return "never"

    made = bench(calling(*["wait"] * 200), tools=[tool_of("wait", wait)], limits=RunLimits(max_parallel_tools=4))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await full.wait()
        await anyio.wait_all_tasks_blocked()
        if way == "abort":
            made.agent.abort()
        else:
            tasks.cancel_scope.cancel()
    assert running_tasks() == before
    assert len(began) == 4
    assert len(made.results) == 200
    not_begun = [text for text in made.texts if "before it began" in text]
    assert len(not_begun) == 196
    await assert_well_ended(made)


async def test_calls_that_ended_keep_their_results_when_the_run_is_aborted() -> None:
    began = anyio.Event()
    made = bench(calling("say", "sleep", "nope", "say", "sleep"), tools=[saying("say"), sleeping("sleep", began)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        await anyio.wait_all_tasks_blocked()
        made.agent.abort("enough")
    assert made.texts[0] == made.texts[3] == "say"
    assert (
        made.texts[1]
        == made.texts[4]
        == ("The call was cancelled before it was complete: the run was aborted (enough)")
    )
    assert made.texts[2].startswith("There is no tool")
    ends = [event.tool_call_id for event in made.events if event.type == "tool_execution_end"]
    assert sorted(ends[:3]) == ["c1", "c3", "c4"]
    assert sorted(ends[3:]) == ["c2", "c5"]
    await assert_well_ended(made)


async def test_a_sequential_batch_that_is_aborted_answers_what_it_did_not_begin() -> None:
    began = anyio.Event()
    ran: list[str] = []

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ok"

    made = bench(
        calling("note", "sleep", "note"),
        tools=[tool_of("note", note), sleeping("sleep", began)],
        tool_execution="sequential",
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort()
    assert ran == ["c1"]
    assert made.texts[0] == "ok"
    assert "before it was complete" in made.texts[1]
    assert "before it began" in made.texts[2]
    await assert_well_ended(made)


async def test_no_task_of_a_tool_s_own_group_outlives_the_run() -> None:
    before = running_tasks()
    began = anyio.Event()
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await anyio.lowlevel.checkpoint()

    async def spawn(tool_call_id: str, params: NoParams) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            began.set()
        return "never"

    made = bench(calling("spawn", "spawn"), tools=[tool_of("spawn", spawn)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort()
    assert running_tasks() == before
    count = len(ticks)
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert len(ticks) == count


async def test_two_calls_with_one_id_are_each_answered() -> None:

    answer = faux_assistant_message([faux_tool_call("a", {}, id="same"), faux_tool_call("b", {}, id="same")])
    made = bench(answer, "done", tools=[saying("a"), saying("b")])
    result = await made.agent.prompt("hi")
    assert (result.outcome, made.texts) == ("completed", ["a", "b"])
