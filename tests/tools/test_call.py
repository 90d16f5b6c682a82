"""One call through an agent: where it runs, how it ends, and what the model reads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread

from cubepi_anyio import (
    AgentTool,
    AgentToolResult,
    RunLimits,
    TextContent,
    ToolContext,
    faux_assistant_message,
    faux_tool_call,
    tool,
)
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    bench,
    calling,
    running_tasks,
    saying,
    sleeping,
    tool_of,
)
from tests.support.backends import on_asyncio
from tests.support.threads import until

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

user = contextvars.ContextVar("user", default="nobody")


def ending_of(made: Bench, call: str = "c1") -> str:
    """How a call ended, by its event."""
    [end] = [e for e in made.events if e.type == "tool_execution_end" and e.tool_call_id == call]
    return end.ending


# --- what it is given ------------------------------------------------------------------------


async def test_a_tool_is_given_what_it_declares_and_nothing_else() -> None:
    given: dict[str, Any] = {}

    async def bare(tool_call_id: str, params: NoParams) -> str:
        given["bare"] = (tool_call_id, params)
        return "ok"

    async def everything(tool_call_id: str, params: NoParams, **keywords: Any) -> str:
        given["everything"] = sorted(keywords)
        return "ok"

    async def context(tool_call_id: str, params: NoParams, *, context: ToolContext) -> str:
        given["context"] = (context.tool_call_id, context.tool_name, context.run_id, len(context.messages))
        await context.update("half")
        return "ok"

    functions = {"bare": bare, "everything": everything, "context": context}
    made = bench(calling(*functions), "done", tools=[tool_of(name, f) for name, f in functions.items()])
    result = await made.agent.prompt("hi")
    assert given["bare"] == ("c1", NoParams())
    assert given["everything"] == ["context", "ctx", "on_update", "signal"]
    assert given["context"] == ("c3", "context", result.run_id, 2)
    assert "tool_execution_update:c3" in made.labels
    assert made.texts == ["ok"] * 3


async def test_a_decorated_function_is_a_tool() -> None:
    @tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    made = bench(faux_assistant_message([faux_tool_call("add", {"a": 2})]), "done", tools=[add])
    await made.agent.prompt("hi")
    assert made.texts == ["3"]


@pytest.mark.parametrize("value", ["text", AgentToolResult("text"), AgentToolResult([TextContent(text="text")])])
async def test_a_tool_returns_a_result_or_a_text(value: Any) -> None:
    async def give(tool_call_id: str, params: NoParams) -> Any:
        return value

    made = bench(calling("give"), "done", tools=[tool_of("give", give)])
    await made.agent.prompt("hi")
    assert (made.texts, made.results[0].is_error) == (["text"], False)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(("value", "name"), [(None, "NoneType"), (3, "int"), ({"a": 1}, "dict")])
async def test_a_result_of_a_wrong_type_is_an_error_of_its_call(value: Any, name: str, in_thread: bool) -> None:
    async def give(tool_call_id: str, params: NoParams) -> Any:
        return value

    def give_from_thread(tool_call_id: str, params: NoParams) -> Any:
        return value

    made = bench(calling("give"), "done", tools=[tool_of("give", give_from_thread if in_thread else give)])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert made.texts == [f"tool 'give' returned {name}; a tool returns an AgentToolResult or a string"]
    assert (made.results[0].is_error, ending_of(made)) == (True, "failed")


async def test_details_go_to_the_program_and_stay_out_of_the_text() -> None:
    async def search(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("two hits", details={"raw": [1, 2]})

    made = bench(calling("search"), "done", tools=[tool_of("search", search)])
    await made.agent.prompt("hi")
    assert (made.results[0].details, made.texts) == ({"raw": [1, 2]}, ["two hits"])


# --- errors ----------------------------------------------------------------------------------


class Silent(Exception):
    """Has no text."""


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such page"), "no such page"),
        (Silent(), "Silent"),
        (TimeoutError(), "TimeoutError"),
        (TimeoutError("the database took too long"), "the database took too long"),
        (
            ExceptionGroup("several", [ValueError("a"), ExceptionGroup("more", [Silent(), KeyError("b")])]),
            "a; Silent; 'b'",
        ),
        (StopIteration("odd"), None),
    ],
)
async def test_an_exception_is_an_error_result_with_its_text(
    error: Exception, text: str | None, in_thread: bool
) -> None:
    async def fail(tool_call_id: str, params: NoParams) -> str:
        raise error

    def fail_in_thread(tool_call_id: str, params: NoParams) -> str:
        raise error

    if text is None and in_thread:
        return  # a thread cannot carry it, and an async function turns it into a RuntimeError
    made = bench(
        calling("fail", "say"),
        "done",
        tools=[tool_of("fail", fail_in_thread if in_thread else fail), saying("say")],
        limits=RunLimits(tool_timeout=10),
    )
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    assert made.texts[1] == "say"
    assert text is None or made.texts[0] == text
    assert (made.results[0].is_error, ending_of(made)) == (True, "failed")


async def test_the_errors_of_a_tool_s_own_task_group_are_the_outcome() -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("inner")

    async def group(tool_call_id: str, params: NoParams) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            tasks.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()
        return "never"

    made = bench(calling("group", "say"), "done", tools=[tool_of("group", group), saying("say")])
    await made.agent.prompt("hi")
    assert made.texts == ["inner", "say"]


async def test_one_tool_s_failure_touches_no_sibling() -> None:
    ended = anyio.Event()

    async def fail(tool_call_id: str, params: NoParams) -> str:
        ended.set()
        raise ValueError("no match")

    async def slow(tool_call_id: str, params: NoParams) -> str:
        await ended.wait()
        await anyio.wait_all_tasks_blocked()
        return tool_call_id

    tools = [tool_of("fail", fail), tool_of("slow", slow)]
    made = bench(calling("slow", "slow", "fail", "slow", "slow"), "done", tools=tools)
    await made.agent.prompt("hi")
    assert made.texts == ["c1", "c2", "no match", "c4", "c5"]
    assert [result.is_error for result in made.results] == [False, False, True, False, False]
    await assert_well_ended(made)


# --- timeouts, aborts, and cancelling itself -------------------------------------------------


@pytest.mark.parametrize("names", [["slow"], ["slow", "say"]])
async def test_a_timeout_ends_the_call_and_says_so(names: list[str]) -> None:
    before = running_tasks()
    made = bench(calling(*names), "done", tools=[sleeping("slow", timeout=0.02), saying("say")])
    result = await made.agent.prompt("hi")
    assert running_tasks() == before
    assert (result.outcome, result.text) == ("completed", "done")
    assert made.texts == ["The call timed out: it was cancelled after 0.02 seconds.", "say"][: len(names)]
    assert (made.results[0].is_error, ending_of(made)) == (True, "timed_out")
    assert made.results[0].details == {"ending": "timed_out", "timeout_seconds": 0.02}
    await assert_well_ended(made)


@pytest.mark.parametrize("names", [["slow"], ["slow", "say"], ["say", "slow", "slow"]])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_abort_tool_call_ends_that_call_alone(names: list[str], mode: Any) -> None:
    began = anyio.Event()
    made = bench(calling(*names), "went on", tools=[sleeping("slow", began), saying("say")], tool_execution=mode)
    results: list[Any] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        await began.wait()
        for number, name in enumerate(names, 1):
            if name == "slow":
                assert made.agent.abort_tool_call(f"c{number}", "not needed") is True
    assert (results[0].outcome, results[0].text) == ("completed", "went on")
    expected = {"slow": "The call was cancelled by the user: not needed", "say": "say"}
    assert made.texts == [expected[name] for name in names]
    assert ending_of(made, f"c{names.index('slow') + 1}") == "aborted"
    await assert_well_ended(made)


async def test_a_call_that_is_aborted_while_it_waits_for_its_turn_never_begins() -> None:
    began = anyio.Event()
    ran: list[str] = []

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ok"

    made = bench(
        calling("slow", "note", "note"),
        "done",
        tools=[sleeping("slow", began), tool_of("note", note)],
        limits=RunLimits(max_parallel_tools=1),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        assert made.agent.abort_tool_call("c2") is True
        assert made.agent.abort_tool_call("c1") is True
    assert ran == ["c3"]
    assert [result.is_error for result in made.results] == [True, True, False]


async def test_the_signal_of_a_call_is_set_with_it_and_no_other() -> None:
    signals: dict[str, Any] = {}
    began = anyio.Event()

    async def wait(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        signals[tool_call_id] = signal
        if len(signals) == 2:
            began.set()
        await anyio.sleep_forever()
        return "never"

    made = bench(calling("wait", "wait"), "done", tools=[tool_of("wait", wait)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort_tool_call("c1", "first")
        assert (signals["c1"].is_set(), signals["c1"].reason, signals["c2"].is_set()) == (True, "first", False)
        made.agent.abort_tool_call("c2")


@pytest.mark.parametrize("names", [["odd"], ["odd", "say"]])
async def test_a_tool_whose_inner_scope_is_cancelled_is_not_cancelled(names: list[str]) -> None:
    async def odd(tool_call_id: str, params: NoParams) -> str:
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        return f"moved on: {scope.cancelled_caught}"

    made = bench(calling(*names), "done", tools=[tool_of("odd", odd), saying("say")])
    await made.agent.prompt("hi")
    assert (made.texts[0], ending_of(made)) == ("moved on: True", "finished")


@on_asyncio
@pytest.mark.parametrize("names", [["odd"], ["odd", "say", "say"]])
@pytest.mark.parametrize("how", ["raise", "task", "task at the end"])
async def test_a_tool_that_cancels_itself_is_an_error_of_its_call(names: list[str], how: str) -> None:
    async def odd(tool_call_id: str, params: NoParams) -> str:
        if how == "raise":
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if how == "task":
            await anyio.lowlevel.checkpoint()
        return "it had ended already"

    made = bench(calling(*names), "done", tools=[tool_of("odd", odd), saying("say")])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    expected = "it had ended already" if how == "task at the end" else "the tool cancelled itself"
    assert made.texts == [expected, "say", "say"][: len(names)]
    await assert_well_ended(made)


@on_asyncio
async def test_a_tool_that_awaits_a_cancelled_task_is_an_error_of_its_call() -> None:
    async def odd(tool_call_id: str, params: NoParams) -> str:
        task = asyncio.ensure_future(anyio.sleep_forever())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task
        return "never"

    made = bench(calling("odd", "say"), "done", tools=[tool_of("odd", odd), saying("say")])
    result = await made.agent.prompt("hi")
    assert (result.outcome, made.texts) == ("completed", ["the tool cancelled itself", "say"])


async def test_a_tool_that_ends_together_with_its_timeout_has_one_outcome() -> None:
    async def close(tool_call_id: str, params: NoParams) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)
        return "in time after all"

    made = bench(calling("close"), "done", tools=[tool_of("close", close, timeout=0.01)])
    await made.agent.prompt("hi")
    assert len(made.results) == 1
    assert made.texts == ["in time after all"]


async def test_cleanup_in_a_shield_is_waited_for_at_a_timeout() -> None:
    cleaned: list[bool] = []

    async def careful(tool_call_id: str, params: NoParams) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.append(True)
        return "never"

    made = bench(calling("careful"), "done", tools=[tool_of("careful", careful, timeout=0.01)])
    await made.agent.prompt("hi")
    assert (cleaned, ending_of(made)) == ([True], "timed_out")


# --- cooperative tools -----------------------------------------------------------------------


@pytest.mark.parametrize("names", [["tidy"], ["tidy", "tidy"]])
@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_cooperative_tool_has_time_to_return_its_result(names: list[str], way: str) -> None:
    began = anyio.Event()

    async def tidy(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        await signal.wait()
        await anyio.lowlevel.checkpoint()
        return "three of ten done"

    tools = [tool_of("tidy", tidy, cancellation="cooperative", grace=10)]
    made = bench(calling(*names), "never", tools=tools)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        await anyio.wait_all_tasks_blocked()
        if way == "abort":
            made.agent.abort()
        else:
            tasks.cancel_scope.cancel()
    assert made.texts == ["three of ten done"] * len(names)
    assert made.agent.state.last_outcome == "aborted"
    assert made.provider.call_count == 1
    await assert_well_ended(made)


@on_asyncio
async def test_a_cooperative_tool_has_its_time_also_when_the_task_is_cancelled() -> None:
    began = anyio.Event()

    async def tidy(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        await signal.wait()
        await anyio.lowlevel.checkpoint()
        return "three of ten done"

    made = bench(calling("tidy"), tools=[tool_of("tidy", tidy, cancellation="cooperative")])
    task = asyncio.create_task(made.agent.prompt("hi"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made.texts == ["three of ten done"]
    await assert_well_ended(made)


async def test_a_cooperative_tool_that_does_not_listen_is_cancelled_when_its_grace_is_over() -> None:
    began = anyio.Event()
    made = bench(calling("deaf"), tools=[sleeping("deaf", began, cancellation="cooperative", grace=0.05)])
    aborted_at = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        aborted_at = anyio.current_time()
        made.agent.abort()
    assert 0.04 <= anyio.current_time() - aborted_at < 2
    assert ending_of(made) == "cancelled"
    await assert_well_ended(made)


async def test_a_cooperative_tool_that_is_not_disturbed_is_like_any_other() -> None:
    made = bench(calling("say"), "done", tools=[saying("say", cancellation="cooperative")])
    result = await made.agent.prompt("hi")
    assert (result.text, made.texts, ending_of(made)) == ("done", ["say"], "finished")


# --- what ignores its cancellation -----------------------------------------------------------


async def test_a_tool_that_goes_on_after_its_cancellation_is_named(caplog: pytest.LogCaptureFixture) -> None:
    began = anyio.Event()

    async def stubborn(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.2)
        return "did it all the same"

    made = bench(calling("stubborn"), tools=[tool_of("stubborn", stubborn)], limits=RunLimits(settle_timeout=0.05))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort()
    assert ending_of(made) == "ignored_cancellation"
    assert "did it all the same" in made.texts[0]
    assert "The call was cancelled, but went on for 0." in made.texts[0]
    assert "stubborn" in caplog.text
    await assert_well_ended(made)


async def test_a_tool_that_shields_itself_all_along_is_named_after_an_abort(caplog: pytest.LogCaptureFixture) -> None:
    began = anyio.Event()

    async def shielded(tool_call_id: str, params: NoParams) -> str:
        with anyio.CancelScope(shield=True):
            began.set()
            await anyio.sleep(0.2)
        return "did it all the same"

    made = bench(calling("shielded"), tools=[tool_of("shielded", shielded)], limits=RunLimits(settle_timeout=0.05))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort()
    assert ending_of(made) == "ignored_cancellation"
    assert made.texts[0].startswith("did it all the same")
    assert "waits for tool 'shielded'" in caplog.text
    await assert_well_ended(made)


async def test_each_call_has_its_own_time_until_it_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A call that ended in time is not named, and does not keep a later one from being named."""

    async def stubborn(tool_call_id: str, params: NoParams) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)
        return "never"

    tools = [sleeping("quick", timeout=0.01), tool_of("stubborn", stubborn, timeout=0.01)]
    made = bench(calling("quick"), calling("stubborn"), "done", tools=tools, limits=RunLimits(settle_timeout=0.1))
    named_after: list[float] = []
    began = anyio.current_time()

    async def look() -> None:
        while "goes on at" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await anyio.sleep(0.005)
        named_after.append(anyio.current_time() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await made.agent.prompt("hi")
        assert named_after, "named only when it was over"
        tasks.cancel_scope.cancel()
    assert caplog.text.count("goes on at") == 1
    assert "tool 'stubborn' (call c1)" in caplog.text


# --- plain functions -------------------------------------------------------------------------


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on() -> None:
    release = threading.Event()
    threads: list[int] = []

    def block(tool_call_id: str, params: NoParams) -> str:
        threads.append(threading.get_ident())
        release.wait(5)
        return "released"

    beats = 0

    async def beat() -> None:
        nonlocal beats
        while beats < 20:
            await anyio.lowlevel.checkpoint()
            beats += 1
        release.set()

    made = bench(calling("block"), "done", tools=[tool_of("block", block)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        tasks.start_soon(beat)
    assert (beats, made.texts) == (20, ["released"])
    assert threads[0] != threading.get_ident()


async def test_plain_functions_of_one_batch_overlap() -> None:
    together = threading.Barrier(3, timeout=5)

    def meet(tool_call_id: str, params: NoParams) -> str:
        together.wait()
        return "met"

    made = bench(calling("meet", "meet", "meet"), "done", tools=[tool_of("meet", meet)])
    await made.agent.prompt("hi")
    assert made.texts == ["met"] * 3


async def test_the_caller_s_context_is_visible_in_tools_and_nothing_of_theirs_leaks_out() -> None:
    async def in_loop(tool_call_id: str, params: NoParams) -> str:
        seen = user.get()
        user.set("a tool")
        return seen

    def in_thread(tool_call_id: str, params: NoParams) -> str:
        seen = user.get()
        user.set("a thread")
        return seen

    tools = [tool_of("loop", in_loop), tool_of("thread", in_thread)]
    made = bench(calling("loop", "thread"), "done", tools=tools)
    token = user.set("somebody")
    try:
        await made.agent.prompt("hi")
        assert user.get() == "somebody"
    finally:
        user.reset(token)
    assert made.texts == ["somebody", "somebody"]


async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    async def rest() -> str:
        await anyio.lowlevel.checkpoint()
        return f"from {threading.current_thread().name}"

    def hybrid(tool_call_id: str, params: NoParams) -> Any:
        return rest()

    made = bench(calling("hybrid"), "done", tools=[tool_of("hybrid", hybrid)])
    await made.agent.prompt("hi")
    assert made.texts == [f"from {threading.current_thread().name}"]


@pytest.mark.parametrize("way", ["abort", "abort_tool_call", "timeout"])
async def test_a_thread_that_looks_at_its_signal_returns_its_real_result(way: str) -> None:
    began = threading.Event()

    def poll(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        until(signal.is_set)
        return "stopped half way"

    made = bench(calling("poll"), "went on", tools=[tool_of("poll", poll, timeout=0.05 if way == "timeout" else None)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await to_thread.run_sync(began.wait)
        if way == "abort":
            made.agent.abort()
        elif way == "abort_tool_call":
            made.agent.abort_tool_call("c1")
    assert made.texts == ["stopped half way"]
    assert made.agent.state.last_outcome == ("aborted" if way == "abort" else "completed")
    await assert_well_ended(made)


async def test_a_thread_may_ask_whether_it_is_cancelled() -> None:
    began = threading.Event()

    def poll(tool_call_id: str, params: NoParams) -> str:
        began.set()
        until(from_thread.check_cancelled)
        return "never"

    made = bench(calling("poll"), tools=[tool_of("poll", poll)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await to_thread.run_sync(began.wait)
        made.agent.abort()
    assert ending_of(made) == "cancelled"
    await assert_well_ended(made)


async def test_a_thread_that_does_not_listen_is_abandoned_and_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    began, release, reported = threading.Event(), threading.Event(), threading.Event()

    def deaf(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        began.set()
        release.wait(10)
        on_update("too late")
        reported.set()
        return "too late"

    made = bench(calling("deaf"), tools=[tool_of("deaf", deaf)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await to_thread.run_sync(began.wait)
        made.agent.abort()
    assert ending_of(made) == "abandoned"
    assert "may still be running" in made.texts[0]
    assert "'deaf'" in caplog.text
    release.set()
    await to_thread.run_sync(reported.wait)
    assert made.labels[-1] == "agent_end:aborted"
    await assert_well_ended(made)


async def test_a_thread_that_waits_for_those_who_hear_its_report_is_let_go_by_an_abort() -> None:
    heard = anyio.Event()

    async def stuck(event: Any) -> None:
        if event.type == "tool_execution_update" and not heard.is_set():
            heard.set()
            await anyio.sleep_forever()

    def report(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update("half")
        return "said half of it"

    made = bench(calling("report"), tools=[tool_of("report", report)])
    made.agent.subscribe(stuck)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await heard.wait()
        made.agent.abort()
    assert (ending_of(made), made.texts) == ("finished", ["said half of it"])
    assert made.labels[-1] == "agent_end:aborted"
    await assert_well_ended(made)


async def test_an_abort_stops_tools_of_both_kinds_and_asks_no_model_again() -> None:
    all_began = threading.Barrier(3, timeout=5)
    began: list[str] = []

    async def wait(tool_call_id: str, params: NoParams) -> str:
        began.append(tool_call_id)
        await anyio.sleep_forever()
        return "never"

    def poll(tool_call_id: str, params: NoParams) -> str:
        all_began.wait()
        until(from_thread.check_cancelled)
        return "never"

    tools = [tool_of("wait", wait), tool_of("poll", poll)]
    made = bench(calling("wait", "poll", "wait", "poll"), "never", tools=tools)
    results: list[Any] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        await to_thread.run_sync(all_began.wait)
        await anyio.wait_all_tasks_blocked()
        made.agent.abort("the user left")
    assert (results[0].outcome, results[0].abort_reason) == ("aborted", "the user left")
    assert sorted(began) == ["c1", "c3"]
    assert [ending_of(made, f"c{number}") for number in range(1, 5)] == ["cancelled"] * 4
    assert all("the user left" in text for text in made.texts)
    assert made.provider.call_count == 1
    await assert_well_ended(made)


async def test_threads_of_tools_do_not_use_up_the_program_s_own() -> None:
    release = threading.Event()

    def block(tool_call_id: str, params: NoParams) -> str:
        release.wait(10)
        return "ok"

    count = 45  # more than the 40 threads of anyio's own limiter
    made = bench(calling(*["block"] * count), "done", tools=[tool_of("block", block)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await anyio.wait_all_tasks_blocked()
        assert await to_thread.run_sync(lambda: "free") == "free"
        release.set()
    assert made.texts == ["ok"] * count


async def test_a_tool_that_blocks_before_it_began_never_begins() -> None:
    """A thread that was still waiting for a free place when its run was aborted runs nothing."""
    release, full = threading.Event(), threading.Event()
    ran: list[str] = []

    def block(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        if len(ran) == 64:
            full.set()
        release.wait(10)
        return "ok"

    made = bench(calling(*["block"] * 70), tools=[tool_of("block", block)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await anyio.wait_all_tasks_blocked()
        await to_thread.run_sync(full.wait)
        made.agent.abort()
        await made.agent.wait_for_idle()
    release.set()
    await anyio.wait_all_tasks_blocked()
    assert len(ran) == 64
    assert len(made.results) == 70


def test_a_tool_can_be_replaced_field_by_field() -> None:

    first = saying("say")
    second = replace(first, timeout=3)
    assert isinstance(second, AgentTool)
    assert (first.timeout, second.timeout, second.name) == (None, 3, "say")
