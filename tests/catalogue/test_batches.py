"""What users reported of calls that run at the same time (topic b of the public reports)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import faux_assistant_message, faux_tool_call
from cubepi_anyio.hooks import Middleware
from cubepi_anyio.tools.hooks import BeforeToolCallResult
from tests.support.agents import NoParams, assert_well_ended, bench, calling, saying, tool_of

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


class Vetoing(Middleware):
    """Lets nobody call ``forbidden``."""

    async def before_tool_call(self, call: Any, *, signal: Any) -> BeforeToolCallResult | None:
        if call.tool_call.name == "forbidden":
            return BeforeToolCallResult(block=True, reason="not on my watch")
        return None


async def test_results_stand_in_the_order_of_the_calls_although_one_was_vetoed_early_and_one_is_late() -> None:
    """B29, B114."""
    vetoed = anyio.Event()

    async def late(tool_call_id: str, params: NoParams) -> str:
        await vetoed.wait()
        return "late"

    tools = [tool_of("late", late), saying("forbidden"), saying("say")]
    made = bench(calling("late", "forbidden", "say"), "done", tools=tools, middleware=[Vetoing()])

    def note(event: Any) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "c2":
            vetoed.set()

    made.agent.subscribe(note)
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert [(answer.tool_call_id, answer.text, answer.is_error) for answer in made.results] == [
        ("c1", "late", False),
        ("c2", "not on my watch", True),
        ("c3", "say", False),
    ]
    [end] = [e for e in made.events if e.type == "tool_execution_end" and e.tool_call_id == "c2"]
    assert (end.blocked_by_hook, end.block_reason, end.ending) == (True, "not on my watch", "refused")
    await assert_well_ended(made)


async def test_a_sequential_tool_overlaps_nobody_and_keeps_its_place() -> None:
    """B33."""
    spans: list[str] = []

    async def work(tool_call_id: str, params: NoParams) -> str:
        spans.append(f"{tool_call_id} begins")
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        spans.append(f"{tool_call_id} ends")
        return tool_call_id

    tools = [tool_of("free", work), tool_of("alone", work, execution_mode="sequential")]
    made = bench(calling("free", "alone", "free"), "done", tools=tools)
    await made.agent.prompt("hi")
    assert spans == [f"c{n} {what}" for n in (1, 2, 3) for what in ("begins", "ends")]


async def test_one_benign_failure_among_many_is_one_error() -> None:
    """B27."""
    met, waiting = anyio.Event(), 4

    async def work(tool_call_id: str, params: NoParams) -> str:
        nonlocal waiting
        if tool_call_id == "c3":
            raise ValueError("no match")
        waiting -= 1
        if not waiting:
            met.set()
        await met.wait()
        return tool_call_id

    made = bench(calling(*["work"] * 5), "done", tools=[tool_of("work", work)])
    await made.agent.prompt("hi")
    assert made.texts == ["c1", "c2", "no match", "c4", "c5"]
    assert [result.is_error for result in made.results] == [False, False, True, False, False]


async def test_a_failing_hook_cancels_the_siblings_and_the_results_that_were_reached_are_kept() -> None:
    """B26, B28: the hook's error is a bug of the program and reaches it, as itself, when nothing runs any more."""
    ticks, first = 0, anyio.Event()

    class Failing(Middleware):
        async def after_tool_call(self, call: Any, *, signal: Any) -> None:
            if call.tool_call.id == "c2":
                await first.wait()
                raise LookupError("a bug in the hook")

    async def tick(tool_call_id: str, params: NoParams) -> str:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.001)

    tools = [saying("say", "real"), tool_of("tick", tick)]
    made = bench(calling("say", "say", "tick"), "never", tools=tools, middleware=[Failing()])

    def note(event: Any) -> None:
        if event.type == "tool_execution_end" and event.tool_call_id == "c1":
            first.set()

    made.agent.subscribe(note)
    with pytest.raises(LookupError, match="a bug in the hook"):
        await made.agent.prompt("hi")
    after = ticks
    await anyio.sleep(0.03)
    assert ticks == after
    assert made.texts[0] == "real"
    assert made.results[2].details["ending"] == "cancelled"
    assert [result.tool_call_id for result in made.results] == ["c1", "c2", "c3"]


async def test_a_call_to_a_tool_that_is_gone_is_answered_among_the_others() -> None:
    """B71, B115."""
    calls = [
        faux_tool_call("say", {}, id="c1"),
        faux_tool_call("serch", {}, id="c2"),
        faux_tool_call("say", {}, id="c3"),
    ]
    made = bench(faux_assistant_message(calls), "done", tools=[saying("say"), saying("search")])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert made.texts == ["say", "There is no tool named 'serch'. The tools are: say, search.", "say"]
