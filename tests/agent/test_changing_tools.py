"""Tools that change between turns: a source that is asked at each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    AgentTool,
    DuplicateToolName,
    Middleware,
    RateLimited,
    RunContext,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from tests.hitl.restarts import YES
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    saying,
    sleeping,
    tool_of,
)
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


class Source:
    """Has one tool more at each turn: ``t1``, then ``t1`` and ``t2``, …"""

    def __init__(self, name: str = "t") -> None:
        self.name = name
        self.asked: list[int] = []

    def tools(self, ctx: RunContext[Any]) -> Sequence[AgentTool]:
        self.asked.append(ctx.turn)
        return [saying(f"{self.name}{number}") for number in range(1, len(self.asked) + 1)]

    async def later(self, ctx: RunContext[Any]) -> Sequence[AgentTool]:
        await anyio.lowlevel.checkpoint()
        return self.tools(ctx)


def offered(made: Bench) -> list[list[str]]:
    """The names of the tools that the model was told of, at each request."""
    return [[tool.name for tool in call.tools or ()] for call in made.provider.calls]


FORMS: dict[str, Callable[[Source], Any]] = {
    "a function": lambda source: source.tools,
    "an async function": lambda source: source.later,
    "a lambda": lambda source: lambda ctx: source.tools(ctx),
    "an object": lambda source: source,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
async def test_an_agent_asks_its_source_once_a_turn(form: Callable[[Source], Any]) -> None:
    source = Source()
    made = bench(calling("t1"), calling("t2"), "done", tools=form(source))
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert (source.asked, made.texts) == ([1, 2, 3], ["t1", "t2"])
    assert offered(made) == [["t1"], ["t1", "t2"], ["t1", "t2", "t3"]]
    await assert_well_ended(made)


async def test_middleware_brings_a_source_as_a_method_or_as_a_value() -> None:
    class ByMethod(Middleware):
        source = Source("m")

        def tools(self, ctx: RunContext[Any]) -> Sequence[AgentTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
            return self.source.tools(ctx)

    class ByAsyncMethod(Middleware):
        source = Source("n")

        async def tools(self, ctx: RunContext[Any]) -> Sequence[AgentTool]:  # pyright: ignore[reportIncompatibleVariableOverride]
            return self.source.tools(ctx)

    by_value = Middleware()
    by_value.tools = Source("v")
    made = bench(
        calling("m1", "n1", "v1", "own"),
        "done",
        tools=[saying("own")],
        middleware=[ByMethod(), ByAsyncMethod(), by_value],
    )
    await made.agent.prompt("hi")
    assert made.texts == ["m1", "n1", "v1", "own"]
    assert offered(made) == [["own", "m1", "n1", "v1"], ["own", "m1", "m2", "n1", "n2", "v1", "v2"]]
    await assert_well_ended(made)


async def test_tries_of_a_turn_do_not_ask_again() -> None:
    source = Source()
    made = bench(RateLimited("wait"), RateLimited("wait"), calling("t1"), "done", tools=source)
    made.agent.state.model = RetryModel(made.agent.state.model, RetryPolicy(initial_delay_seconds=0))
    await made.agent.prompt("hi")
    assert (source.asked, made.texts) == ([1, 2], ["t1"])
    assert offered(made) == [["t1"]] * 3 + [["t1", "t2"]]


async def test_a_request_that_is_made_again_by_middleware_has_the_same_tools() -> None:
    source = Source()

    class Again(Middleware):
        async def around_model_call(self, proceed: Any, *, ctx: Any) -> Any:
            outcome = await proceed()
            return await proceed() if outcome.error is not None else outcome

    made = bench(RateLimited("wait"), "done", tools=source, middleware=[Again()])
    await made.agent.prompt("hi")
    assert (source.asked, offered(made)) == ([1], [["t1"], ["t1"]])


async def test_a_turn_that_is_under_way_sees_no_change() -> None:
    names = ["change", "old"]

    async def change(tool_call_id: str, params: NoParams) -> str:
        names[:] = ["change", "new"]
        return ", ".join(tool.name for tool in made.agent.state.tools)

    def source(ctx: RunContext[Any]) -> list[AgentTool]:
        return [tool_of("change", change), *(saying(name) for name in names if name != "change")]

    made = bench(calling("change", "old", "new"), calling("old", "new"), "done", tools=source)
    made.agent.tool_execution = "sequential"
    await made.agent.prompt("hi")
    assert made.texts == [
        "change, old",
        "old",
        "There is no tool named 'new'. The tools are: change, old.",
        "There is no tool named 'old'. The tools are: change, new.",
        "new",
    ]
    await assert_well_ended(made)


async def test_assigning_tools_in_a_run_holds_from_the_next_one() -> None:
    async def change(tool_call_id: str, params: NoParams) -> str:
        made.agent.state.tools = [saying("new")]
        return "changed"

    made = bench(
        calling("change"), calling("change"), "done", calling("new"), "done", tools=[tool_of("change", change)]
    )
    await made.agent.prompt("hi")
    await made.agent.prompt("hi")
    assert (made.texts, offered(made)) == (["changed", "changed", "new"], [["change"]] * 3 + [["new"]] * 2)


async def test_the_state_shows_the_tools_of_the_turn_and_none_between_runs() -> None:
    source, seen = Source(), list[list[str]]()

    def look(event: Any) -> None:
        if event.type in ("message_end", "agent_end"):
            seen.append([tool.name for tool in made.agent.state.tools])

    made = bench(calling("t1"), "done", tools=source)
    assert made.agent.state.tools == []
    made.agent.subscribe(look)
    await made.agent.prompt("hi")
    assert seen == [[], ["t1"], ["t1"], ["t1", "t2"], ["t1", "t2"]]
    assert made.agent.state.tools == []


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ([saying("say"), saying("say")], DuplicateToolName, "say"),
        (["no tool"], TypeError, "a tool is an AgentTool, not str"),
        ("say", TypeError, "a sequence of AgentTool, not str"),
        (None, TypeError, "a sequence of AgentTool, not NoneType"),
        (saying("say"), TypeError, "a sequence of AgentTool, not AgentTool"),
    ],
)
async def test_what_is_no_set_of_tools_ends_the_run_as_a_hook_s_error_does(
    given: Any, error: type[Exception], text: str
) -> None:
    made = bench("never", tools=lambda ctx: given)
    with pytest.raises(error, match=text):
        await made.agent.prompt("hi")
    assert (made.provider.call_count, made.labels[-1]) == (0, "agent_end:error")
    assert balance_faults(made.events) == []
    assert not made.agent.state.is_running


async def test_a_name_that_two_sources_have_in_one_turn_ends_the_run() -> None:
    extra = Middleware()
    extra.tools = lambda ctx: [saying("say")] if ctx.turn == 2 else []
    made = bench(calling("say"), "never", tools=[saying("say")], middleware=[extra])
    with pytest.raises(DuplicateToolName, match="say"):
        await made.agent.prompt("hi")
    assert (made.texts, made.provider.call_count) == (["say"], 1)
    assert balance_faults(made.events) == []


async def test_what_a_source_raises_leaves_as_itself() -> None:
    bug = ZeroDivisionError("no tools")

    async def source(ctx: RunContext[Any]) -> list[AgentTool]:
        raise bug

    made = bench("never", tools=source)
    with pytest.raises(ZeroDivisionError) as caught:
        await made.agent.prompt("hi")
    assert caught.value is bug
    assert balance_faults(made.events) == []


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_source_that_is_waited_for_ends_with_the_run(way: str) -> None:
    waits = anyio.Event()

    async def source(ctx: RunContext[Any]) -> list[AgentTool]:
        if waits.is_set():
            return []
        waits.set()
        await anyio.sleep_forever()
        return []

    made = bench("never", tools=source)
    await end_call(way, made, waits.wait)
    assert made.provider.call_count == 0
    await assert_well_ended(made)


async def test_a_source_is_asked_when_a_batch_goes_on_that_had_waited() -> None:
    source = Source()
    async with MemoryCheckpointer() as store:
        channel = DurableChannel()
        made = bench(
            calling("t1"),
            "done",
            tools=source,
            middleware=[ConfirmToolCall(channel, "t1")],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        result = await made.agent.prompt("hi")
        assert (result.outcome, source.asked) == ("suspended", [1])
        result = await made.agent.respond(result.requests[0].id, YES)
        assert (result.outcome, source.asked, made.texts) == ("completed", [1, 1, 2], ["t1"])
        assert offered(made) == [["t1"], ["t1", "t2", "t3"]]


async def test_a_call_that_waited_for_a_tool_that_is_gone_is_refused() -> None:
    async with MemoryCheckpointer() as store:
        channel = DurableChannel()
        tools = [saying("say")]
        made = bench(
            calling("say"),
            "done",
            tools=lambda ctx: list(tools),
            middleware=[ConfirmToolCall(channel, "say")],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        result = await made.agent.prompt("hi")
        tools.clear()
        result = await made.agent.respond(result.requests[0].id, YES)
        assert result.outcome == "completed"
        assert made.texts == ["There is no tool named 'say'. The tools are: none."]


@pytest.mark.parametrize("tools", ["say", 7, ["no tool"], object()])
async def test_what_can_be_no_source_is_refused_when_the_agent_is_made(tools: Any) -> None:
    with pytest.raises(TypeError):
        bench("never", tools=tools)


async def test_a_tool_of_a_source_may_wait_and_be_ended_like_others() -> None:
    began = anyio.Event()
    made = bench(calling("sleep"), tools=lambda ctx: [sleeping("sleep", began)])
    await end_call("abort", made, began.wait)
    assert [result.details["ending"] for result in made.results] == ["cancelled"]
    await assert_well_ended(made)
