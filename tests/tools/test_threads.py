"""Tools that are plain functions: they run in threads, can be told to stop, and are left if they do not listen."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio import from_thread

from cubepi_anyio import AgentToolResult, CallEnding, RunLimits, faux_assistant_message, faux_tool_call
from tests.support.agents import Bench, NoParams, Word, assert_well_ended, bench, calling, running_tasks, tool_of
from tests.support.backends import on_asyncio
from tests.support.threads import until
from tests.tools.ways import ENDING, REASON, WAYS, end_call, timeout_for

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

REQUEST: ContextVar[str] = ContextVar("REQUEST")
PATIENCE_SECONDS = 10.0
"""How long a thread of a test waits before it gives up, so that a failing test ends."""
MOST_AT_ONCE = 64
"""How many calls of plain functions run at once, as the page about blocking says."""


class Began:
    """Told in a thread, waited for in the event loop."""

    def __init__(self) -> None:
        self._event, self._token = anyio.Event(), anyio.lowlevel.current_token()

    def set(self) -> None:
        from_thread.run_sync(self._event.set, token=self._token)

    async def wait(self) -> None:
        await self._event.wait()


@contextmanager
def nothing_unheard() -> Generator[None]:
    """Fail if an error goes where nobody listens: a thread's, a collected object's or the event loop's own handler."""
    unheard: list[object] = []
    patch = pytest.MonkeyPatch()
    patch.setattr(threading, "excepthook", unheard.append)
    patch.setattr(sys, "unraisablehook", unheard.append)
    with suppress(RuntimeError):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    try:
        yield
    finally:
        patch.undo()
        with suppress(RuntimeError):
            asyncio.get_running_loop().set_exception_handler(None)
    assert unheard == []


# --- as any other tool -----------------------------------------------------------------------


async def test_plain_functions_run_beside_the_loop_and_beside_each_other() -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE_SECONDS)
    seen: set[int] = set()

    def meet(tool_call_id: str, params: NoParams) -> str:
        meeting.wait()
        seen.add(threading.get_ident())
        return "met"

    made = bench(calling("meet", "meet"), "done", tools=[tool_of("meet", meet)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        # The third party is a thread of the test, which only gets here if the loop goes on.
        await anyio.to_thread.run_sync(meeting.wait)
    assert made.texts == ["met", "met"]
    assert len(seen) == 2
    assert threading.get_ident() not in seen


async def test_context_variables_of_the_caller_are_seen_in_the_thread_and_do_not_leak_out() -> None:
    """B97, B99."""

    def read(tool_call_id: str, params: NoParams) -> str:
        found = REQUEST.get()
        REQUEST.set("changed in the thread")
        return found

    REQUEST.set("of the caller")
    made = bench(calling("read", "read"), "done", tools=[tool_of("read", read)])
    await made.agent.prompt("hi")
    assert made.texts == ["of the caller", "of the caller"]
    assert REQUEST.get() == "of the caller"


async def test_what_a_plain_function_raises_is_the_result_of_its_call_alone() -> None:
    def fail(tool_call_id: str, params: NoParams) -> str:
        raise LookupError("no such row")

    def work(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("fine", {"rows": 1})

    made = bench(calling("fail", "work"), "done", tools=[tool_of("fail", fail), tool_of("work", work)])
    await made.agent.prompt("hi")
    assert [(result.text, result.is_error) for result in made.results] == [("no such row", True), ("fine", False)]
    assert [result.details for result in made.results] == [
        {"ending": "failed", "error_type": "LookupError"},
        {"rows": 1},
    ]


async def test_a_plain_function_that_returns_something_to_await_is_awaited() -> None:
    """B99."""

    async def later() -> str:
        await anyio.lowlevel.checkpoint()
        return "awaited"

    def begin(tool_call_id: str, params: NoParams) -> Any:
        return later()

    made = bench(calling("begin"), "done", tools=[tool_of("begin", begin)])
    await made.agent.prompt("hi")
    assert made.texts == ["awaited"]


async def test_a_plain_function_may_call_back_into_the_loop() -> None:
    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        return 2 * number

    def ask(tool_call_id: str, params: NoParams) -> str:
        from_thread.check_cancelled()
        return str(from_thread.run(double, from_thread.run_sync(lambda: 21)))

    made = bench(calling("ask", "ask"), "done", tools=[tool_of("ask", ask)])
    await made.agent.prompt("hi")
    assert made.texts == ["42", "42"]


async def test_a_plain_function_may_prompt_another_agent_whose_tools_are_plain_functions() -> None:
    def say(tool_call_id: str, params: NoParams) -> str:
        return "from within"

    inner = bench(calling("say"), "inner", tools=[tool_of("say", say)])

    def delegate(tool_call_id: str, params: NoParams) -> str:
        return from_thread.run(inner.agent.prompt, "hi").text

    outer = bench(calling("delegate"), "outer", tools=[tool_of("delegate", delegate)])
    await outer.agent.prompt("hi")
    assert (outer.texts, inner.texts) == (["inner"], ["from within"])


# --- told to stop ----------------------------------------------------------------------------


def looking_at_its_signal(way: str, began: Began, reasons: list[str | None]) -> Any:
    def poll(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        deadline = threading.Event()
        for _ in range(int(PATIENCE_SECONDS / 0.005)):
            if signal.is_set():
                reasons.append(signal.reason)
                return "stopped half-way"
            deadline.wait(0.005)
        return "never told"

    return tool_of("poll", poll, timeout=timeout_for(way))


async def _check_polling(way: str) -> None:
    began, reasons = Began(), list[str | None]()
    made = bench(calling("poll"), "done", tools=[looking_at_its_signal(way, began, reasons)])
    await end_call(way, made, began.wait)
    assert made.texts == ["stopped half-way"]
    assert not made.results[0].is_error
    assert made.labels.count("tool_execution_end:c1:finished") == 1
    assert reasons == [REASON if way in ("abort", "abort_tool_call") else "cancelled"]
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_a_function_that_looks_at_its_signal_gives_its_real_result(way: str) -> None:
    await _check_polling(way)


@on_asyncio
async def test_a_function_that_looks_at_its_signal_hears_of_a_native_cancel() -> None:
    await _check_polling("native")


async def _check_checking(way: str) -> None:
    began, ended = Began(), threading.Event()

    def check(tool_call_id: str, params: NoParams) -> str:
        began.set()
        pause = threading.Event()
        try:
            for _ in range(int(PATIENCE_SECONDS / 0.005)):
                from_thread.check_cancelled()
                pause.wait(0.005)
        finally:
            ended.set()
        return "never told"

    made = bench(calling("check"), "done", tools=[tool_of("check", check, timeout=timeout_for(way))])
    await end_call(way, made, began.wait)
    assert ended.is_set()
    assert made.results[0].is_error
    assert made.results[0].details["ending"] == ENDING[way]
    assert made.labels.count(f"tool_execution_end:c1:{ENDING[way]}") == 1
    await assert_well_ended(made)


@pytest.mark.parametrize("way", WAYS)
async def test_a_function_that_checks_for_cancellation_is_ended_by_it(way: str) -> None:
    await _check_checking(way)


@on_asyncio
async def test_a_function_that_checks_for_cancellation_is_ended_by_a_native_cancel() -> None:
    await _check_checking("native")


async def test_a_function_that_ends_with_an_error_when_told_was_cancelled_all_the_same() -> None:
    began = Began()

    def give_up(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        until(signal.is_set)
        raise RuntimeError("told to stop")

    made = bench(calling("give_up"), "never", tools=[tool_of("give_up", give_up)])
    await end_call("abort", made, began.wait)
    assert made.texts == [f"The call was cancelled before it was complete: the run was aborted ({REASON})"]
    await assert_well_ended(made)


# --- deaf ------------------------------------------------------------------------------------


class Deaf:
    """A function that waits for the test and for nobody else."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began, self.go, self.error = Began(), threading.Event(), error
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.on_update: Any = None

    def execute(self, tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        self.thread, self.on_update = threading.current_thread(), on_update
        self.began.set()
        assert self.go.wait(PATIENCE_SECONDS)
        try:
            on_update("too late")
            if self.error is not None:
                raise self.error
            return "too late"
        finally:
            self.ended.set()

    async def let_go(self) -> None:
        self.go.set()
        await anyio.to_thread.run_sync(self.ended.wait)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()


async def _check_deaf(way: str, error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    before = running_tasks()
    deaf = Deaf(error)
    made = bench(calling("deaf"), "done", tools=[tool_of("deaf", deaf.execute, timeout=timeout_for(way))])
    with caplog.at_level(logging.WARNING, "cubepi_anyio"), nothing_unheard():
        began = anyio.current_time()
        await end_call(way, made, deaf.began.wait)
        assert anyio.current_time() - began < 5
        assert running_tasks() == before
        [result] = made.results
        assert result.is_error
        assert result.details["ending"] == CallEnding.ABANDONED
        assert "abandoned, may still be running, and its outcome is unknown" in result.text
        assert made.labels.count("tool_execution_end:c1:abandoned") == 1
        [warning] = [record.getMessage() for record in caplog.records if record.name.startswith("cubepi_anyio")]
        assert "'deaf' does not look at its signal and is abandoned in its thread" in warning
        await assert_well_ended(made)
        said, kept = len(made.events), made.agent.state.messages
        await deaf.let_go()
    assert (len(made.events), made.agent.state.messages) == (said, kept)
    assert made.results == [result]


@pytest.mark.parametrize("error", [None, LookupError("too late")])
@pytest.mark.parametrize("way", WAYS)
async def test_a_deaf_function_is_abandoned_and_its_late_end_is_dropped(
    way: str, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """B15, B16."""
    await _check_deaf(way, error, caplog)


@on_asyncio
async def test_a_deaf_function_is_abandoned_by_a_native_cancel(caplog: pytest.LogCaptureFixture) -> None:
    await _check_deaf("native", LookupError("too late"), caplog)


@pytest.mark.deadline(60)
async def test_abandoned_functions_do_not_take_the_places_of_those_to_come() -> None:
    all_began, go, ended, count = Began(), threading.Event(), threading.Barrier(MOST_AT_ONCE + 1), itertools.count(1)

    def deaf(tool_call_id: str, params: NoParams) -> str:
        if next(count) == MOST_AT_ONCE:
            all_began.set()
        go.wait()
        ended.wait()
        return "too late"

    limits = RunLimits(max_parallel_tools=None)
    made = bench(calling(*["deaf"] * MOST_AT_ONCE), "never", tools=[tool_of("deaf", deaf)], limits=limits)
    await end_call("abort", made, all_began.wait)
    assert [result.details["ending"] for result in made.results] == ["abandoned"] * MOST_AT_ONCE

    def work(tool_call_id: str, params: NoParams) -> str:
        return "done in a thread"

    made = bench(calling("work", "work"), "done", tools=[tool_of("work", work)])
    try:
        with anyio.fail_after(20):
            await made.agent.prompt("hi")
    finally:
        go.set()
        await anyio.to_thread.run_sync(ended.wait)
    assert made.texts == ["done in a thread"] * 2


async def test_a_thread_is_not_held_by_what_it_says_after_its_call_was_cancelled() -> None:
    deaf, held = Deaf(), anyio.Event()
    made = bench(calling("deaf"), "never", tools=[tool_of("deaf", deaf.execute)])

    async def hold(event: Any) -> None:
        if event.type == "tool_execution_update":
            held.set()
            await anyio.sleep_forever()

    made.agent.subscribe(hold)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await deaf.began.wait()
        deaf.go.set()
        await held.wait()
        made.agent.abort()
    assert deaf.ended.is_set()
    await assert_well_ended(made)


# --- many ------------------------------------------------------------------------------------


def waiting_calls(made_of: int) -> Any:
    return faux_assistant_message([faux_tool_call("hold", {"word": str(n)}, id=f"c{n}") for n in range(made_of)])


@pytest.mark.deadline(60)
async def test_a_function_that_waits_for_its_turn_never_begins_when_it_is_cancelled() -> None:
    """B31."""
    full, may_end, began = anyio.Event(), threading.Event(), list[str]()

    def hold(tool_call_id: str, params: Word) -> str:
        def note() -> None:
            began.append(params.word)
            if len(began) == MOST_AT_ONCE:
                full.set()

        from_thread.run_sync(note)
        may_end.wait()
        return "stopped"

    async def all_places_are_taken() -> None:
        await full.wait()
        await anyio.wait_all_tasks_blocked()

    limits = RunLimits(max_parallel_tools=None)
    made = bench(
        waiting_calls(MOST_AT_ONCE + 7), "never", tools=[tool_of("hold", hold, parameters=Word)], limits=limits
    )
    made.agent.subscribe(lambda event: may_end.set() if event.type == "tool_execution_end" else None)
    await end_call("abort", made, all_places_are_taken)
    assert len(began) == MOST_AT_ONCE
    assert sorted(made.texts) == sorted(["stopped"] * MOST_AT_ONCE + [_cancelled_text()] * 7)
    assert [result.tool_call_id for result in made.results] == [f"c{n}" for n in range(MOST_AT_ONCE + 7)]
    await assert_well_ended(made)


def _cancelled_text() -> str:
    return f"The call was cancelled before it was complete: the run was aborted ({REASON})"


async def test_no_more_functions_run_at_once_than_the_limits_say() -> None:
    """B31."""
    lock, running, most = threading.Lock(), 0, 0

    def work(tool_call_id: str, params: Word) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return params.word

    tools = [tool_of("hold", work, parameters=Word)]
    made: Bench = bench(waiting_calls(20), "done", tools=tools, limits=RunLimits(max_parallel_tools=4))
    await made.agent.prompt("hi")
    assert most == 4
    assert made.texts == [str(n) for n in range(20)]


async def test_a_run_leaves_no_busy_thread_behind() -> None:
    def work(tool_call_id: str, params: NoParams) -> str:
        return threading.current_thread().name

    before = set(threading.enumerate())  # another test may have abandoned one that has not ended yet
    made = bench(calling(*["work"] * 5), "done", tools=[tool_of("work", work)])
    await made.agent.prompt("hi")
    begun = set(threading.enumerate()) - before
    assert [thread.name for thread in begun if "cubepi_anyio" in thread.name] == []
