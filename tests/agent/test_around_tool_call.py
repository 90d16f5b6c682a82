"""``around_tool_call``: around all that belongs to one call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from anyio import from_thread
from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    AbortSignal,
    AgentTool,
    AgentToolResult,
    BeforeToolCallResult,
    CallEnding,
    Middleware,
    RunContext,
    RunLimits,
    RunResult,
    TextContent,
    ToolCall,
    UsageError,
    faux_assistant_message,
    faux_tool_call,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hooks.around import Proceed
from cubepi_anyio.tools.run.outcome import CallOutcome
from tests.support.agents import (
    Bench,
    NoParams,
    Word,
    assert_well_ended,
    bench,
    calling,
    saying,
    sleeping,
    tool_of,
)
from tests.support.backends import on_asyncio
from tests.support.onions import Onions, Swallowing, only
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


def calls_of(onions: Onions) -> dict[str, int]:
    return {what: count for what, count in onions.closed.items() if what.startswith("tool")}


# --- order -----------------------------------------------------------------------------------


async def test_onions_stand_outside_the_hooks_of_the_call_the_first_middleware_outermost() -> None:
    log: list[str] = []

    class Hooks(Middleware):
        async def resolve_tool_call(self, tool_call: ToolCall, *, ctx: Any, signal: Any) -> None:
            log.append("resolve")

        async def before_tool_call(self, call: Any, *, signal: Any) -> None:
            log.append("before")

        async def after_tool_call(self, call: Any, *, signal: Any) -> None:
            log.append("after")

    async def execute(tool_call_id: str, params: NoParams) -> str:
        log.append("tool")
        return "ok"

    def layer(name: str) -> Middleware:
        async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> CallOutcome:
            log.append(f"<{name}")
            outcome = await proceed()
            log.append(f"{name}>")
            return outcome

        return only("around_tool_call", around)

    middleware = [Hooks(), layer("a"), layer("b")]
    made = bench(calling("do"), "done", tools=[tool_of("do", execute)], middleware=middleware)
    made.agent.subscribe(lambda event: log.append(event.type) if event.type.startswith("tool_execution") else None)
    await made.agent.prompt("hi")
    assert log == [
        "tool_execution_start",
        *("<a", "<b", "resolve", "before", "tool", "after", "b>", "a>"),
        "tool_execution_end",
    ]
    await assert_well_ended(made)


async def test_an_onion_is_closed_before_the_result_is_stored() -> None:
    stored: list[int] = []
    async with MemoryCheckpointer() as store:

        async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> CallOutcome:
            outcome = await proceed()
            record = await store.load("t")
            stored.append(len(record.messages) if record is not None else 0)
            return outcome

        made = bench(
            calling("do"),
            "done",
            tools=[saying("do")],
            middleware=[only("around_tool_call", around)],
            checkpointer=store,
            thread_id="t",
        )
        await made.agent.prompt("hi")
        assert stored == [2]  # the prompt and the answer that calls
        await assert_well_ended(made)


# --- once, whatever the ending ---------------------------------------------------------------


async def fail(tool_call_id: str, params: NoParams) -> str:
    await checkpoint()
    raise ValueError("a bug of the tool")


class Vetoing(Middleware):
    async def before_tool_call(self, call: Any, *, signal: Any) -> BeforeToolCallResult:
        return BeforeToolCallResult(block=True, reason="no")


async def test_every_call_whose_turn_came_has_its_onion_whatever_became_of_it() -> None:
    answer = faux_assistant_message(
        [
            faux_tool_call("say", {}, id="c1"),
            faux_tool_call("fail", {}, id="c2"),
            faux_tool_call("unknown", {}, id="c3"),
            faux_tool_call("word", {"word": 7}, id="c4"),
            faux_tool_call("word", '{"word": ', id="c5"),
        ]
    )
    word = tool_of("word", fail, parameters=Word)
    onions = Onions()
    made = bench(answer, "done", tools=[saying("say"), tool_of("fail", fail), word], middleware=[onions])
    await made.agent.prompt("hi")
    assert calls_of(onions) == {f"tool c{n}": 1 for n in range(1, 6)}
    assert onions.faults == []
    ends = {f"c{n}": onions.of(f"tool c{n}")[0].ending for n in range(1, 6)}
    assert ends == {"c1": "finished", "c2": "failed", "c3": "refused", "c4": "refused", "c5": "refused"}
    await assert_well_ended(made)


async def test_a_vetoed_call_is_an_outcome_of_its_onion() -> None:
    onions = Onions()
    made = bench(calling("say"), "done", tools=[saying("say")], middleware=[onions, Vetoing()])
    await made.agent.prompt("hi")
    (outcome,) = onions.of("tool c1")
    assert (outcome.ending, outcome.block_reason, outcome.is_error) == ("refused", "no", True)
    await assert_well_ended(made)


@pytest.mark.parametrize("stop_reason", ["length", "stop"])
async def test_calls_that_are_refused_together_have_their_onions_too(stop_reason: str) -> None:
    answer = calling("say", "say").model_copy(update={"stop_reason": stop_reason})
    onions = Onions()
    made = bench(answer, "done", tools=[saying("say")], middleware=[onions], limits=RunLimits(max_tool_calls=1))
    await made.agent.prompt("hi")
    assert calls_of(onions) == {"tool c1": 1, "tool c2": 1}
    assert [outcome.ending for what in ("tool c1", "tool c2") for outcome in onions.of(what)] == ["refused"] * 2
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort_tool_call", "timeout"])
async def test_a_call_that_ends_alone_is_an_outcome_like_others(way: str) -> None:
    began = anyio.Event()
    onions = Onions()
    tool = sleeping("sleep", began, timeout=0.1 if way == "timeout" else None)
    made = bench(calling("sleep", "say"), "done", tools=[tool, saying("say")], middleware=[onions])
    result = await end_call(way, made, began.wait)
    assert result is not None
    assert result.outcome == "completed"
    assert [one.ending for one in onions.of("tool c1")] == ["aborted" if way == "abort_tool_call" else "timed_out"]
    assert onions.closed["tool c1"] == 1
    await assert_well_ended(made)


@pytest.mark.parametrize("kind", [Onions, Swallowing])
@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_an_onion_closes_once_when_the_run_is_ended_and_cannot_keep_that_from_leaving(
    way: str, kind: type[Onions]
) -> None:
    result = await end_and_look(way, kind())
    assert (result.outcome if result is not None else None) == ("aborted" if way == "abort" else None)


@on_asyncio
async def test_an_onion_closes_once_when_the_task_is_cancelled_and_cannot_keep_that_from_leaving() -> None:
    for kind in (Onions, Swallowing):
        assert await end_and_look("native", kind()) is None


async def end_and_look(way: str, onions: Onions) -> RunResult | None:
    began = anyio.Event()
    made = bench(calling("sleep", "say"), "never", tools=[sleeping("sleep", began), saying("say")], middleware=[onions])
    result = await end_call(way, made, began.wait)
    assert (onions.faults, calls_of(onions)) == ([], {"tool c1": 1, "tool c2": 1})
    assert [(one.details or {}).get("ending") for one in made.results] == ["cancelled", None]
    assert made.texts[1] == "say"
    await assert_well_ended(made)
    return result


async def test_each_call_of_a_sequential_batch_that_began_has_its_onion_and_no_other() -> None:
    began, onions = anyio.Event(), Onions()
    tools = [sleeping("sleep", began), saying("say")]
    made = bench(calling("say", "sleep", "say"), tools=tools, tool_execution="sequential", middleware=[onions])
    await end_call("abort", made, began.wait)
    assert calls_of(onions) == {"tool c1": 1, "tool c2": 1}
    assert onions.faults == []
    await assert_well_ended(made)


@pytest.mark.parametrize("where", ["tool_execution_end", "message_end"])
async def test_a_bug_of_a_listener_leaves_every_onion_closed(where: str) -> None:
    onions = Onions()
    made = bench(calling("say", "say"), tools=[saying("say")], middleware=[onions])

    def fails(event: Any) -> None:
        if event.type == where:
            raise LookupError("a listener's bug")

    unsubscribe = made.agent.subscribe(fails)
    with pytest.raises(LookupError):
        await made.agent.prompt("hi")
    unsubscribe()
    assert onions.faults == []
    await assert_well_ended(made)


@pytest.mark.parametrize("kind", [Onions, Swallowing])
async def test_a_bug_of_a_hook_further_in_leaves_the_run_through_its_onion(kind: type[Onions]) -> None:
    class Failing(Middleware):
        async def before_tool_call(self, call: Any, *, signal: Any) -> None:
            await (checkpoint() if call.tool_call.id == "c1" else anyio.sleep_forever())
            raise ZeroDivisionError("a hook's bug")

    onions = kind()
    made = bench(calling("say", "say"), tools=[saying("say")], middleware=[onions, Failing()])
    with pytest.raises(ZeroDivisionError, match="a hook's bug"):
        await made.agent.prompt("hi")
    assert onions.faults == []
    assert [result.details["ending"] for result in made.results] == ["cancelled"] * 2
    await assert_well_ended(made)


async def test_calls_that_only_settling_answers_have_no_onion() -> None:
    onions = Onions()

    def stop(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            made.agent.abort()

    made = bench(calling("say", "say"), tools=[saying("say")], middleware=[onions])
    unsubscribe = made.agent.subscribe(stop)
    assert (await made.agent.prompt("hi")).outcome == "aborted"
    unsubscribe()
    assert (calls_of(onions), len(made.results)) == ({}, 2)
    await assert_well_ended(made)


# --- the outcome -----------------------------------------------------------------------------


async def test_proceed_returns_the_outcome_as_a_value_also_of_a_tool_that_raised() -> None:
    seen: list[CallOutcome] = []

    async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> None:
        seen.append(await proceed())

    made = bench(
        calling("say", "fail"),
        "done",
        tools=[saying("say"), tool_of("fail", fail)],
        middleware=[only("around_tool_call", around)],
    )
    await made.agent.prompt("hi")
    said, failed = sorted(seen, key=lambda outcome: outcome.call.id)
    assert (said.ending, said.result.content, said.error) == ("finished", [TextContent(text="say")], None)
    assert (failed.ending, str(failed.error), failed.is_error) == ("failed", "a bug of the tool", True)
    assert made.texts == ["say", "a bug of the tool"]
    await assert_well_ended(made)


async def test_a_call_that_was_resolved_to_another_is_that_one_in_the_outcome() -> None:
    seen: list[tuple[str, str]] = []

    class Resolving(Middleware):
        async def resolve_tool_call(self, tool_call: ToolCall, *, ctx: Any, signal: Any) -> ToolCall:
            return tool_call.model_copy(update={"name": "other"})

        async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> None:
            outcome = await proceed()
            seen.append((call.name, outcome.call.name))

    made = bench(calling("first"), "done", tools=[saying("first"), saying("other")], middleware=[Resolving()])
    await made.agent.prompt("hi")
    assert (seen, made.texts) == ([("first", "other")], ["other"])
    await assert_well_ended(made)


def replacing(returned: Any, *, goes_on: bool = True) -> Middleware:
    async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> Any:
        if goes_on:
            await proceed()
        return returned

    return only("around_tool_call", around)


@pytest.mark.parametrize("returned", ["mine", AgentToolResult("mine")])
async def test_a_result_that_is_returned_takes_the_place_of_the_tool_s(returned: Any) -> None:
    made = bench(calling("say"), "done", tools=[saying("say")], middleware=[replacing(returned)])
    await made.agent.prompt("hi")
    assert made.texts == ["mine"]
    assert "tool_execution_end:c1:finished" in made.labels
    await assert_well_ended(made)


@pytest.mark.parametrize("returned", ["mine", AgentToolResult("mine", is_error=True)])
async def test_not_going_on_answers_in_the_tool_s_place_and_asks_no_hook(returned: Any) -> None:
    asked: list[str] = []

    class Asking(Middleware):
        async def resolve_tool_call(self, tool_call: ToolCall, *, ctx: Any, signal: Any) -> None:
            asked.append("resolve")

        async def before_tool_call(self, call: Any, *, signal: Any) -> None:
            asked.append("before")

        async def after_tool_call(self, call: Any, *, signal: Any) -> None:
            asked.append("after")

    async def never(tool_call_id: str, params: NoParams) -> str:
        asked.append("tool")
        return "tool"

    middleware = [replacing(returned, goes_on=False), Asking()]
    made = bench(calling("do", "unknown"), "done", tools=[tool_of("do", never)], middleware=middleware)
    await made.agent.prompt("hi")
    assert (asked, made.texts) == ([], ["mine", "mine"])
    assert [result.is_error for result in made.results] == [isinstance(returned, AgentToolResult)] * 2
    assert {label for label in made.labels if "tool_execution_end" in label} == {
        "tool_execution_end:c1:answered",
        "tool_execution_end:c2:answered",
    }
    await assert_well_ended(made)


@pytest.mark.parametrize(
    ("middleware", "kept"),
    [
        (replacing(7), "say"),
        (replacing([TextContent(text="blocks")]), "say"),
        (replacing(7, goes_on=False), "The call was cancelled before it began."),
        (replacing(None, goes_on=False), "The call was cancelled before it began."),
        (replacing(CallOutcome(ToolCall(id="c1", name="say"), CallEnding.FINISHED, "text", False)), "say"),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_anything_else_is_a_type_error_and_the_tool_s_own_result_is_what_is_kept(
    middleware: Middleware, kept: str
) -> None:
    made = bench(calling("say"), tools=[saying("say")], middleware=[middleware])
    with pytest.raises(TypeError, match="around_tool_call returned"):
        await made.agent.prompt("hi")
    assert made.texts == [kept]
    await assert_well_ended(made)


async def test_an_outcome_that_was_kept_from_another_call_answers_this_one_under_its_own_id() -> None:
    class Cache(Middleware):
        """Remembers whole outcomes."""

        def __init__(self) -> None:
            self.known: dict[str, CallOutcome] = {}

        async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> CallOutcome:
            if call.name not in self.known:
                self.known[call.name] = await proceed()
            return self.known[call.name]

    ran: list[str] = []

    async def count(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "counted"

    tools = [tool_of("count", count)]
    first = faux_assistant_message([faux_tool_call("count", {}, id="one")])
    second = faux_assistant_message([faux_tool_call("count", {}, id="two")])
    async with MemoryCheckpointer() as store:
        made = bench(first, second, "done", tools=tools, middleware=[Cache()], checkpointer=store, thread_id="t")
        assert (await made.agent.prompt("hi")).outcome == "completed"
        assert ran == ["one"]
        assert [(result.tool_call_id, result.text) for result in made.results] == [
            ("one", "counted"),
            ("two", "counted"),
        ]
        assert [label for label in made.labels if "tool_execution_end" in label] == [
            "tool_execution_end:one:finished",
            "tool_execution_end:two:answered",
        ]
        await assert_well_ended(made)


async def test_what_a_layer_raises_after_the_tool_ends_the_run_and_the_result_stands_in_transcript_and_store() -> None:
    async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> str:
        await proceed()
        raise ZeroDivisionError("the layer's bug")

    async with MemoryCheckpointer() as store:
        made = bench(
            calling("say"),
            tools=[saying("say")],
            middleware=[only("around_tool_call", around)],
            checkpointer=store,
            thread_id="t",
        )
        with pytest.raises(ZeroDivisionError):
            await made.agent.prompt("hi")
        assert made.texts == ["say"]
        record = await store.load("t")
        assert record is not None
        assert [message.role for message in record.messages] == ["user", "assistant", "tool_result"]
        assert record.messages[-1].text == "say"
        assert "agent_end:error" in made.labels
        await assert_well_ended(made)


async def test_what_a_layer_raises_before_the_tool_keeps_it_from_beginning_and_ends_the_run() -> None:
    ran: list[str] = []

    async def run(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ran"

    async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> str:
        raise ZeroDivisionError("the layer's bug")

    made = bench(calling("run"), tools=[tool_of("run", run)], middleware=[only("around_tool_call", around)])
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    assert (ran, made.texts) == ([], ["The call was cancelled before it began."])
    await assert_well_ended(made)


async def test_going_on_twice_ends_the_run_and_the_tool_ran_once() -> None:
    ran: list[str] = []

    async def run(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ran"

    async def around(call: ToolCall, proceed: Proceed[CallOutcome]) -> CallOutcome:
        await proceed()
        return await proceed()

    made = bench(calling("run"), tools=[tool_of("run", run)], middleware=[only("around_tool_call", around)])
    with pytest.raises(UsageError, match="once around a call"):
        await made.agent.prompt("hi")
    assert (ran, made.texts) == (["c1"], ["ran"])
    await assert_well_ended(made)


# --- a layer that waits ----------------------------------------------------------------------


class Waiting(Middleware):
    """Waits for ever, before it goes on or after."""

    def __init__(self, when: str) -> None:
        self.when = when
        self.waits = anyio.Event()
        self.seen: list[Any] = []

    async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> CallOutcome:
        try:
            if self.when == "before":
                await self.wait()
            outcome = await proceed()
            if self.when == "after":
                await self.wait()
            return outcome
        finally:
            self.seen.append(proceed.outcome.ending if proceed.outcome is not None else None)

    async def wait(self) -> None:
        self.waits.set()
        await anyio.sleep_forever()


@pytest.mark.parametrize("way", ["abort", "scope", "abort_tool_call"])
async def test_a_layer_that_waits_before_it_goes_on_ends_with_its_call(way: str) -> None:
    waiting = Waiting("before")
    made = bench(calling("say"), "done", tools=[saying("say")], middleware=[waiting])
    await end_call(way, made, waiting.waits.wait)
    assert waiting.seen == [None]
    assert made.results[0].details["ending"] == ("aborted" if way == "abort_tool_call" else "cancelled")
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_layer_that_waits_afterwards_ends_with_the_run_and_the_result_stands(way: str) -> None:
    waiting = Waiting("after")
    made = bench(calling("say"), "never", tools=[saying("say")], middleware=[waiting])
    await end_call(way, made, waiting.waits.wait)
    assert (waiting.seen, made.texts) == (["finished"], ["say"])
    await assert_well_ended(made)


@on_asyncio
async def test_a_layer_that_waits_ends_by_task_cancel_as_well() -> None:
    for when, text in (("before", "The call was cancelled before it began."), ("after", "say")):
        waiting = Waiting(when)
        made = bench(calling("say"), "never", tools=[saying("say")], middleware=[waiting])
        await end_call("native", made, waiting.waits.wait)
        assert made.texts == [text]
        await assert_well_ended(made)


# --- examples --------------------------------------------------------------------------------


class Timer(Middleware):
    """Measures how long each call takes, and how it ended."""

    def __init__(self) -> None:
        self.took: dict[str, tuple[float, str]] = {}

    async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> CallOutcome:
        began_at = anyio.current_time()
        try:
            return await proceed()
        finally:
            ending = str(proceed.outcome.ending) if proceed.outcome is not None else "cancelled"
            self.took[call.id] = (anyio.current_time() - began_at, ending)


@pytest.mark.virtual_clock
async def test_a_timer_measures_each_call() -> None:
    async def sleep(tool_call_id: str, params: NoParams) -> str:
        await anyio.sleep(5)
        return "slept"

    timer = Timer()
    tools = [tool_of("five", sleep), sleeping("ever", timeout=7)]
    made = bench(calling("five", "ever"), "done", tools=tools, middleware=[timer])
    await made.agent.prompt("hi")
    assert timer.took == {"c1": (5.0, "finished"), "c2": (7.0, "timed_out")}


class TimeOut(Middleware):
    """Gives each call so many seconds, and answers in its place when they are over."""

    def __init__(self, seconds: float, instead: str | None = "too slow") -> None:
        self.seconds, self.instead = seconds, instead
        self.known: list[str] = []

    async def around_tool_call(
        self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any
    ) -> CallOutcome | str | None:
        with anyio.move_on_after(self.seconds):
            return await proceed()
        assert proceed.outcome is not None
        self.known.append(str(proceed.outcome.ending))
        return self.instead


@pytest.mark.virtual_clock
@pytest.mark.parametrize("kind", ["immediate", "cooperative"])
async def test_a_layer_may_give_a_call_its_time_and_answer_in_its_place_and_the_run_goes_on(kind: str) -> None:
    signals: list[Any] = []

    async def wait(tool_call_id: str, params: NoParams, *, ctx: RunContext) -> str:
        signals.append(made.agent.state.run and made.agent.state.run.signal)
        await anyio.sleep(2 if tool_call_id == "c2" else 1000)
        return "in time"

    time_out, outer = TimeOut(3), Onions()
    tool = tool_of("wait", wait, cancellation=kind, grace=1)
    made = bench(calling("wait", "wait"), calling("wait"), "done", tools=[tool], middleware=[outer, time_out])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    assert made.texts == ["too slow", "in time", "too slow"]
    assert time_out.known == ["cancelled", "cancelled"]
    # Nobody has told the run, or the other call, to stop.
    assert [signal.is_set() for signal in signals] == [False] * 3
    assert outer.faults == []
    await assert_well_ended(made)


@pytest.mark.virtual_clock
async def test_a_call_that_its_layer_has_cut_off_and_not_answered_is_a_cancelled_one() -> None:
    made = bench(calling("wait", "say"), "done", tools=[sleeping("wait"), saying("say")], middleware=[TimeOut(3, None)])
    assert (await made.agent.prompt("hi")).outcome == "completed"
    assert made.texts == ["The call was cancelled before it was complete.", "say"]
    assert "tool_execution_end:c1:cancelled" in made.labels
    await assert_well_ended(made)


class Cutting(Middleware):
    """Cuts a call off when ``cut`` is called, and keeps what the call came to."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.known: list[CallOutcome | None] = []

    def cut(self) -> None:
        self.scope.cancel()

    async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> CallOutcome | None:
        with self.scope:
            return await proceed()
        self.known.append(proceed.outcome)
        return None


@pytest.mark.parametrize("listens", [True, False])
async def test_a_call_in_a_thread_that_its_layer_has_cut_off_is_what_became_of_its_function(
    listens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    def block(tool_call_id: str, params: NoParams, *, signal: AbortSignal) -> str:
        from_thread.run_sync(cutting.cut)
        while not (listens and signal.is_set()) and not go.wait(0.005):
            pass
        return "stopped half-way"

    cutting = Cutting()
    made = bench(calling("block"), "done", tools=[tool_of("block", block)], middleware=[cutting])
    try:
        assert (await made.agent.prompt("hi")).outcome == "completed"
    finally:
        go.set()
    (known,) = cutting.known
    assert known is not None
    assert known.ending == ("finished" if listens else "abandoned")
    assert ("stopped half-way" if listens else "The call was cancelled (by a middleware)") in made.texts[0]
    assert [record.getMessage() for record in caplog.records if "abandoned" in record.getMessage()] == (
        [] if listens else ["tool 'block' does not look at its signal and is abandoned in its thread (by a middleware)"]
    )
    await assert_well_ended(made)


class Limiter(Middleware):
    """Lets so many calls run at once, over any number of agents."""

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self.limiter = limiter

    async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> CallOutcome:
        async with self.limiter:
            return await proceed()


async def test_a_limiter_lets_so_many_calls_run_at_once_and_an_ended_run_gives_its_places_back() -> None:
    limiter = anyio.CapacityLimiter(2)
    began: list[str] = []

    async def wait(tool_call_id: str, params: NoParams) -> str:
        began.append(tool_call_id)
        await anyio.sleep_forever()
        return "never"

    made = bench(calling(*["wait"] * 5), tools=[tool_of("wait", wait)], middleware=[Limiter(limiter)])

    async def two_run() -> None:
        await anyio.wait_all_tasks_blocked()
        assert (len(began), limiter.borrowed_tokens) == (2, 2)

    await end_call("abort", made, two_run)
    assert (len(began), limiter.borrowed_tokens) == (2, 0)
    assert [result.details["ending"] for result in made.results] == ["cancelled"] * 5
    await assert_well_ended(made)


async def test_a_cache_answers_the_second_call_with_the_same_arguments() -> None:
    ran: list[str] = []

    class Cache(Middleware):
        def __init__(self) -> None:
            self.known: dict[str, AgentToolResult] = {}

        async def around_tool_call(self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: Any) -> Any:
            key = f"{call.name}({sorted(call.arguments.items())})"
            if key in self.known:
                return self.known[key]
            outcome = await proceed()
            if outcome.ending == "finished":
                self.known[key] = outcome.result
            return outcome

    async def look(tool_call_id: str, params: Word) -> str:
        ran.append(params.word)
        return f"seen {params.word}"

    def asks(*words: str) -> Any:
        return faux_assistant_message([faux_tool_call("look", {"word": word}, id=word + "?") for word in words])

    tools = [tool_of("look", look, parameters=Word)]
    made = bench(asks("a", "b"), asks("b", "c"), "done", tools=tools, middleware=[Cache()])
    await made.agent.prompt("hi")
    assert (sorted(ran), made.texts) == (["a", "b", "c"], ["seen a", "seen b", "seen b", "seen c"])


# --- threads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Onions, Swallowing])
async def test_a_call_in_a_thread_has_its_onion_closed_once(kind: type[Onions]) -> None:
    began, token, go = anyio.Event(), anyio.lowlevel.current_token(), threading.Event()

    def block(tool_call_id: str, params: NoParams) -> str:
        from_thread.run_sync(began.set, token=token)
        go.wait()
        return "late"

    onions = kind()
    made = bench(calling("block"), tools=[tool_of("block", block)], middleware=[onions])
    try:
        await end_call("abort", made, began.wait)
    finally:
        go.set()
    assert (onions.faults, made.results[0].details["ending"]) == ([], "abandoned")
    await assert_well_ended(made)


def tools_that_wait(began: anyio.Event) -> Sequence[AgentTool]:
    async def until_told(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        await signal.wait()
        return "came to my end"

    return [tool_of("work", until_told, cancellation="cooperative")]


async def test_a_cooperative_call_that_came_to_its_end_is_what_its_onion_knows() -> None:
    began, onions = anyio.Event(), Onions()
    made: Bench = bench(calling("work"), tools=tools_that_wait(began), middleware=[onions])
    await end_call("abort", made, began.wait)
    assert [outcome.ending for outcome in onions.of("tool c1")] == ["finished"]
    assert made.texts == ["came to my end"]
    await assert_well_ended(made)
