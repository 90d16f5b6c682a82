"""``agent.stream()``: the same run as a context manager, for one consumer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AgentEvent,
    BaseProvider,
    FauxResponse,
    MessageStream,
    ProviderOverloaded,
    RunResult,
    StreamEvent,
    StreamMisuse,
)
from tests.support.agents import (
    NoParams,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    label,
    running_tasks,
    saying,
    sleeping,
    tool_of,
)
from tests.support.backends import on_asyncio

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


async def test_the_events_are_those_a_listener_hears_and_the_result_is_that_of_prompt() -> None:
    made = bench(calling("say", text="look"), "done", tools=[saying("say")])
    async with made.agent.stream("hi", run_id="mine") as run:
        events = [event async for event in run]
        result = await run.result()
    assert [label(event) for event in events] == made.labels
    assert balance_faults(events) == []
    assert (result.run_id, result.outcome, result.text) == ("mine", "completed", "done")
    assert await run.result() is result
    await assert_well_ended(made)


async def test_a_stream_that_is_never_entered_starts_nothing() -> None:
    made = bench("ok")
    run = made.agent.stream("hi")
    await anyio.lowlevel.checkpoint()
    assert (made.provider.call_count, made.agent.state.is_running, run.signal) == (0, False, None)
    with pytest.raises(StreamMisuse, match="enter the stream before iterating"):
        await anext(run)
    await assert_well_ended_after(made)


async def assert_well_ended_after(made: Any) -> None:
    await made.agent.prompt("first")
    await assert_well_ended(made)


async def test_entering_and_leaving_at_once_asks_no_model() -> None:
    before = running_tasks()
    made = bench("ok")
    async with made.agent.stream("hi"):
        pass
    assert made.provider.call_count == 0
    assert running_tasks() == before
    assert made.agent.state.last_outcome == "aborted"
    await assert_well_ended(made)


@pytest.mark.parametrize("how", ["break", "error", "abort"])
async def test_leaving_early_aborts_the_run_and_waits_until_it_is_settled(how: str) -> None:
    before = running_tasks()
    made = bench(FauxResponse("one two three four five", stall_after_deltas=3))

    async def consume() -> None:
        async with made.agent.stream("hi") as run:
            async for event in run:
                if event.type == "message_update" and event.stream_event.type == "text_delta":
                    if how == "error":
                        raise ZeroDivisionError
                    if how == "break":
                        break
                    run.abort("enough")

    if how == "error":
        with pytest.raises(ZeroDivisionError):
            await consume()
    else:
        await consume()
    assert running_tasks() == before
    assert made.labels[-1] == "agent_end:aborted"
    assert made.roles == ["user", "assistant"]
    await assert_well_ended(made)


async def test_leaving_while_tools_run_cancels_them() -> None:
    began = anyio.Event()
    made = bench(calling("say", "sleep"), tools=[saying("say"), sleeping("sleep", began)])
    async with made.agent.stream("hi"):
        await began.wait()
    assert made.texts[0] == "say"
    assert "cancelled" in made.texts[1]
    await assert_well_ended(made)


async def test_an_abort_inside_the_block_lets_the_last_events_be_read() -> None:
    made = bench(FauxResponse("one two", stall_after_deltas=1))
    seen: list[AgentEvent] = []
    async with made.agent.stream("hi") as run:
        async for event in run:
            seen.append(event)
            if event.type == "message_update":
                run.abort("enough")
        result = await run.result()
    assert label(seen[-1]) == "agent_end:aborted"
    assert balance_faults(seen) == []
    assert (result.outcome, result.abort_reason) == ("aborted", "enough")


async def test_a_consumer_that_aborts_and_reads_much_later_still_gets_the_end() -> None:
    made = bench(FauxResponse("word " * 300, stall_after_deltas=310))
    async with made.agent.stream("hi") as run:
        await anyio.wait_all_tasks_blocked()
        run.abort()
        await made.agent.wait_for_idle()
        events = [event async for event in run]
    assert label(events[-1]) == "agent_end:aborted"
    assert balance_faults(events) == []


async def test_a_slow_consumer_holds_the_run_back() -> None:
    made = bench("word " * 1000, heard=False)
    produced: list[AgentEvent] = []
    made.agent.subscribe(produced.append)
    async with made.agent.stream("hi") as run:
        await anyio.wait_all_tasks_blocked()
        ahead = len(produced)
        assert 64 <= ahead <= 130
        taken = [await anext(run) for _ in range(ahead)]
        await anyio.wait_all_tasks_blocked()
        assert ahead <= len(produced) <= 2 * ahead + 2
        rest = [event async for event in run]
    assert [*taken, *rest] == produced
    assert label(produced[-1]) == "agent_end:completed"


async def test_a_failing_model_is_a_result_and_its_events_come_first() -> None:
    made = bench(ProviderOverloaded("busy"))
    async with made.agent.stream("hi") as run:
        events = [event async for event in run]
        result = await run.result()
    assert label(events[-1]) == "agent_end:error"
    assert isinstance(result.error, ProviderOverloaded)


class Broken(Exception):
    """A bug in a listener."""


@pytest.mark.parametrize("name", ["agent_start", "turn_start", "message_end", "agent_end"])
async def test_a_bug_of_a_listener_is_raised_to_the_consumer_after_all_events(name: str) -> None:
    made = bench("ok", heard=False)

    def bug(event: AgentEvent) -> None:
        if event.type == name:
            raise Broken(name)

    unsubscribe = made.agent.subscribe(bug)
    seen: list[AgentEvent] = []
    with pytest.raises(Broken):
        async with made.agent.stream("hi") as run:
            async for event in run:
                seen.append(event)  # noqa: PERF401 - what was seen before the error counts
    assert label(seen[-1]).startswith("agent_end")
    assert balance_faults(seen) == []
    unsubscribe()
    made.agent.subscribe(made.events.append)
    await assert_well_ended_after(made)


async def test_a_bug_is_raised_at_the_end_of_a_block_that_does_not_iterate() -> None:
    made = bench("ok")
    unsubscribe = made.agent.subscribe(lambda event: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        async with made.agent.stream("hi"):
            await made.agent.wait_for_idle()
    unsubscribe()
    await assert_well_ended(made)


async def test_result_raises_what_the_run_raised() -> None:
    made = bench("ok")
    made.agent.subscribe(lambda event: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        async with made.agent.stream("hi") as run:
            await run.result()


async def test_result_reads_over_what_was_not_read() -> None:
    made = bench("word " * 500)
    async with made.agent.stream("hi") as run:
        result = await run.result()
        assert [event async for event in run] == []
    assert (result.outcome, result.text) == ("completed", "word " * 500)


async def test_two_consumers_are_a_mistake_and_entering_twice_too() -> None:
    made = bench(FauxResponse("one", stall_before_start=True))
    async with made.agent.stream("hi") as run:
        for _ in range(4):
            await anext(run)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, run)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(StreamMisuse, match="single consumer"):
                await anext(run)
            tasks.cancel_scope.cancel()
        with pytest.raises(StreamMisuse, match="once"):
            await run.__aenter__()


async def test_a_deadline_around_one_step_does_not_touch_the_run() -> None:
    made = bench(FauxResponse("one two three", stall_after_deltas=1))
    async with made.agent.stream("hi") as run:
        seen: list[AgentEvent] = []
        while made.agent.state.is_running or not seen:
            with anyio.move_on_after(0.01) as scope:
                seen.append(await anext(run))
            if scope.cancelled_caught:
                break
        made.provider.release_stalls()
        seen += [event async for event in run]
        result = await run.result()
    assert result.text == "one two three"
    assert balance_faults(seen) == []
    assert [label(event) for event in seen] == made.labels


async def test_one_step_for_each_task_works() -> None:
    made = bench("one two")
    seen: list[AgentEvent] = []

    async def step(run: Any) -> None:
        try:
            seen.append(await anext(run))
        except StopAsyncIteration:
            ended.append(True)

    ended: list[bool] = []
    async with made.agent.stream("hi") as run:
        while not ended:
            async with anyio.create_task_group() as tasks:  # noqa: ASYNC112 - the stream is read in another task on purpose
                tasks.start_soon(step, run)
    assert [label(event) for event in seen] == made.labels


async def test_after_the_end_iterating_ends_again() -> None:
    made = bench("ok")
    async with made.agent.stream("hi") as run:
        _ = [event async for event in run]
        assert [event async for event in run] == []
    assert [event async for event in run] == []


async def test_a_cancellation_from_outside_leaves_the_block() -> None:
    before = running_tasks()
    made = bench(FauxResponse("one two", stall_after_deltas=1))
    with anyio.CancelScope() as scope:
        async with made.agent.stream("hi") as run:
            async for event in run:
                if event.type == "message_update":
                    scope.cancel()
        raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    assert running_tasks() == before
    assert made.labels[-1] == "agent_end:aborted"
    await assert_well_ended(made)


@on_asyncio
async def test_a_native_cancellation_leaves_the_block() -> None:
    import asyncio  # noqa: PLC0415

    before = running_tasks()
    made = bench(FauxResponse("one two", stall_after_deltas=1))

    async def consume() -> None:
        async with made.agent.stream("hi") as run:
            async for _ in run:
                pass

    task = asyncio.create_task(consume())
    await made.provider.wait_stalled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running_tasks() == before
    assert made.labels[-1] == "agent_end:aborted"
    await assert_well_ended(made)


async def test_the_consumer_may_steer_and_the_listeners_are_unsubscribed_at_the_end() -> None:
    made = bench(calling("say"), "done", tools=[saying("say")])
    async with made.agent.stream("hi") as run:
        async for event in run:
            if event.type == "tool_execution_start":
                made.agent.steer("hurry")
    assert [message.text for message in made.asked() if message.role == "user"] == ["hi", "hurry"]
    made.provider.set_responses(["two"])
    await made.agent.prompt("again")
    assert [event async for event in run] == []


async def test_a_tool_may_stream_another_agent() -> None:
    inner = bench("inner text")
    results: list[RunResult] = []

    async def delegate(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        async with inner.agent.stream("sub task") as run:
            async for event in run:
                on_update(event.type)
            results.append(await run.result())
        return results[-1].text

    made = bench(calling("delegate"), "done", tools=[tool_of("delegate", delegate)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, made.texts) == ("completed", ["inner text"])
    reported = [e.partial_result for e in made.events if e.type == "tool_execution_update"]
    assert reported == [event.type for event in inner.events]


@pytest.mark.parametrize("waits", [True, False], ids=["sends", "pushes"])
async def test_a_delta_is_read_at_once_also_after_the_reader_was_behind(waits: bool) -> None:
    asked_for_more = [anyio.Event() for _ in range(3)]

    class Bursting(BaseProvider):
        async def stream(self, *_: Any, **__: Any) -> MessageStream:
            async def say(stream: MessageStream, delta: str) -> None:
                event = StreamEvent("text_delta", 0, delta)
                await (stream.send(event) if waits else push(stream, event))

            async def push(stream: MessageStream, event: StreamEvent) -> None:
                stream.push(event)

            async def produce(stream: MessageStream) -> None:
                for number in range(200):
                    await say(stream, f"{number} ")
                for event in asked_for_more:
                    await event.wait()
                    await say(stream, "more ")
                stream.push(StreamEvent("done"))

            return MessageStream(produce)

    read: list[str] = []
    async with Agent(model=Bursting().model("m")).stream("Go.") as run:
        await anyio.wait_all_tasks_blocked()
        async for event in run:
            if event.type != "message_update":
                continue
            read.append(event.stream_event.delta or "")
            if len(read) >= 200 and len(read) < 203:
                asked_for_more[len(read) - 200].set()
    assert read == [*(f"{number} " for number in range(200)), "more ", "more ", "more "]
