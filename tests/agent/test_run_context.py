"""``RunContext``: what hooks and tools know of their run, and the little they may do to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    FauxResponse,
    Message,
    Middleware,
    RunContext,
    RunLimits,
    ToolContext,
    Usage,
    tool,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hooks.around import Proceed
from cubepi_anyio.testing.context import RunByHand, run_context
from tests.support.agents import NoParams, assert_well_ended, balance_faults, bench, calling, saying, tool_of
from tests.support.onions import only

from .test_notes import Watched

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


@dataclass
class Deps:
    """What a program gives its tools."""

    user: str


@dataclass
class Progress:
    """An event of the application's own."""

    text: str
    type: str = field(default="progress", init=False)


# --- who gets it -----------------------------------------------------------------------------


async def test_tools_get_it_as_ctx_as_context_and_by_their_annotation() -> None:
    seen: list[RunContext[Any]] = []

    async def by_ctx(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        seen.append(ctx)
        return "ok"

    def by_context(tool_call_id: str, params: NoParams, *, context: ToolContext) -> str:
        seen.append(context)
        return "ok"

    @tool
    async def annotated(whatever: RunContext[Deps]) -> str:
        """Annotated."""
        seen.append(whatever)
        return "ok"

    tools = [tool_of("by_ctx", by_ctx), tool_of("by_context", by_context), annotated]
    made = bench(calling("by_ctx", "by_context", "annotated"), "done", tools=tools)
    result = await made.agent.prompt("hi")
    assert made.texts == ["ok"] * 3
    assert sorted((ctx.tool_name, ctx.tool_call_id, ctx.run_id) for ctx in seen) == [
        ("annotated", "c3", result.run_id),
        ("by_context", "c2", result.run_id),
        ("by_ctx", "c1", result.run_id),
    ]
    assert "whatever" not in str(annotated.definition.parameters)


async def test_a_call_and_its_hooks_share_one_context_and_outside_of_a_call_it_has_none() -> None:
    seen: list[RunContext[Any]] = []

    class Hooks(Middleware):
        async def before_tool_call(self, call: Any, *, signal: Any) -> None:
            seen.append(call.ctx)

        async def after_tool_call(self, call: Any, *, signal: Any) -> None:
            seen.append(call.ctx)

        async def around_tool_call(self, call: Any, proceed: Proceed[Any], *, ctx: Any) -> None:
            seen.append(ctx)
            await proceed()

        async def after_model_response(self, response: Any, *, ctx: RunContext, signal: Any) -> None:
            assert (ctx.tool_call_id, ctx.tool_name, ctx.on_update) == (None, None, None)
            assert repr(ctx) == f"RunContext(run_id={ctx.run_id!r}, turn={ctx.turn})"
            with pytest.raises(TypeError, match="belongs to none"):
                ctx.update("half")

    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        seen.append(ctx)
        return "ok"

    made = bench(calling("do"), "done", tools=[tool_of("do", execute)], middleware=[Hooks()])
    await made.agent.prompt("hi")
    assert len(seen) == 4
    assert {id(ctx) for ctx in seen} == {id(seen[0])}
    assert "tool_call_id='c1'" in repr(seen[0])
    await assert_well_ended(made)


async def test_it_shows_the_run_as_it_is_now() -> None:
    rows: list[tuple[str, int, int, bool]] = []

    class Hooks(Middleware):
        def look(self, where: str, ctx: RunContext[Any]) -> None:
            rows.append((where, ctx.turn, len(ctx.messages), ctx.usage.total_tokens > 0))

        async def around_run(self, proceed: Proceed[Any], *, ctx: RunContext) -> None:
            self.look("before", ctx)
            await proceed()
            self.look("after", ctx)

        async def transform_context(self, messages: list[Message], *, ctx: RunContext, signal: Any) -> list[Message]:
            self.look("transform", ctx)
            return messages

    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        hooks.look("tool", ctx)
        return "ok"

    hooks = Hooks()
    limits = RunLimits(max_turns=5)
    made = bench(
        calling("do"), "done", tools=[tool_of("do", execute)], middleware=[hooks], limits=limits, system_prompt="Be."
    )
    await made.agent.prompt("hi")
    assert rows == [
        ("before", 0, 0, False),
        ("transform", 1, 1, False),
        ("tool", 1, 2, True),
        ("transform", 2, 3, True),
        ("after", 2, 4, True),
    ]


async def test_it_shows_model_limits_tools_prompt_and_signal() -> None:
    seen: list[RunContext[Any]] = []

    class Hooks(Middleware):
        async def after_model_response(self, response: Any, *, ctx: RunContext, signal: Any) -> None:
            assert ctx.signal is signal
            seen.append(ctx)

    limits, say = RunLimits(max_turns=5), saying("say")
    made = bench("done", tools=[say], middleware=[Hooks()], limits=limits, system_prompt="Be kind.")
    await made.agent.prompt("hi")
    (ctx,) = seen
    assert (ctx.model, ctx.limits, ctx.system_prompt) == (made.agent.state.model, limits, "Be kind.")
    assert (list(ctx.tools), ctx.deps) == ([say], None)
    assert ctx.extra is ctx.notes


# --- add_usage -------------------------------------------------------------------------------


def adding(usage: Usage, *, by: str = "judge") -> Callable[..., Awaitable[str]]:
    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        before = ctx.usage
        ctx.add_usage(usage, by=by)
        assert ctx.usage == before + usage
        return "ok"

    return execute


async def test_added_usage_counts_in_the_result_under_its_name() -> None:
    class Summary(Middleware):
        async def on_run_end(self, *, ctx: RunContext, signal: Any) -> None:
            ctx.add_usage(Usage(input_tokens=5), by="summary", model=ctx.model)

    plain = await bench(calling("do"), "done", tools=[saying("do", "ok")]).agent.prompt("hi")
    tools = [tool_of("do", adding(Usage(input_tokens=1000, output_tokens=10))), tool_of("x", adding(Usage()))]
    made = bench(calling("do", "do"), "done", tools=tools, middleware=[Summary()])
    result = await made.agent.prompt("hi")
    twice = Usage(input_tokens=2000, output_tokens=20)
    assert result.usage_by == {"judge": twice, "summary": Usage(input_tokens=5)}
    assert plain.usage_by == {}
    own = sum((m.usage for m in result.messages if m.role == "assistant" and m.usage), Usage())
    assert result.usage == own + twice + Usage(input_tokens=5)


async def test_usage_that_is_added_after_the_run_counts_in_its_result_too() -> None:
    async def judge(proceed: Proceed[Any], *, ctx: RunContext) -> None:
        await proceed()
        ctx.add_usage(Usage(input_tokens=7), by="judge")

    plain = await bench("done").agent.prompt("hi")
    result = await bench("done", middleware=[only("around_run", judge)]).agent.prompt("hi")
    assert (result.usage, result.usage_by) == (plain.usage + Usage(input_tokens=7), {"judge": Usage(input_tokens=7)})


async def test_added_usage_counts_in_the_limit_on_tokens() -> None:
    tools = [tool_of("do", adding(Usage(input_tokens=10_000)))]
    made = bench(calling("do"), "never", tools=tools, limits=RunLimits(max_total_tokens=5_000))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit, made.provider.call_count) == ("limit", "max_total_tokens", 1)
    assert made.texts == ["ok"]
    await assert_well_ended_without_limits(made)


async def assert_well_ended_without_limits(made: Any) -> None:
    made.agent.limits = RunLimits()
    await assert_well_ended(made)


async def test_added_usage_needs_a_name() -> None:
    with_no_name = [tool_of("do", adding(Usage(input_tokens=1), by=""))]
    made = bench(calling("do"), "done", tools=with_no_name)
    result = await made.agent.prompt("hi")
    assert (result.usage_by, made.texts) == ({}, ["add_usage(by=...) says in a word who used the tokens"])


# --- emit ------------------------------------------------------------------------------------


class EmittingEverywhere(Middleware):
    """Says where it is at each seam."""

    async def around_run(self, proceed: Proceed[Any], *, ctx: RunContext) -> None:
        await ctx.emit(Progress("too early"))
        await proceed()
        await ctx.emit(Progress("too late"))

    async def transform_context(self, messages: list[Message], *, ctx: RunContext, signal: Any) -> list[Message]:
        await ctx.emit(Progress("transform"))
        return messages

    async def around_model_call(self, proceed: Proceed[Any], *, ctx: RunContext) -> None:
        ctx.emit(Progress("<call"))
        await proceed()
        ctx.emit(Progress("call>"))

    async def around_model_try(self, model: Any, proceed: Proceed[Any], *, ctx: RunContext) -> None:
        ctx.emit(Progress("<try"))
        await proceed()
        ctx.emit(Progress("try>"))

    async def around_tool_call(self, call: Any, proceed: Proceed[Any], *, ctx: RunContext) -> None:
        await ctx.emit(Progress("<tool"))
        await proceed()
        await ctx.emit(Progress("tool>"))

    async def on_run_end(self, *, ctx: RunContext, signal: Any) -> None:
        await ctx.emit(Progress("end"))


async def emitting_tool(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
    ctx.emit(Progress("tool"))
    await checkpoint()
    return "ok"


@pytest.mark.parametrize("is_async", [False, True])
async def test_events_of_one_s_own_are_heard_in_the_one_order_and_not_stored(is_async: bool) -> None:
    async with MemoryCheckpointer() as store:
        made = bench(
            calling("do"),
            "done",
            tools=[tool_of("do", emitting_tool)],
            middleware=[EmittingEverywhere()],
            checkpointer=store,
            thread_id="t",
        )
        second: list[Any] = []

        async def hear(event: Any) -> None:
            await checkpoint()
            second.append(event)

        made.agent.subscribe(hear if is_async else second.append)
        await made.agent.prompt("hi")
        assert [id(event) for event in second] == [id(event) for event in made.events]
        said = [getattr(event, "text", event.type) for event in made.events]
        kept = [word for word in said if word not in ("message_update",)]
        assert kept == [
            *("agent_start", "turn_start", "message_start", "message_end", "<call", "transform", "<try"),
            *("message_start", "try>", "call>", "message_end"),
            *("tool_execution_start", "<tool", "tool", "tool>", "tool_execution_end"),
            *("message_start", "message_end", "turn_end"),
            *("turn_start", "<call", "transform", "<try", "message_start", "try>", "call>", "message_end", "turn_end"),
            *("end", "agent_end"),
        ]
        assert balance_faults(made.events) == []
        record = await store.load("t")
        assert record is not None
        assert [message.role for message in record.messages] == ["user", "assistant", "tool_result", "assistant"]


async def test_awaiting_an_event_waits_until_all_have_heard_it() -> None:
    log: list[str] = []

    async def slow(event: Any) -> None:
        if event.type == "progress":
            for _ in range(3):
                await checkpoint()
            log.append(f"heard {event.text}")

    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        await ctx.emit(Progress("half"))
        log.append("went on")
        return "ok"

    made = bench(calling("do"), "done", tools=[tool_of("do", execute)])
    made.agent.subscribe(slow)
    await made.agent.prompt("hi")
    assert log == ["heard half", "went on"]
    await assert_well_ended(made)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("a text", "str has none"),
        (object(), "object has none"),
        (None, "NoneType has none"),
        (type("E", (), {"type": 7})(), "E has none"),
        (type("E", (), {"type": ""})(), "E has none"),
        (type("E", (), {"type": "agent_end"})(), "said by the run alone"),
        (type("E", (), {"type": "tool_execution_update"})(), "said by the run alone"),
    ],
)
async def test_what_is_no_event_of_one_s_own_is_refused_where_it_is_said(event: Any, text: str) -> None:
    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        ctx.emit(event)
        return "never"

    made = bench(calling("do"), "done", tools=[tool_of("do", execute)])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert text in made.texts[0]
    await assert_well_ended(made)


async def test_nothing_is_heard_of_a_run_that_has_ended() -> None:
    contexts: list[RunContext[Any]] = []

    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        contexts.append(ctx)
        return "ok"

    made = bench(calling("do"), "done", tools=[tool_of("do", execute)])
    await made.agent.prompt("hi")
    before = len(made.events)
    await contexts[0].emit(Progress("late"))
    assert len(made.events) == before
    await assert_well_ended(made)


class EmittingOnce(Middleware):
    """Says one event, in a tool, a hook or an onion, and waits for ever."""

    def __init__(self, where: str, *, awaits: bool) -> None:
        self.where, self.awaits = where, awaits
        self.raised: list[Exception] = []

    async def say(self, where: str, ctx: RunContext[Any]) -> None:
        if where != self.where:
            return
        try:
            sent = ctx.emit(Progress("half"))
            if self.awaits:
                await sent
            await anyio.sleep_forever()
        except Exception as error:
            self.raised.append(error)
            raise

    async def tool(self, tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        await self.say("tool", ctx)
        return "never"

    async def transform_context(self, messages: list[Message], *, ctx: RunContext, signal: Any) -> list[Message]:
        await self.say("hook", ctx)
        return messages

    async def around_tool_call(self, call: Any, proceed: Proceed[Any], *, ctx: RunContext) -> None:
        await self.say("onion", ctx)
        await proceed()


def fail_at_progress(event: Any) -> None:
    if event.type == "progress":
        raise LookupError("a listener's bug")


async def fail_slowly_at_progress(event: Any) -> None:
    await checkpoint()
    fail_at_progress(event)


# A hook that does not await what it says, and waits for something else, is heard only when it has returned.
WAYS = [*product(["tool", "onion"], [False, True], [False, True]), *product(["hook"], [False, True], [True])]


@pytest.mark.parametrize(("where", "is_async", "awaits"), WAYS)
async def test_a_listener_s_bug_in_it_ends_the_run_and_is_not_the_emitter_s(
    where: str, is_async: bool, awaits: bool
) -> None:
    emitting = EmittingOnce(where, awaits=awaits)
    made = bench(calling("do"), "never", tools=[tool_of("do", emitting.tool)], middleware=[emitting])
    made.agent.subscribe(fail_slowly_at_progress if is_async else fail_at_progress)
    with pytest.raises(LookupError, match="a listener's bug"):
        await made.agent.prompt("hi")
    assert emitting.raised == []
    assert balance_faults(made.events) == []
    assert made.labels[-1] == "agent_end:error"


async def test_an_event_is_not_made_into_anything_where_nobody_listens() -> None:
    made = bench(calling("do"), "done", tools=[tool_of("do", emitting_tool)], heard=False)
    assert (await made.agent.prompt("hi")).outcome == "completed"


# --- notes -----------------------------------------------------------------------------------


async def test_notes_about_the_run_come_back_with_its_result_and_are_not_stored() -> None:
    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        ctx.result_notes["calls"] = [*ctx.result_notes.get("calls", []), tool_call_id]
        return "ok"

    async with MemoryCheckpointer() as store:
        made = bench(calling("do"), calling("do"), "done", "again", tools=[tool_of("do", execute)])
        result = await made.agent.prompt("hi")
        assert result.notes == {"calls": ["c1", "c1"]}
        assert (await made.agent.prompt("again")).notes == {}
        assert await store.load("t") is None


async def test_notes_of_an_aborted_run_come_back_too() -> None:
    async def before(proceed: Proceed[Any], *, ctx: RunContext) -> None:
        ctx.result_notes["trace"] = "abc"
        await proceed()

    made = bench(FauxResponse("never", stall_before_start=True), middleware=[only("around_run", before)])
    made.agent.subscribe(lambda event: made.agent.abort() if event.type == "turn_start" else None)
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.notes) == ("aborted", {"trace": "abc"})


async def test_notes_of_the_thread_are_stored_at_each_turn_s_end_with_what_is_still_to_be_stored_of_it() -> None:
    class Counting(Middleware):
        async def should_stop_after_turn(
            self, message: Any, tool_results: Any, *, ctx: RunContext, signal: Any
        ) -> bool:
            ctx.notes["turns"] = ctx.turn
            return False

    async with Watched() as store:
        made = store.bench(calling("one"), calling("one"), "done", tools=[saying("one")], middleware=[Counting()])
        await made.agent.prompt("hi")
        assert store.appends == [
            (["user"], None),
            (["assistant"], None),
            (["tool_result"], None),
            ([], {"turns": 1}),
            (["assistant"], None),
            (["tool_result"], None),
            ([], {"turns": 2}),
            (["assistant"], None),
        ]
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort", "bug"])
async def test_notes_of_a_run_that_is_ended_are_stored_with_the_result_of_the_call_it_was_in(way: str) -> None:
    async def execute(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        ctx.notes["seen"] = tool_call_id
        if way == "abort":
            made.agent.abort()
            await anyio.sleep_forever()
        return "ok"

    def fail(event: Any) -> None:
        if way == "bug" and event.type == "tool_execution_end":
            raise LookupError("a listener's bug")

    async with Watched() as store:
        made = store.bench(calling("do"), tools=[tool_of("do", execute)])
        unsubscribe = made.agent.subscribe(fail)
        if way == "abort":
            assert (await made.agent.prompt("hi")).outcome == "aborted"
        else:
            with pytest.raises(LookupError):
                await made.agent.prompt("hi")
        unsubscribe()
        assert store.appends[-1] == (["tool_result"], {"seen": "c1"})
        assert await store.notes() == {"seen": "c1"}
        await assert_well_ended(made)


# --- by hand ---------------------------------------------------------------------------------


async def test_a_context_without_a_run_is_for_calling_tools_by_hand() -> None:
    @tool
    async def greet(ctx: RunContext[Deps]) -> str:
        """Greet the user."""
        ctx.add_usage(Usage(input_tokens=3), by="greeting")
        await ctx.emit(Progress("greeting"))
        ctx.notes["greeted"] = True
        return f"Hello, {ctx.deps.user}."

    by_hand = RunByHand(deps=Deps("Ann"), turn=4)
    updates: list[object] = []

    async def on_update(update: object) -> None:
        updates.append(update)

    ctx: RunContext[Deps] = run_context(by_hand, tool_call_id="c1", tool_name="greet", on_update=on_update)
    assert greet.function is not None
    assert await greet.function(ctx) == "Hello, Ann."
    await ctx.update("half")
    assert (ctx.turn, ctx.usage, ctx.notes, updates) == (4, Usage(input_tokens=3), {"greeted": True}, ["half"])
    assert (by_hand.usage_by, by_hand.emitted) == ({"greeting": Usage(input_tokens=3)}, [Progress("greeting")])
    bare = run_context()
    assert (bare.run_id, bare.tool_call_id, bare.signal.is_set(), bare.model.spec.id) == ("run", None, False, "test")
