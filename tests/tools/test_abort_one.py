"""``abort_tool_call`` while others run: at every moment it ends that call alone, and the end is heard at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

import anyio
import pytest
from anyio import from_thread
from anyio.lowlevel import checkpoint

from cubepi_anyio import AbortSignal, AgentEvent, AgentTool, RunLimits, RunResult
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from tests.guarantees.scenarios import an_old_cancellation
from tests.support.agents import Bench, NoParams, assert_well_ended, bench, calling, running_tasks, sleeping, tool_of
from tests.support.backends import on_trio
from tests.support.threads import until
from tests.tools.ways import ENDING, end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(60)]

Listen = Callable[[Bench, Callable[[AgentEvent], None]], object]


def listen_plainly(made: Bench, hear: Callable[[AgentEvent], None]) -> None:
    made.agent.subscribe(hear)


def listen_slowly(made: Bench, hear: Callable[[AgentEvent], None]) -> None:
    async def listener(event: AgentEvent) -> None:
        for _ in range(3):
            await checkpoint()
        hear(event)

    made.agent.subscribe(listener)


over_all_listeners = pytest.mark.parametrize("listen", [listen_plainly, listen_slowly])


async def _abort_beside_one_that_waits_for_the_end(
    aborted: Callable[[anyio.Event], AgentTool], listen: Listen, ending: str, **options: Any
) -> Bench:
    """Abort the tool ``aborted`` once it has begun; another call goes on until a listener has heard of its end."""
    ended, began = anyio.Event(), anyio.Event()

    async def wait_for_the_end(tool_call_id: str, params: NoParams) -> str:
        await ended.wait()
        return "heard it"

    def hear(event: AgentEvent) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "c1":
            assert event.ending == ending
            ended.set()

    first = aborted(began)
    made = bench(calling(first.name, "other"), "went on", tools=[first, tool_of("other", wait_for_the_end)], **options)
    listen(made, hear)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        assert made.agent.abort_tool_call("c1", "not needed")
    return made


@over_all_listeners
@pytest.mark.parametrize("stored", [False, True])
async def test_its_end_is_heard_while_the_others_go_on(listen: Listen, stored: bool) -> None:
    async with MemoryCheckpointer() as store:
        options: dict[str, Any] = {"checkpointer": store, "thread_id": "t"} if stored else {}
        made = await _abort_beside_one_that_waits_for_the_end(partial(sleeping, "slow"), listen, "aborted", **options)
    assert made.texts == ["The call was cancelled by the user: not needed", "heard it"]
    await assert_well_ended(made)


async def _through_many_steps(steps: int) -> str:
    """Waits ``steps`` times: in a scope of its own, beside a task of its own, and under a shield."""
    for _ in range(steps):
        with anyio.CancelScope():
            await checkpoint()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(checkpoint)
            await checkpoint()
        with anyio.CancelScope(shield=True):
            await checkpoint()
    return "all steps"


def steady() -> AgentTool:
    async def execute(tool_call_id: str, params: NoParams) -> str:
        return await _through_many_steps(3)

    return tool_of("steady", execute)


def untidy() -> AgentTool:
    """Fails in its cleanup."""

    async def execute(tool_call_id: str, params: NoParams) -> str:
        try:
            return await _through_many_steps(3)
        finally:
            await checkpoint()
            raise ValueError("untidy")

    return tool_of("untidy", execute)


def stubborn() -> AgentTool:
    """Swallows its cancellation, waits once more, and returns."""

    async def execute(tool_call_id: str, params: NoParams) -> str:
        try:
            return await _through_many_steps(3)
        except BaseException:  # noqa: ASYNC103 - what must not be done
            with anyio.CancelScope(shield=True):
                await checkpoint()
            return "all the same"  # noqa: ASYNC104

    return tool_of("stubborn", execute)


MADE = {"steady": steady, "untidy": untidy, "stubborn": stubborn}
ABORTED = "The call was cancelled by the user."
TEXTS = {
    "steady": {"all steps", ABORTED},
    "untidy": {"untidy", ABORTED},
    "stubborn": {"all steps", "all the same"},
}
"""What the model reads of each, by the step; of any that had not begun, that it was aborted."""


async def _abort_after(
    steps: int, name: str, listen: Listen, limits: RunLimits, then: Callable[[Bench], object] | None = None
) -> tuple[Bench, bool, RunResult]:
    """Abort the second of three calls after so many steps; whether it was there then comes back too."""
    made = bench(calling("steady", name, "steady"), "went on", tools=[steady(), *_if_new(name)], limits=limits)
    listen(made, lambda event: None)
    aborted: list[bool] = []
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        for _ in range(steps):
            await checkpoint()
        aborted.append(made.agent.abort_tool_call("c2"))
        if then is not None:
            then(made)
    await assert_well_ended(made)
    return made, aborted[0], results[0]


def _if_new(name: str) -> list[AgentTool]:
    return [] if name == "steady" else [MADE[name]()]


async def _sweep(at_step: Callable[[int], Awaitable[bool]]) -> None:
    """Call ``at_step`` for one step after the other, until it has been there and has then been too late three times.

    On trio, who comes first in a step is left to chance.
    """
    before = running_tasks()
    was_there, too_late = False, 0
    for step in count():
        is_there = await at_step(step)
        assert running_tasks() == before, step
        was_there |= is_there
        too_late = 0 if is_there or not was_there else too_late + 1
        if too_late == 3:
            return


@over_all_listeners
@pytest.mark.parametrize("name", list(MADE))
@pytest.mark.parametrize("max_parallel", [None, 2])
async def test_at_every_step_it_ends_that_call_alone(name: str, listen: Listen, max_parallel: int | None) -> None:
    seen: set[str] = set()

    async def at_step(step: int) -> bool:
        limits = RunLimits(max_parallel_tools=max_parallel)
        made, was_there, result = await _abort_after(step, name, listen, limits)
        assert result.outcome == "completed"
        first, second, third = made.texts
        assert (first, third) == ("all steps", "all steps"), step
        seen.add(second)
        return was_there

    await _sweep(at_step)
    assert TEXTS[name] <= seen <= {*TEXTS[name], ABORTED}


@over_all_listeners
async def test_at_every_step_the_run_can_be_aborted_right_after_it(listen: Listen) -> None:
    async def at_step(step: int) -> bool:
        made, was_there, result = await _abort_after(
            step, "steady", listen, RunLimits(), then=lambda made: made.agent.abort("all of it")
        )
        if was_there:
            assert result.outcome == "aborted"
            assert made.texts[1] in (ABORTED, "all steps"), step
        return was_there

    await _sweep(at_step)


def in_a_thread(began: anyio.Event) -> AgentTool:
    def wait(tool_call_id: str, params: NoParams, *, signal: AbortSignal) -> str:
        from_thread.run_sync(began.set)
        until(signal.is_set)
        return f"ended by itself: {signal.reason}"

    return tool_of("listening", wait)


def cooperative(began: anyio.Event) -> AgentTool:
    async def wait(tool_call_id: str, params: NoParams, *, signal: AbortSignal) -> str:
        began.set()
        await signal.wait()
        await checkpoint()
        return f"ended by itself: {signal.reason}"

    return tool_of("listening", wait, cancellation="cooperative")


@over_all_listeners
@pytest.mark.parametrize("listening", [in_a_thread, cooperative])
async def test_a_tool_that_looks_at_its_signal_ends_by_itself_and_its_result_is_kept(
    listen: Listen, listening: Callable[[anyio.Event], AgentTool]
) -> None:
    made = await _abort_beside_one_that_waits_for_the_end(listening, listen, "finished")
    assert made.texts == ["ended by itself: not needed", "heard it"]
    await assert_well_ended(made)


@on_trio
@pytest.mark.parametrize("names", [["nursing"], ["nursing", "steady"]])
@pytest.mark.parametrize("way", ["abort", "abort_tool_call", "timeout"])
async def test_a_nursery_of_a_tool_that_ends_with_it_is_no_error(names: list[str], way: str) -> None:
    """trio's nurseries raise a group even of cancellations alone."""
    import trio  # noqa: PLC0415 - not everybody has it

    began = anyio.Event()

    async def nursing(tool_call_id: str, params: NoParams) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
            began.set()
        return "never"

    timeout = 0.01 if way == "timeout" else None
    made = bench(calling(*names), "went on", tools=[tool_of("nursing", nursing, timeout=timeout), steady()])
    result = await end_call(way, made, began.wait)
    assert result is not None
    assert result.outcome == ("aborted" if way == "abort" else "completed")
    assert made.results[0].details["ending"] == ENDING[way]
    await assert_well_ended(made)


async def test_a_group_of_cancellations_that_nobody_else_meant_is_a_failure_of_its_tool() -> None:
    async def odd(tool_call_id: str, params: NoParams) -> str:
        raise BaseExceptionGroup("all old", [await an_old_cancellation()])

    made = bench(calling("odd", "steady"), "went on", tools=[tool_of("odd", odd), steady()])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert [one.details and one.details["ending"] for one in made.results] == ["failed", None]
    assert "cancelled itself" in made.texts[0]
