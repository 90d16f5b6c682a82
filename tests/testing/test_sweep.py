"""The sweep finds what it is for: each fault is planted, and each guarantee notices its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import get_args

import anyio
import pytest
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint

from cubepi_anyio import Agent, FauxProvider, RunResult
from cubepi_anyio.testing import EndedRun, Ending, Scenario, endings_here, sweep

from .loose_agent import loose

pytestmark = pytest.mark.anyio


def text_only() -> Scenario:
    provider = FauxProvider()
    provider.set_responses(["A few words."])
    return Scenario(agent=Agent(model=provider.model("m")), provider=provider)


async def test_an_agent_that_keeps_the_guarantees_has_no_faults() -> None:
    for ending in endings_here():
        report = await sweep(loose(""), ending=ending)
        report.raise_for_faults()
        assert report.endings == report.steps + 1  # at each step, and before the first
        assert report.phases == {"idle": 1, "tools": report.steps}


@pytest.mark.parametrize(
    ("fault", "ending", "guarantee"),
    [
        ("leaves a task", "abort", "G1"),
        ("swallows the cancellation", "scope", "G2"),
        ("is deaf to abort", "abort", "G3"),
        ("does not end", "abort", "G3"),
        ("forgets the result", "abort", "G4"),
        ("keeps an empty text", "abort", "G4"),
        ("stores another result", "abort", "G5"),
        ("forgets an end", "scope", "G6"),
        ("ends twice", "scope", "G6"),
        ("stays busy", "abort", "G7"),
    ],
)
async def test_each_planted_fault_is_noticed_by_its_guarantee(fault: str, ending: Ending, guarantee: str) -> None:
    report = await sweep(loose(fault), ending=ending, bound_seconds=0.1 if fault == "does not end" else 5.0)
    assert guarantee in {found.guarantee for found in report.faults}
    with pytest.raises(AssertionError, match=guarantee):
        report.raise_for_faults(shown=1000)


async def test_a_cancel_request_that_is_taken_back_is_noticed() -> None:
    if "task_cancel" not in endings_here():
        pytest.skip("requests to cancel are counted by asyncio only")
    report = await sweep(loose("uncancels"), ending="task_cancel")
    assert {fault.text for fault in report.faults} == {"Task.cancelling() is 0, not 1"}


async def test_a_cancelled_bystander_is_noticed() -> None:
    if "task_cancel" not in endings_here():
        pytest.skip("only asyncio lets a stranger cancel a task")

    async def run(agent: Agent) -> RunResult:
        for task in asyncio.all_tasks():
            if "_stand_by" in task.get_name():
                task.cancel()
        await checkpoint()
        await checkpoint()
        return RunResult(run_id="none", outcome="completed")

    def unkind() -> Scenario:
        scenario = text_only()
        scenario.run = run
        return scenario

    report = await sweep(unkind, ending="abort", listener="none", start=2)
    assert {fault.guarantee for fault in report.faults} == {"G8"}


async def test_steps_of_all_tasks_count() -> None:
    async def run(agent: Agent) -> RunResult:
        async def ten_steps() -> None:
            for _ in range(10):
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ten_steps)
        return RunResult(run_id="none", outcome="completed")

    def three_tasks() -> Scenario:
        scenario = text_only()
        scenario.run = run
        return scenario

    report = await sweep(three_tasks, ending="abort", listener="none", checks={})
    assert 30 <= report.steps <= 40


async def test_an_ending_at_each_event_comes_from_within_the_run() -> None:
    report = await sweep(text_only, ending="abort", at="event", start=1)
    report.raise_for_faults()
    assert report.endings == report.steps > 5
    assert {"loading", "streaming"} <= set(report.phases)


async def test_a_stride_leaves_endings_out() -> None:
    every, some = [await sweep(loose(""), ending="scope", stride=stride) for stride in (1, 2)]
    assert some.endings == (every.endings + 1) // 2


async def test_a_run_can_be_ended_twice() -> None:
    ends: list[int] = []

    async def leave_slowly(agent: Agent) -> None:
        try:
            for _ in range(3):
                await checkpoint()
        finally:
            for _ in range(3):
                await cancel_shielded_checkpoint()

    def note(ended: EndedRun) -> list[str]:
        ends.append(ended.endings)
        return []

    def slow() -> Scenario:
        scenario = text_only()
        scenario.run, scenario.checks = leave_slowly, [note]
        return scenario

    for ending in endings_here():
        ends.clear()
        await sweep(slow, ending=ending, listener="none", start=1, again_after=2, checks={})
        assert set(ends) == {0, 1, 2}  # by itself, ended in its last steps, and ended before


async def test_surroundings_are_taken_away_after_each_ending() -> None:
    made: list[str] = []

    @asynccontextmanager
    async def with_surroundings() -> AsyncGenerator[Scenario, None]:
        made.append("up")
        yield text_only()
        made.append("down")

    report = await sweep(with_surroundings, ending="scope")
    report.raise_for_faults()
    assert made == ["up", "down"] * (report.endings + 1)


async def test_a_scenario_can_check_more() -> None:
    def checked() -> Scenario:
        scenario = text_only()
        scenario.checks = [lambda ended: ["no answer"] if len(ended.messages) < 2 else []]
        return scenario

    report = await sweep(checked, ending="abort", start=1)
    assert report.faults
    assert {fault.guarantee for fault in report.faults} == {"scenario check 0"}


async def test_an_ending_of_the_other_backend_is_refused() -> None:
    missing = next(ending for ending in get_args(Ending) if ending not in endings_here())
    with pytest.raises(ValueError, match="endings_here"):
        await sweep(text_only, ending=missing)


async def test_the_task_factory_of_the_loop_is_put_back() -> None:
    if "task_cancel" not in endings_here():
        pytest.skip("a task factory is asyncio's")
    before = asyncio.get_running_loop().get_task_factory()
    await sweep(text_only, ending="scope")
    assert asyncio.get_running_loop().get_task_factory() is before


async def test_an_error_of_a_run_that_nobody_ended_is_a_fault() -> None:
    async def run(agent: Agent) -> RunResult:
        await agent.prompt("Go.")
        raise LookupError("the scenario's own assertion")

    def wrong() -> Scenario:
        scenario = text_only()
        scenario.run = run
        return scenario

    report = await sweep(wrong, ending="scope")
    assert any("LookupError" in fault.text and "nobody had ended" in fault.text for fault in report.faults)


async def test_an_interrupt_from_the_keyboard_ends_the_sweep() -> None:
    async def run(agent: Agent) -> RunResult:
        raise KeyboardInterrupt

    def interrupted() -> Scenario:
        scenario = text_only()
        scenario.run = run
        return scenario

    with pytest.raises(KeyboardInterrupt):
        await sweep(interrupted, ending="scope")
