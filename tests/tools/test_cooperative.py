"""Cooperative tools: told by their signal, given their grace, cancelled when it is over; in each way to be ended."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentToolResult
from tests.support.agents import NoParams, assert_well_ended, bench, calling, running_tasks, sleeping, tool_of
from tests.support.backends import on_asyncio
from tests.support.threads import until
from tests.tools.ways import ENDING, REASON, WAYS, end_call, timeout_for

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

LISTENED = ["abort", "abort_tool_call"]
"""The ways in which somebody gives a reason."""


def cooperative(name: str, execute: Any, *, way: str = "abort") -> Any:
    return tool_of(name, execute, cancellation="cooperative", grace=8.0, timeout=timeout_for(way))


async def _check_result(way: str) -> None:
    began, told = anyio.Event(), list[tuple[bool, str | None]]()

    async def tidy(tool_call_id: str, params: NoParams, *, signal: Any, on_update: Any) -> AgentToolResult:
        began.set()
        await signal.wait()
        told.append((signal.is_set(), signal.reason))
        await anyio.sleep(0.02)
        on_update("tidied")
        return AgentToolResult("three of ten done", {"done": 3})

    before = running_tasks()
    made = bench(calling("tidy"), "done", tools=[cooperative("tidy", tidy, way=way)])
    result = await end_call(way, made, began.wait)
    assert running_tasks() == before
    assert told == [(True, REASON if way in LISTENED else "cancelled")]
    assert [(answer.text, answer.details, answer.is_error) for answer in made.results] == [
        ("three of ten done", {"done": 3}, False)
    ]
    ends = ["tool_execution_start:c1", "tool_execution_update:c1", "tool_execution_end:c1:finished"]
    assert [label for label in made.labels if label.startswith("tool_")] == ends
    assert (result.outcome if result else None) == {
        "abort": "aborted",
        "abort_tool_call": "completed",
        "timeout": "completed",
    }.get(way)
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_what_it_returns_within_its_grace_is_the_result(way: str) -> None:
    await _check_result(way)


@on_asyncio
async def test_what_it_returns_within_its_grace_is_the_result_of_a_native_cancel_too() -> None:
    await _check_result("native")


async def _check_deaf(way: str) -> None:
    began = anyio.Event()
    tools = [sleeping("sleep", began, cancellation="cooperative", grace=0.1, timeout=timeout_for(way))]
    before = running_tasks()
    made = bench(calling("sleep"), "done", tools=tools)
    await end_call(way, made, began.wait)
    assert running_tasks() == before
    assert made.results[0].details["ending"] == ENDING[way]
    assert made.labels.count(f"tool_execution_end:c1:{ENDING[way]}") == 1
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_one_that_does_not_listen_is_cancelled(way: str) -> None:
    await _check_deaf(way)


@on_asyncio
async def test_one_that_does_not_listen_is_cancelled_by_a_native_cancel() -> None:
    await _check_deaf("native")


@pytest.mark.virtual_clock
async def test_the_grace_lasts_as_long_as_it_says() -> None:
    began = anyio.Event()
    made = bench(calling("sleep"), tools=[sleeping("sleep", began, cancellation="cooperative", grace=70.0)])
    cancelled_at = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        cancelled_at = anyio.current_time()
        made.agent.abort()
    assert anyio.current_time() - cancelled_at == pytest.approx(70.0)


@pytest.mark.virtual_clock
async def test_a_timeout_is_followed_by_the_grace() -> None:
    tools = [sleeping("sleep", cancellation="cooperative", grace=7.0, timeout=30.0)]
    made = bench(calling("sleep"), "done", tools=tools)
    began = anyio.current_time()
    await made.agent.prompt("hi")
    assert anyio.current_time() - began == pytest.approx(37.0)
    assert made.results[0].details == {"ending": "timed_out", "timeout_seconds": 30.0}


async def test_one_that_raises_within_its_grace_has_its_run_end_all_the_same() -> None:
    began = anyio.Event()

    async def give_up(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        await signal.wait()
        raise RuntimeError("could not tidy up")

    made = bench(calling("give_up"), "never", tools=[cooperative("give_up", give_up)])
    result = await end_call("abort", made, began.wait)
    assert result is not None
    assert result.outcome == "aborted"
    assert made.results[0].is_error
    assert made.texts == ["could not tidy up"]
    await assert_well_ended(made)


async def test_a_plain_function_has_its_grace_too() -> None:
    began, token = anyio.Event(), anyio.lowlevel.current_token()

    def tidy(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        anyio.from_thread.run_sync(began.set, token=token)
        until(signal.is_set)
        threading.Event().wait(0.8)  # longer than an immediate tool would be given
        return "three of ten done"

    made = bench(calling("tidy"), "never", tools=[tool_of("tidy", tidy, cancellation="cooperative", grace=8.0)])
    await end_call("abort", made, began.wait)
    assert made.texts == ["three of ten done"]
    await assert_well_ended(made)


async def test_siblings_are_cancelled_at_once_and_wait_for_it() -> None:
    began, may_end, cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    async def tidy(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        await signal.wait()
        await cancelled.wait()
        may_end.set()
        return "tidied"

    async def notice(tool_call_id: str, params: NoParams) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return "never"

    made = bench(calling("tidy", "notice"), "never", tools=[cooperative("tidy", tidy), tool_of("notice", notice)])
    await end_call("abort", made, began.wait)
    assert may_end.is_set()
    assert [label for label in made.labels if label.startswith("tool_execution_end")] in (
        ["tool_execution_end:c2:cancelled", "tool_execution_end:c1:finished"],
        ["tool_execution_end:c1:finished", "tool_execution_end:c2:cancelled"],
    )
    assert made.texts[0] == "tidied"
    await assert_well_ended(made)
