"""``around_run``: around a whole run, settling included."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    FauxResponse,
    Middleware,
    RateLimited,
    RequestsPending,
    RunLimits,
    RunResult,
    ToolCall,
    UsageError,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.errors import StoreUnavailable
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel
from cubepi_anyio.hooks.around import Proceed
from cubepi_anyio.tools.run.outcome import CallOutcome
from tests.hitl.restarts import YES, World, batch, by_call
from tests.support.agents import Bench, assert_well_ended, bench, calling, saying, sleeping
from tests.support.backends import on_asyncio
from tests.support.onions import Onions, Swallowing, only
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


async def test_it_opens_before_agent_start_and_closes_after_agent_end_the_first_outermost() -> None:
    log: list[str] = []

    def layer(name: str) -> Middleware:
        async def around(proceed: Proceed[RunResult]) -> RunResult:
            log.append(f"<{name}")
            result = await proceed()
            log.append(f"{name}>")
            return result

        return only("around_run", around)

    made = bench("done", middleware=[layer("a"), layer("b")])
    made.agent.subscribe(lambda event: log.append(event.type) if event.type.startswith("agent") else None)
    await made.agent.prompt("hi")
    assert log == ["<a", "<b", "agent_start", "agent_end", "b>", "a>"]
    await assert_well_ended(made)


async def test_it_closes_when_the_thread_has_been_given_back() -> None:
    async with MemoryCheckpointer() as store:
        free: list[bool] = []

        async def around(proceed: Proceed[RunResult], *, ctx: Any) -> RunResult:
            result = await proceed()
            claim = await store.claim_run("t", f"after {ctx.run_id}", lease_seconds=1)
            free.append(True)
            await store.release_claim(claim, "completed")
            return result

        made = bench("done", middleware=[only("around_run", around)], checkpointer=store, thread_id="t")
        await made.agent.prompt("hi")
        assert free == [True]
        await assert_well_ended(made)


async def test_proceed_returns_the_result_and_what_the_layer_returns_is_the_caller_s() -> None:
    results: list[RunResult] = []

    async def around(proceed: Proceed[RunResult], *, ctx: Any) -> RunResult:
        results.append(await proceed())
        assert proceed.outcome is results[0]
        return RunResult(run_id=ctx.run_id, outcome="completed", text="mine")

    result = await bench("done", middleware=[only("around_run", around)]).agent.prompt("hi")
    assert (results[0].outcome, results[0].text, result.text) == ("completed", "done", "mine")


async def test_none_keeps_the_result() -> None:
    async def around(proceed: Proceed[RunResult]) -> None:
        await proceed()

    assert (await bench("done", middleware=[only("around_run", around)]).agent.prompt("hi")).text == "done"


@pytest.mark.parametrize("returned", ["text", 7])
async def test_anything_else_is_a_type_error_and_the_run_is_over_all_the_same(returned: Any) -> None:
    async def around(proceed: Proceed[RunResult]) -> Any:
        await proceed()
        return returned

    async with MemoryCheckpointer() as store:
        made = bench("done", middleware=[only("around_run", around)], checkpointer=store, thread_id="t")
        with pytest.raises(TypeError, match=f"around_run returned {type(returned).__name__}"):
            await made.agent.prompt("hi")
        record = await store.load("t")
        assert record is not None
        assert [message.text for message in record.messages] == ["hi", "done"]
        assert made.labels[-1] == "agent_end:completed"
        assert not made.agent.state.is_running


async def test_a_run_cannot_be_answered_in_its_place_nor_run_twice() -> None:
    async def never(proceed: Proceed[RunResult]) -> Any:
        return RunResult(run_id="r", outcome="completed")

    async def twice(proceed: Proceed[RunResult]) -> RunResult:
        await proceed()
        return await proceed()

    made = bench("done", middleware=[only("around_run", never)])
    with pytest.raises(UsageError, match=r"has to call proceed\(\)"):
        await made.agent.prompt("hi")
    assert (made.events, made.agent.state.messages, made.agent.state.is_running) == ([], [], False)
    made = bench("done", "never", middleware=[only("around_run", twice)])
    with pytest.raises(UsageError, match="once around a run"):
        await made.agent.prompt("hi")
    assert (made.labels[-1], made.provider.call_count) == ("agent_end:completed", 1)


# --- every ending ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Onions, Swallowing])
@pytest.mark.parametrize("way", ["abort", "scope"])
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_it_closes_once_when_the_run_is_ended_with_the_result_known(
    where: str, way: str, kind: type[Onions]
) -> None:
    onions = await ended(where, way, kind())
    assert onions is not None


@on_asyncio
async def test_it_closes_once_when_the_task_is_cancelled() -> None:
    for kind in (Onions, Swallowing):
        await ended("tool", "native", kind())


async def ended(where: str, way: str, onions: Onions) -> Onions:
    began = anyio.Event()
    answer = calling("sleep") if where == "tool" else FauxResponse("one two", stall_after_deltas=1)
    made = bench(answer, tools=[sleeping("sleep", began)], middleware=[onions])
    result = await end_call(way, made, began.wait if where == "tool" else made.provider.wait_stalled)
    assert (result.outcome if result is not None else None) == ("aborted" if way == "abort" else None)
    assert (onions.faults, onions.closed["run"]) == ([], 1)
    (known,) = onions.of("run")
    assert (known.outcome, known.messages) == ("aborted", made.agent.state.messages)
    await assert_well_ended(made)
    return onions


@pytest.mark.parametrize(
    ("responses", "limits", "outcome"),
    [
        (["done"], None, "completed"),
        ([RateLimited("no")], None, "error"),
        ([calling("say"), "never"], RunLimits(max_turns=1), "limit"),
    ],
)
async def test_every_outcome_is_a_value(responses: list[Any], limits: RunLimits | None, outcome: str) -> None:
    onions = Onions()
    made = bench(*responses, tools=[saying("say")], middleware=[onions], limits=limits)
    assert (await made.agent.prompt("hi")).outcome == outcome
    assert [result.outcome for result in onions.of("run")] == [outcome]
    assert onions.faults == []


@pytest.mark.parametrize("kind", [Onions, Swallowing])
@pytest.mark.parametrize("bug", ["listener", "hook", "store"])
async def test_a_bug_leaves_through_it_as_itself_and_the_result_is_known(bug: str, kind: type[Onions]) -> None:
    class Failing(MemoryCheckpointer):
        async def append(self, *arguments: Any, **keywords: Any) -> None:
            if bug == "store":
                raise StoreUnavailable("no disk")
            await super().append(*arguments, **keywords)

    async def fail(value: Any) -> Any:
        raise LookupError("a bug")

    onions = kind()
    middleware = [onions, only("transform_context", fail)] if bug == "hook" else [onions]
    async with Failing() as store:
        made = bench("done", middleware=middleware, checkpointer=store, thread_id="t")
        if bug == "listener":
            made.agent.subscribe(lambda event: 1 / 0 if event.type == "message_update" else None)
        with pytest.raises((LookupError, ZeroDivisionError, StoreUnavailable)):
            await made.agent.prompt("hi")
    assert (onions.faults, onions.closed["run"]) == ([], 1)
    assert [result.outcome for result in onions.of("run")] == ["error"]


async def test_what_a_layer_raises_leaves_as_itself_and_the_agent_goes_on() -> None:
    async def before(proceed: Proceed[RunResult]) -> RunResult:
        raise ZeroDivisionError("before")

    async def after(proceed: Proceed[RunResult]) -> RunResult:
        await proceed()
        raise ZeroDivisionError("after")

    for layer, said in ((before, []), (after, ["hi", "done"])):
        made = bench("done", middleware=[])
        undo = made.agent.use(only("around_run", layer))
        with pytest.raises(ZeroDivisionError, match=layer.__name__):
            await made.agent.prompt("hi")
        assert [message.text for message in made.agent.state.messages] == said
        undo()
        await assert_well_ended(made, heard=bool(said))


async def test_a_run_that_cannot_begin_has_its_onion_closed() -> None:
    async with MemoryCheckpointer() as store:
        world, onions = World(store), Onions()
        ids = by_call((await world.process(batch("gated")).agent.prompt("go")).requests)
        refused = world.process()
        refused.agent.use(onions)
        with pytest.raises(RequestsPending):
            await refused.agent.prompt("and now?")
        assert (onions.faults, onions.closed["run"], list(ids)) == ([], 1, ["c1"])


# --- runs that wait for a person -------------------------------------------------------------


async def test_a_suspended_run_closes_and_opens_again_when_it_is_resumed_and_so_do_the_calls_that_waited() -> None:
    async with MemoryCheckpointer() as store:
        world, onions = World(store), Onions()
        only_one = world.process(batch("gated", "free"), "done")
        only_one.agent.use(onions)
        # The approval comes after it in the list of middleware, so it is further in.
        result = await only_one.agent.prompt("go")
        assert (result.outcome, onions.of("run")[0].outcome) == ("suspended", "suspended")
        assert [outcome.ending for outcome in onions.of("tool c1")] == ["suspended"]
        assert (onions.closed["run"], onions.closed["call"], onions.closed["tool c2"]) == (1, 1, 1)
        result = await only_one.agent.respond(result.requests[0].id, YES)
        assert result.outcome == "completed"
        assert [outcome.ending for outcome in onions.of("tool c1")] == ["suspended", "finished"]
        assert (onions.closed["run"], onions.closed["call"], onions.closed["tool c2"]) == (2, 2, 1)
        assert onions.faults == []


async def test_a_call_that_still_waits_has_no_onion_in_the_run_that_goes_on_with_another() -> None:
    async with MemoryCheckpointer() as store:
        world, onions = World(store), Onions()
        ids = by_call((await world.process(batch("gated", "gated")).agent.prompt("go")).requests)
        second = world.process()
        second.agent.use(onions)
        assert (await second.agent.respond(ids["c1"], YES)).outcome == "suspended"
        assert (onions.closed["tool c1"], onions.closed["tool c2"], onions.faults) == (1, 0, [])


async def test_a_layer_that_answers_asks_for_no_approval() -> None:
    async def answer(call: ToolCall, proceed: Proceed[CallOutcome]) -> str:
        return "from the cache"

    async with MemoryCheckpointer() as store:
        channel = DurableChannel()
        made = bench(
            calling("say"),
            "done",
            tools=[saying("say")],
            middleware=[only("around_tool_call", answer), ConfirmToolCall(channel, "say")],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        result = await made.agent.prompt("hi")
        assert (result.outcome, made.texts, made.agent.pending_requests) == ("completed", ["from the cache"], [])


async def test_a_layer_may_answer_a_call_that_would_wait_and_its_question_is_closed() -> None:
    async def impatient(call: ToolCall, proceed: Proceed[CallOutcome]) -> CallOutcome | str:
        outcome = await proceed()
        return "nobody is there" if outcome.ending == "suspended" else outcome

    async with MemoryCheckpointer() as store:
        channel = DurableChannel()
        made = bench(
            calling("say"),
            "done",
            tools=[saying("say")],
            middleware=[only("around_tool_call", impatient), ConfirmToolCall(channel, "say")],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        result = await made.agent.prompt("hi")
        assert (result.outcome, made.texts, result.requests) == ("completed", ["nobody is there"], [])
        assert "tool_execution_end:c1:answered" in made.labels
        record = await store.load("t")
        assert record is not None
        assert (record.requests, made.agent.pending_requests) == ([], [])


# --- a layer that waits ----------------------------------------------------------------------


class Waiting(Middleware):
    """Waits for ever, before it goes on or after."""

    def __init__(self, when: str, *, swallows: bool = False) -> None:
        self.when, self.swallows = when, swallows
        self.waits = anyio.Event()
        self.is_over = False

    async def around_run(self, proceed: Proceed[RunResult], *, ctx: Any) -> RunResult | None:
        if self.is_over:
            return await proceed()
        try:
            if self.when == "before":
                await self._wait()
            await proceed()
            if self.when == "after":
                await self._wait()
        finally:
            self.is_over = True
        return None

    async def _wait(self) -> None:
        self.waits.set()
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: ASYNC103 - a layer that will not be told
            if not self.swallows:
                raise


@pytest.mark.parametrize("swallows", [False, True])
async def test_an_abort_reaches_a_layer_that_waits_before_the_run_which_asks_nobody(swallows: bool) -> None:
    waiting = Waiting("before", swallows=swallows)
    made = bench("never", middleware=[waiting])
    result = await end_call("abort", made, waiting.waits.wait)
    assert result is not None
    assert (result.outcome, result.abort_reason, made.provider.call_count) == ("aborted", "enough", 0)
    assert made.agent.state.last_outcome == "aborted"
    # A run whose layer went on all the same has begun, and was over at once.
    assert (made.labels[:1], made.labels[-1:]) == ((["agent_start"], ["agent_end:aborted"]) if swallows else ([], []))
    await assert_well_ended(made, heard=swallows)


async def test_an_abort_reaches_a_layer_that_waits_after_the_run_whose_outcome_stands() -> None:
    for swallows in (False, True):
        waiting = Waiting("after", swallows=swallows)
        made = bench("done", middleware=[waiting])
        result = await end_call("abort", made, waiting.waits.wait)
        assert result is not None
        assert (result.outcome, result.text, made.labels[-1]) == ("completed", "done", "agent_end:completed")
        await assert_well_ended(made)


async def test_an_abort_of_the_run_itself_leaves_the_layers_their_time_afterwards() -> None:
    cleaned: list[str] = []

    async def around(proceed: Proceed[RunResult]) -> RunResult:
        result = await proceed()
        await anyio.lowlevel.checkpoint()
        cleaned.append(result.outcome)
        return result

    made = bench(FauxResponse("never", stall_before_start=True), middleware=[only("around_run", around)])
    result = await end_call("abort", made, made.provider.wait_stalled)
    assert result is not None
    assert (result.outcome, cleaned) == ("aborted", ["aborted"])


async def test_a_cancellation_reaches_a_layer_that_waits() -> None:
    for when, said in (("before", ["hi"]), ("after", ["hi", "done"])):
        waiting = Waiting(when, swallows=True)
        made = bench("done", middleware=[waiting])
        await end_call("scope", made, waiting.waits.wait)
        assert [message.text for message in made.agent.state.messages] == said
        await assert_well_ended(made)


# --- examples --------------------------------------------------------------------------------


class OneAtATime(Middleware):
    """Lets one run go on at a time, over any number of agents."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()

    async def around_run(self, proceed: Proceed[RunResult], *, ctx: Any) -> RunResult:
        async with self.lock:
            return await proceed()


async def test_a_limiter_lets_one_run_go_on_at_a_time_and_others_can_be_aborted_while_they_wait() -> None:
    limiter = OneAtATime()
    first = bench(FauxResponse("first", stall_before_start=True), middleware=[limiter])
    second, third = (bench(text, middleware=[limiter]) for text in ("second", "third"))
    results: list[RunResult] = []

    async def prompt(made: Bench) -> None:
        results.append(await made.agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt, first)
        await first.provider.wait_stalled()
        for waiting in (second, third):
            tasks.start_soon(prompt, waiting)
            await anyio.wait_all_tasks_blocked()
        second.agent.abort()
        await second.agent.wait_for_idle()
        await anyio.wait_all_tasks_blocked()
        assert [result.outcome for result in results] == ["aborted"]
        first.provider.release_stalls()
    assert [result.text for result in results] == ["", "first", "third"]
    assert not limiter.lock.statistics().locked


@pytest.mark.virtual_clock
async def test_a_layer_may_give_a_run_its_time_which_settles_it_as_aborted() -> None:
    async def limited(proceed: Proceed[RunResult]) -> RunResult | None:
        with anyio.move_on_after(3):
            return await proceed()
        return None

    made = bench(calling("sleep"), tools=[sleeping("sleep")], middleware=[only("around_run", limited)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, made.labels[-1]) == ("aborted", "agent_end:aborted")
    assert [one.details["ending"] for one in made.results] == ["cancelled"]
    await assert_well_ended(made)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("limit", ["run_timeout", "turn_timeout", "tool_timeout", "idle_timeout"])
async def test_every_onion_closes_once_when_a_limit_is_reached(limit: str) -> None:
    onions = Onions()
    answer = FauxResponse("one two", stall_after_deltas=1) if limit == "idle_timeout" else calling("sleep")
    limits = RunLimits(**{limit: 5})
    made = bench(answer, "done", tools=[sleeping("sleep")], middleware=[onions], limits=limits)
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit) == (("completed", None) if limit == "tool_timeout" else ("limit", limit))
    assert onions.faults == []
    assert onions.closed["tool c1"] == (0 if limit == "idle_timeout" else 1)
    assert [known.outcome for known in onions.of("run")] == [result.outcome]


async def test_a_stream_that_is_left_early_closes_every_onion() -> None:
    onions = Onions()
    made = bench(FauxResponse("one two", stall_after_deltas=1), middleware=[onions])
    async with made.agent.stream("hi") as run:
        async for event in run:
            if event.type == "message_update":
                break
    assert (onions.faults, onions.closed["run"], onions.closed["call"], onions.closed["try"]) == ([], 1, 1, 1)
    await assert_well_ended(made)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_leaving_a_stream_reaches_a_layer_that_waits(when: str) -> None:
    waiting = Waiting(when)
    made = bench("done", middleware=[waiting])
    async with made.agent.stream("hi") as run:
        await waiting.waits.wait()
    assert (await run.result()).outcome == ("aborted" if when == "before" else "completed")
    assert not made.agent.state.is_running
    await assert_well_ended(made, heard=when == "after")


async def test_a_forked_run_has_its_onions_too() -> None:
    onions = Onions()
    made = bench("aside", middleware=[onions])
    assert (await made.agent.fork_once("what if")).text == "aside"
    assert (onions.faults, onions.closed["run"]) == ([], 1)


class Log(Middleware):
    """Logs each run in a line, also one that was cancelled."""

    log = logging.getLogger("tests.runs")

    async def around_run(self, proceed: Proceed[RunResult], *, ctx: Any) -> RunResult:
        ctx.result_notes["log"] = "tests.runs"
        try:
            return await proceed()
        finally:
            result = proceed.outcome
            self.log.info("%s %s", ctx.run_id, result.outcome if result is not None else "never began")


async def test_a_log_has_a_line_for_each_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tests.runs")
    made = bench("done", FauxResponse("never", stall_before_start=True), middleware=[Log()])
    assert (await made.agent.prompt("hi", run_id="one")).notes == {"log": "tests.runs"}
    async with anyio.create_task_group() as tasks:

        async def prompt() -> None:
            await made.agent.prompt("hi", run_id="two")

        tasks.start_soon(prompt)
        await made.provider.wait_stalled()
        tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["one completed", "two aborted"]
