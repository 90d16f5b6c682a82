"""What users reported of runs that do not stop, or stop wrongly (topics a, k and m of the public reports)."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from cubepi_anyio import AssistantMessage, RunLimits, ToolResultMessage
from cubepi_anyio.hooks import Middleware
from tests.support.agents import NoParams, assert_well_ended, bench, calling, sleeping, tool_of
from tests.support.backends import on_asyncio
from tests.support.threads import until
from tests.tools.ways import REASON, end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


async def _check_ticks(way: str) -> None:
    ticks, ticking = 0, anyio.Event()

    async def tick(tool_call_id: str, params: NoParams) -> str:
        nonlocal ticks
        while True:
            ticks += 1
            if ticks == 5:
                ticking.set()
            await anyio.sleep(0.001)

    made = bench(calling("tick", "tick"), "never", tools=[tool_of("tick", tick)])
    await end_call(way, made, ticking.wait)
    after = ticks
    await anyio.sleep(0.05)
    assert ticks == after


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_cancelled_tool_does_not_tick_once_more(way: str) -> None:
    """B02."""
    await _check_ticks(way)


@on_asyncio
async def test_a_tool_does_not_tick_once_more_after_a_native_cancel() -> None:
    """B02."""
    await _check_ticks("native")


async def test_a_run_can_be_ended_after_its_turn_with_every_result_kept() -> None:
    """B06: no result is thrown away and the model is not asked again."""
    began, stop = anyio.Event(), False

    class Graceful(Middleware):
        async def should_stop_after_turn(self, message: Any, tool_results: Any, *, ctx: Any, signal: Any) -> bool:
            return stop

    async def work(tool_call_id: str, params: NoParams) -> str:
        began.set()
        await anyio.sleep(0.01)
        return tool_call_id

    made = bench(calling("work", "work"), "never", tools=[tool_of("work", work)], middleware=[Graceful()])
    results: list[Any] = []
    async with anyio.create_task_group() as tasks:

        async def prompt() -> None:
            results.append(await made.agent.prompt("hi"))

        tasks.start_soon(prompt)
        await began.wait()
        stop = True
    assert (results[0].outcome, made.texts, made.provider.call_count) == ("completed", ["c1", "c2"], 1)
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_cleanup_that_awaits_needs_a_shield_and_has_one_in_the_library(way: str) -> None:
    """B42: a bare ``await`` in ``finally`` is cancelled again; one under a shield is not; the record is whole."""
    began, noted = anyio.Event(), list[str]()

    async def bare(tool_call_id: str, params: NoParams) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            try:
                await anyio.sleep(0.01)  # noqa: ASYNC102 - what is shown
                noted.append("bare")
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                    noted.append("shielded")
        return "never"

    made = bench(calling("sleep", "bare"), "never", tools=[sleeping("sleep", began), tool_of("bare", bare)])
    await end_call(way, made, began.wait)
    assert noted == ["shielded"]
    await assert_well_ended(made)


async def test_a_stop_with_a_reason_reaches_every_worker_and_is_no_failure_of_theirs() -> None:
    """B116."""
    token, ready, waiting = anyio.lowlevel.current_token(), anyio.Event(), 4
    reasons: list[str | None] = []

    def arrive() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            ready.set()

    async def sleep(tool_call_id: str, params: NoParams) -> str:
        arrive()
        await anyio.sleep_forever()
        return "never"

    def poll(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        anyio.from_thread.run_sync(arrive, token=token)
        until(signal.is_set)
        reasons.append(signal.reason)
        return "stopped half-way"

    made = bench(
        calling("sleep", "poll", "sleep", "poll"), "never", tools=[tool_of("sleep", sleep), tool_of("poll", poll)]
    )
    result = await end_call("abort", made, ready.wait)
    assert result is not None
    assert (result.outcome, result.abort_reason, reasons) == ("aborted", REASON, [REASON, REASON])
    assert made.provider.call_count == 1
    cancelled = f"The call was cancelled before it was complete: the run was aborted ({REASON})"
    assert made.texts == [cancelled, "stopped half-way", cancelled, "stopped half-way"]
    await assert_well_ended(made)


async def test_a_tool_s_own_timeout_error_is_its_failure_and_no_timeout_of_the_call() -> None:
    """B89."""

    async def connect(tool_call_id: str, params: NoParams) -> str:
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()
        return "never"

    made = bench(calling("connect"), "done", tools=[tool_of("connect", connect)], limits=RunLimits(tool_timeout=5.0))
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert made.results[0].details == {"ending": "failed", "error_type": "TimeoutError"}


async def test_a_stopped_run_keeps_what_it_was_told_in_the_order_any_vendor_takes() -> None:
    """B01."""
    began = anyio.Event()
    made = bench(calling("sleep", "sleep", text="let me see"), "never", tools=[sleeping("sleep", began)])
    await end_call("scope", made, began.wait)
    assert made.roles == ["user", "assistant", "tool_result", "tool_result"]
    made.provider.set_responses(["here you are"])
    await made.agent.prompt("and now?")
    asked = made.asked()
    assert [message.role for message in asked] == [*made.roles[:4], "user"]
    assert isinstance(asked[1], AssistantMessage)
    assert [message.tool_call_id for message in asked if isinstance(message, ToolResultMessage)] == ["c1", "c2"]


@on_asyncio
async def test_a_task_that_was_cancelled_before_its_run_hears_of_it_and_asks_no_model() -> None:
    """B5d of the reference: the cancellation is not taken for one that the provider aimed at itself."""
    made = bench("never")

    async def prompt() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await made.agent.prompt("hi")

    task = asyncio.create_task(prompt())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert (made.provider.call_count, made.labels) == (0, ["agent_start", "agent_end:aborted"])
    await assert_well_ended(made)
