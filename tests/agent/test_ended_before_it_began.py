"""A tool whose call, or whose run, is ended before it began never begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentTool, BeforeToolCallResult, Middleware, ToolCall
from tests.support.agents import Bench, NoParams, assert_well_ended, bench, calling, tool_of
from tests.support.onions import only

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

KINDS = ["async", "thread", "cooperative"]
ENDS = ["abort", "scope", "abort_tool_call"]
MOMENTS = [
    "tool_execution_start",
    "async tool_execution_start",
    "message_end",
    "resolve",
    "before",
    "around",
    "shielded",
]


class World:
    """An agent whose only tool notes that it began, and one place that ends its run, or its call."""

    def __init__(self, kind: str, moment: str, how: str, *, calls: int = 2, **options: Any) -> None:
        self.began: list[str] = []
        self.after: list[str] = []
        self.scope = anyio.CancelScope()
        self.how = how
        self.made: Bench = bench(
            calling(*["do"] * calls), "done", tools=[self._tool(kind)], middleware=[self._middleware(moment)], **options
        )
        if moment in ("tool_execution_start", "message_end"):
            self.unsubscribe = self.made.agent.subscribe(self._listener(moment))
        elif moment == "async tool_execution_start":
            self.unsubscribe = self.made.agent.subscribe(self._async_listener("tool_execution_start"))
        else:
            self.unsubscribe = lambda: None

    def _tool(self, kind: str) -> AgentTool:
        async def run(tool_call_id: str, params: NoParams) -> str:
            self.began.append(tool_call_id)
            return "ran"

        def run_in_thread(tool_call_id: str, params: NoParams) -> str:
            self.began.append(tool_call_id)
            return "ran"

        if kind == "thread":
            return tool_of("do", run_in_thread)
        return tool_of("do", run, cancellation="cooperative" if kind == "cooperative" else "immediate")

    def end(self) -> None:
        if self.how == "abort":
            self.made.agent.abort()
        elif self.how == "scope":
            self.scope.cancel()
        else:
            self.made.agent.abort_tool_call("c1")

    def _listener(self, moment: str) -> Callable[[Any], None]:
        def listen(event: Any) -> None:
            if self._is(moment, event):
                self.end()

        return listen

    def _async_listener(self, moment: str) -> Callable[[Any], Any]:
        async def listen(event: Any) -> None:
            if self._is(moment, event):
                self.end()

        return listen

    def _is(self, moment: str, event: Any) -> bool:
        if moment == "message_end":
            return event.type == moment and event.message.role == "assistant"
        return event.type == moment and event.tool_call_id == "c1"

    def _middleware(self, moment: str) -> Middleware:
        world = self

        class Ending(Middleware):
            async def after_tool_call(self, call: Any, *, signal: Any) -> None:
                world.after.append(call.tool_call.id)

        ending = Ending()
        if moment == "resolve":

            async def resolve(call: ToolCall) -> None:
                world.end()

            ending.resolve_tool_call = resolve  # pyright: ignore[reportAttributeAccessIssue]
        elif moment in ("before", "shielded"):

            async def before(call: Any) -> BeforeToolCallResult | None:
                with anyio.CancelScope(shield=moment == "shielded"):
                    world.end()
                    if moment == "shielded":
                        await anyio.lowlevel.checkpoint()
                return None

            ending.before_tool_call = before  # pyright: ignore[reportAttributeAccessIssue]
        elif moment == "around":

            async def around(call: ToolCall, proceed: Any) -> Any:
                world.end()
                return await proceed()

            return only("around_tool_call", around)
        return ending

    async def run(self) -> str | None:
        outcome = None
        with self.scope:
            outcome = (await self.made.agent.prompt("hi")).outcome
        self.unsubscribe()
        return outcome


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ["abort", "scope"])
async def test_no_tool_begins_in_a_run_that_was_ended_before(kind: str, moment: str, how: str) -> None:
    execution = "sequential" if kind == "async" else "parallel"
    world = World(kind, moment, how, tool_execution=execution)
    assert await world.run() == ("aborted" if how == "abort" else None)
    assert (world.began, world.after) == ([], [])
    assert [result.details["ending"] for result in world.made.results] == ["cancelled"] * 2
    await assert_well_ended(world.made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment != "message_end"])
async def test_a_call_that_was_ended_before_it_began_never_does_and_the_other_goes_on(kind: str, moment: str) -> None:
    world = World(kind, moment, "abort_tool_call")
    assert await world.run() == "completed"
    assert (world.began, world.after) == (["c2"], [] if moment == "around" else ["c2"])
    assert [result.details["ending"] for result in world.made.results[:1]] == ["aborted"]
    assert world.made.texts[1] == "ran"
    await assert_well_ended(world.made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_single_call_does_not_begin_either(kind: str, moment: str) -> None:
    for how in ENDS if moment != "message_end" else ENDS[:2]:
        world = World(kind, moment, how, calls=1)
        assert await world.run() == {"abort": "aborted", "scope": None}.get(how, "completed")
        assert world.began == []
        await assert_well_ended(world.made)
