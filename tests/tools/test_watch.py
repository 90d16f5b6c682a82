"""Tools that take their time when they are cancelled: waited for, and named if they take too long."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import RunLimits
from tests.support.agents import NoParams, assert_well_ended, bench, calling, running_tasks, saying, tool_of
from tests.support.backends import on_asyncio
from tests.support.threads import until
from tests.tools.ways import ENDING, WAYS, end_call, timeout_for

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the library itself warned of; asyncio in debug mode has warnings of its own."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("cubepi_anyio")]


async def _check_cleanup(
    way: str, seconds: float, settle_timeout: float, during: Callable[[], object] = bool
) -> tuple[Any, list[str]]:
    """Run a tool whose cleanup takes ``seconds`` under a shield of its own; return its bench and what it noted."""
    began, noted = anyio.Event(), list[str]()

    async def careful(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            noted.append("cleaning")
            with anyio.CancelScope(shield=True):
                await anyio.sleep(seconds)
                during()
            noted.append("clean")
        return "never"

    before = running_tasks()
    limits = RunLimits(settle_timeout=settle_timeout)
    tools = [tool_of("careful", careful, timeout=timeout_for(way))]
    made = bench(calling("careful"), "done", tools=tools, limits=limits)
    await end_call(way, made, began.wait)
    assert running_tasks() == before
    return made, noted


async def _check_in_time(way: str, caplog: pytest.LogCaptureFixture) -> None:
    made, noted = await _check_cleanup(way, seconds=0.2, settle_timeout=5.0)
    assert noted == ["cleaning", "clean"]
    assert made.results[0].details["ending"] == ENDING[way]
    assert warnings_of(caplog) == []
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_cleanup_under_the_tool_s_own_shield_is_waited_for(way: str, caplog: pytest.LogCaptureFixture) -> None:
    await _check_in_time(way, caplog)


@on_asyncio
async def test_cleanup_under_a_shield_is_waited_for_at_a_native_cancel(caplog: pytest.LogCaptureFixture) -> None:
    await _check_in_time("native", caplog)


async def _check_too_long(way: str, caplog: pytest.LogCaptureFixture) -> None:
    made, noted = await _check_cleanup(way, seconds=0.4, settle_timeout=0.1)
    assert noted == ["cleaning", "clean"]
    [result] = made.results
    assert result.details["ending"] == "ignored_cancellation"
    assert 0.39 <= result.details["seconds"] < 5
    assert result.is_error
    assert made.labels.count("tool_execution_end:c1:ignored_cancellation") == 1
    said = warnings_of(caplog)
    assert len(said) == 1
    assert "tool 'careful' (call c1)" in said[0]
    assert f"{__file__}:" in said[0]
    assert "careful" in said[0].rpartition(" in ")[2]
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_what_takes_longer_than_the_settle_timeout_is_named_with_its_place(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    await _check_too_long(way, caplog)


@on_asyncio
async def test_what_takes_too_long_after_a_native_cancel_is_named(caplog: pytest.LogCaptureFixture) -> None:
    await _check_too_long("native", caplog)


async def test_a_tool_that_holds_up_the_event_loop_is_named_while_it_does(caplog: pytest.LogCaptureFixture) -> None:
    began, named = anyio.Event(), list[bool]()

    async def block(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            until(lambda: "tool 'block'" in caplog.text)  # in the event loop, what must not be done
            named.append("tool 'block'" in caplog.text)
        return "never"

    limits = RunLimits(settle_timeout=0.1)
    made = bench(calling("block"), "never", tools=[tool_of("block", block)], limits=limits)
    await end_call("abort", made, began.wait)
    assert named == [True]
    assert "block" in caplog.text.rpartition(" in ")[2]
    await assert_well_ended(made)


async def test_a_scope_of_the_tool_s_own_is_no_cancellation_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def impatient(tool_call_id: str, params: NoParams) -> str:
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()
        await anyio.sleep(0.2)
        return "took its time"

    limits = RunLimits(settle_timeout=0.05)
    made = bench(calling("impatient"), "done", tools=[tool_of("impatient", impatient)], limits=limits)
    await made.agent.prompt("hi")
    assert made.texts == ["took its time"]
    assert made.labels.count("tool_execution_end:c1:finished") == 1
    assert warnings_of(caplog) == []


async def _check_swallowed(way: str) -> None:
    began = anyio.Event()

    async def swallow(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            return "done all the same"
        return "never"

    made = bench(calling("swallow", "say"), "never", tools=[tool_of("swallow", swallow), saying("say")])
    await end_call(way, made, began.wait)
    assert made.texts == ["done all the same", "say"]
    assert made.provider.call_count == 1
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_tool_that_swallows_its_cancellation_does_not_keep_the_run_from_ending(way: str) -> None:
    await _check_swallowed(way)


@on_asyncio
async def test_a_tool_that_swallows_a_native_cancel_does_not_keep_it_from_leaving() -> None:
    await _check_swallowed("native")


async def test_what_watched_holds_nothing_of_a_run_that_is_over() -> None:
    class Held:
        """Something a call holds."""

    async def end_one() -> weakref.ref[Held]:
        held, began = Held(), anyio.Event()

        async def hold(tool_call_id: str, params: NoParams, *, held: Held = held) -> str:
            began.set()
            await anyio.sleep_forever()
            return str(held)

        made = bench(calling("hold"), tools=[tool_of("hold", hold)], limits=RunLimits(settle_timeout=30.0))
        await end_call("abort", made, began.wait)
        await assert_well_ended(made)
        return weakref.ref(held)

    ref = await end_one()
    assert all(thread.daemon for thread in threading.enumerate() if "watchdog" in thread.name)
    gc.collect()
    assert ref() is None
