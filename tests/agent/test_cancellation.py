"""A run that is ended from outside, in any state and way, leaves a valid record, no task, and a usable agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AssistantMessage,
    BaseProvider,
    FauxResponse,
    MessageStream,
    RunResult,
    StreamEvent,
    faux_assistant_message,
    faux_tool_call,
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

pytestmark = pytest.mark.anyio

STATES = ["loading", "waiting", "streaming", "streaming a call", "tools", "a sequential batch", "between turns"]


async def _hold_at(made: Bench, reached: anyio.Event, name: str) -> None:
    async def hold(event: Any) -> None:
        if event.type == name and not reached.is_set():
            reached.set()
            await anyio.sleep_forever()

    made.agent.subscribe(hold)


async def arranged(state: str) -> tuple[Bench, Callable[[], Awaitable[None]]]:
    """An agent whose run stops in ``state``, and a function that waits until it is there."""
    reached = anyio.Event()
    if state == "waiting":
        made = bench(FauxResponse("never said", stall_before_start=True))
        return made, made.provider.wait_stalled
    if state == "streaming":
        made = bench(FauxResponse("one two three four", stall_after_deltas=3))
        return made, made.provider.wait_stalled
    if state == "streaming a call":
        half = faux_assistant_message(["let me", faux_tool_call("say", {"word": "a long word"}, id="c1")])
        made = bench(FauxResponse(half, stall_after_deltas=4), tools=[saying("say")])
        return made, made.provider.wait_stalled
    if state in ("tools", "a sequential batch"):
        mode: Any = "sequential" if state == "a sequential batch" else "parallel"
        tools = [saying("say"), sleeping("sleep", reached)]
        made = bench(calling("say", "sleep", "sleep"), "never", tools=tools, tool_execution=mode)
        return made, reached.wait
    if state == "between turns":
        made = bench(calling("say"), "never", tools=[saying("say")])
        await _hold_at(made, reached, "turn_end")
        return made, reached.wait
    assert state == "loading"
    made = bench("never")
    await _hold_at(made, reached, "agent_start")
    return made, reached.wait


async def ended_by(way: str, made: Bench, reached: Callable[[], Awaitable[None]]) -> RunResult | str:
    """Prompt, end the run in this way, and return its result or the name of what the caller saw."""
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    if way == "abort":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await reached()
            made.agent.abort("enough")
        return results[0]
    if way in ("scope", "deadline"):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                await reached()
                await anyio.wait_all_tasks_blocked()
                scope.deadline = anyio.current_time() if way == "deadline" else scope.deadline
                if way == "scope":
                    scope.cancel()
                await anyio.sleep_forever()
        assert (results, scope.cancelled_caught) == ([], True)
        return "cancelled"
    task = asyncio.create_task(prompt() if way == "task cancel" else _in_timeout(prompt, reached))
    if way == "task cancel":
        await reached()
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (results, task.cancelled(), task.cancelling()) == ([], True, 1)
        return "cancelled"
    with pytest.raises(TimeoutError):
        await task
    assert (results, task.cancelling()) == ([], 0)
    return "timed out"


async def _in_timeout(prompt: Callable[[], Awaitable[None]], reached: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(None) as timeout:

        async def expire() -> None:
            await reached()
            timeout.reschedule(asyncio.get_running_loop().time())

        watcher = asyncio.create_task(expire())
        try:
            await prompt()
        finally:
            await watcher


@pytest.mark.parametrize("way", ["abort", "scope", "deadline"])
@pytest.mark.parametrize("state", STATES)
async def test_a_run_may_be_ended_in_any_state_and_way(state: str, way: str) -> None:
    await _end_and_check(state, way)


@on_asyncio
@pytest.mark.parametrize("way", ["task cancel", "asyncio timeout"])
@pytest.mark.parametrize("state", STATES)
async def test_a_run_may_be_ended_in_any_state_by_the_means_of_asyncio(state: str, way: str) -> None:
    await _end_and_check(state, way)


async def _end_and_check(state: str, way: str) -> None:
    before = running_tasks()
    made, reached = await arranged(state)
    with anyio.fail_after(10):
        seen = await ended_by(way, made, reached)
    assert running_tasks() == before
    if way == "abort":
        assert isinstance(seen, RunResult)
        assert (seen.outcome, seen.abort_reason) == ("aborted", "enough")
        assert seen.messages == made.agent.state.messages
    else:
        assert seen == ("timed out" if way == "asyncio timeout" else "cancelled")
    assert made.agent.state.last_outcome == "aborted"
    assert made.labels[-1] == "agent_end:aborted"
    _check_what_was_kept(made, state)
    calls = made.provider.call_count
    await assert_well_ended(made)
    assert made.provider.call_count == calls + 1


def _check_what_was_kept(made: Bench, state: str) -> None:
    answers = [message for message in made.agent.state.messages if isinstance(message, AssistantMessage)]
    if state in ("loading", "waiting"):
        assert answers == []
    elif state.startswith("streaming"):
        [answer] = answers
        assert answer.stop_reason == "aborted"
        assert answer.text
        assert answer.text in "one two three four let me"
        assert answer.tool_calls == []
    elif state == "between turns":
        assert made.texts == ["say"]
    else:
        assert [result.is_error for result in made.results] == [False, True, True]
        assert made.texts[0] == "say"
        assert all("cancelled" in text for text in made.texts[1:])


async def test_abort_before_the_prompt_has_begun_and_after_it_is_over_does_nothing() -> None:
    made = bench("one", "two")
    made.agent.abort("nobody is there")
    assert (await made.agent.prompt("a")).outcome == "completed"
    made.agent.abort()
    result = await made.agent.prompt("b")
    assert (result.outcome, result.abort_reason, result.text) == ("completed", None, "two")


@pytest.mark.parametrize(
    "name",
    [
        "agent_start",
        "turn_start",
        "message_start",
        "message_update",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "turn_end",
    ],
)
async def test_an_abort_by_a_listener_is_never_lost(name: str) -> None:
    """Also where the run would pass no checkpoint any more."""
    for last in (False, True):
        made = bench(calling("say", text="look"), "done", tools=[saying("say")])

        def abort(event: Any, made: Bench = made, last: bool = last) -> None:
            if event.type == name and (made.provider.call_count == 2) is last:
                made.agent.abort("seen enough")

        unsubscribe = made.agent.subscribe(abort)
        result = await made.agent.prompt("hi")
        if last and name in ("agent_start", "tool_execution_start", "tool_execution_end"):
            continue  # not in the last turn
        if last and name == "turn_start":
            continue  # said before the model is asked
        assert (result.outcome, result.abort_reason) == ("aborted", "seen enough")
        assert made.labels[-1] == "agent_end:aborted"
        unsubscribe()
        await assert_well_ended(made)


async def test_after_agent_end_was_said_the_outcome_stays_what_it_said() -> None:
    made = bench("done")
    reached = anyio.Event()

    async def slow(event: Any) -> None:
        if event.type == "agent_end" and not reached.is_set():
            reached.set()
            await anyio.sleep_forever()

    made.agent.subscribe(slow)
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await reached.wait()
            made.agent.abort()
    assert (results[0].outcome, made.labels[-1]) == ("completed", "agent_end:completed")
    await assert_well_ended(made)


async def test_aborting_twice_keeps_the_first_reason() -> None:
    reached = anyio.Event()
    made = bench(calling("sleep"), tools=[sleeping("sleep", reached)])
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await reached.wait()
            made.agent.abort("first")
            made.agent.abort("second")
    assert results[0].abort_reason == "first"
    assert "first" in made.texts[0]


async def test_the_signal_is_set_with_the_reason_before_the_cancellation_arrives() -> None:
    began = anyio.Event()
    seen: list[tuple[bool, str | None]] = []

    async def look(tool_call_id: str, params: NoParams, *, signal: Any) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append((signal.is_set(), signal.reason))
        return "never"

    made = bench(calling("look", "look"), tools=[tool_of("look", look)])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await began.wait()
            await anyio.wait_all_tasks_blocked()
            made.agent.abort("stop")
    assert seen == [(True, "stop"), (True, "stop")]


async def test_no_model_is_asked_after_an_abort() -> None:
    began = anyio.Event()
    made = bench(calling("sleep"), "must not be said", tools=[sleeping("sleep", began)])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await began.wait()
            made.agent.abort()
    assert made.provider.call_count == 1
    assert made.provider.pending_response_count == 1


@on_asyncio
async def test_a_native_cancel_that_a_tool_swallows_still_leaves_prompt() -> None:
    began = anyio.Event()

    async def stubborn(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return "did it all the same"
        return "never"

    for names in (["stubborn"], ["stubborn", "stubborn"]):
        began = anyio.Event()
        made = bench(calling(*names), "never", tools=[tool_of("stubborn", stubborn)])
        task = asyncio.create_task(made.agent.prompt("hi"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.texts == ["did it all the same"] * len(names)
        assert made.provider.call_count == 1
        await assert_well_ended(made)


@on_asyncio
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_tool_s_shielded_cleanup_survives_further_native_cancels(count: int, mode: Any) -> None:
    began, cleaning, may_end = anyio.Event(), anyio.Event(), anyio.Event()
    cleaned: list[str] = []

    async def careful(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                cleaning.set()
                await may_end.wait()
                cleaned.append(tool_call_id)
        return "never"

    made = bench(calling(*["careful"] * count), "never", tools=[tool_of("careful", careful)], tool_execution=mode)
    task = asyncio.create_task(made.agent.prompt("hi"))
    with anyio.fail_after(5):
        await began.wait()
        task.cancel()
        await cleaning.wait()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(cleaned) == [f"c{number}" for number in range(1, (count if mode == "parallel" else 1) + 1)]
    await assert_well_ended(made)


@on_asyncio
async def test_a_tool_s_shielded_work_survives_a_native_cancel() -> None:
    began, may_end = anyio.Event(), anyio.Event()

    async def commit(tool_call_id: str, params: NoParams) -> str:
        with anyio.CancelScope(shield=True):
            began.set()
            await may_end.wait()
        return "committed"

    made = bench(calling("commit"), "never", tools=[tool_of("commit", commit)])
    task = asyncio.create_task(made.agent.prompt("hi"))
    with anyio.fail_after(5):
        await began.wait()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert made.texts == ["committed"]
    await assert_well_ended(made)


@on_asyncio
async def test_a_cancellation_while_the_record_is_closed_arrives_when_it_is_complete() -> None:
    settling, may_end = anyio.Event(), anyio.Event()
    made = bench(calling("sleep"), tools=[sleeping("sleep", began := anyio.Event())])

    async def slow(event: Any) -> None:
        if event.type == "tool_execution_end" and not settling.is_set():
            settling.set()
            await may_end.wait()

    made.agent.subscribe(slow)
    task = asyncio.create_task(made.agent.prompt("hi"))
    with anyio.fail_after(5):
        await began.wait()
        task.cancel()
        await settling.wait()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert made.labels[-1] == "agent_end:aborted"
    await assert_well_ended(made)


@on_asyncio
async def test_an_agent_may_run_in_a_task_that_was_cancelled_before() -> None:
    """Cleaning up with the help of an agent, after a cancellation was caught and not excused."""
    made = bench(calling("say", "say"), "done", tools=[saying("say")])
    outcomes: list[str] = []

    async def main() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            outcomes.append((await made.agent.prompt("clean up")).outcome)

    task = asyncio.create_task(main())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    await task
    assert outcomes == ["completed"]
    await assert_well_ended(made)


async def test_the_outer_timeout_of_the_caller_is_the_caller_s() -> None:
    made = bench(FauxResponse("never", stall_before_start=True))
    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await made.agent.prompt("hi")
    await assert_well_ended(made)


@pytest.mark.parametrize("names", [["convert"], ["convert", "say"]])
async def test_an_error_made_of_the_cancellation_is_no_failure_of_the_tool(names: list[str]) -> None:
    began = anyio.Event()

    async def convert(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            raise ConnectionError("the connection broke") from error
        return "never"

    made = bench(calling(*names), "never", tools=[tool_of("convert", convert), saying("say")])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await began.wait()
            await anyio.wait_all_tasks_blocked()
            made.agent.abort("bored")
    assert "cancelled" in made.texts[0]
    assert "bored" in made.texts[0]
    assert "connection" not in made.texts[0]
    [end] = [e for e in made.events if e.type == "tool_execution_end" and e.tool_call_id == "c1"]
    assert end.ending == "cancelled"
    await assert_well_ended(made)


async def test_a_provider_that_never_waits_can_be_cancelled() -> None:
    """Ten thousand events that are all there at once: every few of them pass a checkpoint."""

    class Flood(BaseProvider):
        async def stream(self, model: Any, messages: Any, **_: Any) -> MessageStream:
            async def produce(stream: MessageStream) -> None:
                stream.push(StreamEvent("start"))
                stream.push(StreamEvent("text_start", 0))
                for _ in range(10_000):
                    stream.push(StreamEvent("text_delta", 0, "x"))
                stream.push(StreamEvent("done"))

            return MessageStream(produce)

    agent = Agent(model=Flood().model("m"))
    deltas: list[str] = []

    def listen(event: Any) -> None:
        if event.type == "message_update":
            deltas.append(event.stream_event.type)
            if len(deltas) == 10:
                scope.cancel()

    agent.subscribe(listen)
    with anyio.CancelScope() as scope:
        await agent.prompt("hi")
    assert scope.cancelled_caught
    assert len(deltas) <= 10 + 64
    [_, kept] = agent.state.messages
    assert isinstance(kept, AssistantMessage)
    assert (kept.stop_reason, len(kept.text)) == ("aborted", len(deltas) - 1)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_run_that_a_listener_ends_at_the_last_delta_has_not_completed(way: str) -> None:
    made = bench("short", "again")
    scope = anyio.CancelScope()
    stop = made.agent.abort if way == "abort" else scope.cancel
    forget = made.agent.subscribe(lambda event: stop() if event.type == "message_update" else None)
    outcomes: list[str] = []
    with scope:
        outcomes.append((await made.agent.prompt("hi")).outcome)
    forget()
    assert scope.cancelled_caught is (way == "scope")
    assert outcomes == (["aborted"] if way == "abort" else [])
    await assert_well_ended(made)
