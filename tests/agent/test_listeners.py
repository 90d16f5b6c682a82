"""Who hears what, in which order, and what a listener that waits or raises does to the run."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread

from cubepi_anyio import AbortSignal, AgentEvent, RunLimits, faux_assistant_message, faux_tool_call
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    label,
    saying,
    sleeping,
    tool_of,
)

pytestmark = pytest.mark.anyio

EVERY_EVENT = [
    "agent_start",
    "turn_start",
    "message_start:user",
    "message_end:user",
    "message_start:assistant",
    "message_update:text_delta",
    "message_update:toolcall_end",
    "message_end:assistant",
    "tool_execution_start:c1",
    "tool_execution_update:c2",
    "tool_execution_end:c2:finished",
    "message_start:tool_result",
    "message_end:tool_result",
    "turn_end",
    "agent_end:completed",
]


class Broken(Exception):
    """A bug in a listener."""


async def reporting(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
    on_update("half way")
    return "reported"


def a_run_with_everything(**options: Any) -> Bench:
    tools = [saying("say"), tool_of("report", reporting)]
    return bench(calling("say", "report", text="look"), "done", tools=tools, **options)


async def test_listeners_hear_every_event_in_the_order_they_subscribed() -> None:
    made = a_run_with_everything()
    heard: list[tuple[str, str]] = []
    for name in ("first", "second", "third"):
        made.agent.subscribe(lambda event, name=name: heard.append((name, label(event))))
    await made.agent.prompt("hi")
    expected = [(name, event) for event in made.labels for name in ("first", "second", "third")]
    assert heard == expected


async def test_a_listener_is_given_the_signal_if_it_takes_two_arguments() -> None:
    made = bench("ok")
    signals: list[Any] = []

    def with_signal(event: AgentEvent, signal: AbortSignal) -> None:
        signals.append(signal)

    def with_any(*arguments: Any) -> None:
        signals.append(arguments[1])

    made.agent.subscribe(with_signal)
    made.agent.subscribe(with_any)
    made.agent.subscribe(lambda e, signal=None: signals.append(signal))
    await made.agent.prompt("hi")
    assert len({id(signal) for signal in signals}) == 1
    assert isinstance(signals[0], AbortSignal)
    assert (signals[0].is_set(), signals[0].reason) == (False, None)


async def test_an_unsubscribed_listener_hears_no_more_and_unsubscribing_twice_does_no_harm() -> None:
    made = bench("one", "two")
    heard: list[str] = []
    unsubscribe = made.agent.subscribe(lambda event: heard.append(event.type))
    await made.agent.prompt("a")
    count = len(heard)
    unsubscribe()
    unsubscribe()
    await made.agent.prompt("b")
    assert len(heard) == count > 0


async def test_a_listener_may_unsubscribe_itself_and_the_others_miss_nothing() -> None:
    made = bench("ok", heard=False)
    heard: list[str] = []
    once: list[str] = []

    def first(event: AgentEvent) -> None:
        once.append(event.type)
        unsubscribe()

    unsubscribe = made.agent.subscribe(first)
    made.agent.subscribe(made.events.append)
    made.agent.subscribe(lambda event: heard.append(event.type))
    await made.agent.prompt("hi")
    assert once == ["agent_start"]
    assert balance_faults(made.events) == []
    assert heard == [event.type for event in made.events]


async def test_a_default_of_the_listener_s_own_is_not_taken_for_the_signal() -> None:
    made = bench("ok")
    heard: list[tuple[str, str]] = []
    made.agent.subscribe(lambda event, name="mine": heard.append((name, event.type)))
    await made.agent.prompt("hi")
    assert heard == [("mine", event.type) for event in made.events]


async def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a listener is a function of \(event\) or \(event, signal\), not str"):
        bench("ok").agent.subscribe("print")  # type: ignore[arg-type]


async def test_an_async_listener_holds_the_run_back() -> None:
    gate, reached = anyio.Event(), anyio.Event()
    made = bench("ok")

    async def wait(event: AgentEvent) -> None:
        if event.type == "turn_start":
            reached.set()
            await gate.wait()

    made.agent.subscribe(wait)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await reached.wait()
            await anyio.wait_all_tasks_blocked()
            assert made.provider.call_count == 0
            gate.set()
    assert made.provider.call_count == 1


class Counting:
    """A callable object whose call is async; notes how many of its calls overlap."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.heard: list[str] = []

    async def __call__(self, event: AgentEvent) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.lowlevel.checkpoint()
        self.heard.append(label(event))
        self.now -= 1


async def test_async_listeners_hear_one_event_at_a_time_in_one_order_although_tools_run_in_parallel() -> None:
    async def busy(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        for step in range(3):
            on_update(step)
            await anyio.lowlevel.checkpoint()
            await on_update(step)
        return "ok"

    made = bench(calling(*["busy"] * 5), "done", tools=[tool_of("busy", busy)])
    one, two = Counting(), Counting()
    made.agent.subscribe(one)
    made.agent.subscribe(two)
    await made.agent.prompt("hi")
    assert (one.most, two.most) == (1, 1)
    assert one.heard == two.heard == made.labels
    assert balance_faults(made.events) == []
    assert len([name for name in made.labels if name.startswith("tool_execution_update")]) == 30


async def test_an_async_listener_is_cancelled_with_the_run() -> None:
    reached, cancelled = anyio.Event(), anyio.Event()
    made = bench("ok")

    async def wait(event: AgentEvent) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            reached.set()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled.set()
                raise

    made.agent.subscribe(wait)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await reached.wait()
            made.agent.abort()
    assert cancelled.is_set()
    assert made.labels[-1] == "agent_end:aborted"
    assert balance_faults(made.events) == []


# --- on_update -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "async", "returns a coroutine"])
async def test_updates_without_await_are_heard_while_the_tool_works(kind: str) -> None:
    """An un-awaited report leaves no coroutine that was never awaited, whoever listens."""
    seen = anyio.Event()
    given = {"progress": 1}
    reports: list[Any] = []

    def note(event: AgentEvent) -> None:
        if event.type == "tool_execution_update":
            reports.append(event.partial_result)
            seen.set()

    async def note_async(event: AgentEvent) -> None:
        note(event)

    async def report_and_wait(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update(given)
        await seen.wait()
        return "ok"

    made = bench(calling("report"), "done", tools=[tool_of("report", report_and_wait)], heard=False)
    listeners: dict[str, Callable[[AgentEvent], Any]] = {
        "plain": note,
        "async": note_async,
        "returns a coroutine": lambda event: note_async(event),
    }
    made.agent.subscribe(listeners[kind])
    with warnings.catch_warnings(), anyio.fail_after(5):
        warnings.simplefilter("error")
        result = await made.agent.prompt("hi")
        gc.collect()
    assert result.outcome == "completed"
    assert reports == [given]
    assert reports[0] is given


async def test_an_awaited_update_has_been_heard_by_all() -> None:
    order: list[str] = []

    async def listen(event: AgentEvent) -> None:
        if event.type == "tool_execution_update":
            await anyio.lowlevel.checkpoint()
            order.append("heard")

    async def report(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        await on_update(1)
        order.append("goes on")
        return "ok"

    made = bench(calling("report"), "done", tools=[tool_of("report", report)])
    made.agent.subscribe(listen)
    await made.agent.prompt("hi")
    assert order == ["heard", "goes on"]


async def test_updates_from_threads_arrive_in_the_loop_s_thread() -> None:
    threads: set[int] = set()

    def plain(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update("from the tool's thread")
        return "ok"

    async def offloading(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        await to_thread.run_sync(on_update, "from a thread of its own")
        return "ok"

    async def bare_thread(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        thread = threading.Thread(target=on_update, args=("from a thread that nobody knows",))
        thread.start()
        await to_thread.run_sync(thread.join)
        return "ok"

    def hybrid(tool_call_id: str, params: NoParams, *, on_update: Any) -> Any:
        async def rest() -> str:
            await on_update("from the loop, after the thread")
            return "ok"

        return rest()

    functions = {"plain": plain, "offloading": offloading, "bare_thread": bare_thread, "hybrid": hybrid}
    made = bench(calling(*functions), "done", tools=[tool_of(name, f) for name, f in functions.items()])
    made.agent.subscribe(lambda event: threads.add(threading.get_ident()))
    with anyio.fail_after(10):
        await made.agent.prompt("hi")
    reports = {event.partial_result for event in made.events if event.type == "tool_execution_update"}
    assert reports == {
        "from the tool's thread",
        "from a thread of its own",
        "from a thread that nobody knows",
        "from the loop, after the thread",
    }
    assert made.texts == ["ok"] * 4
    assert threads == {threading.get_ident()}


async def test_an_update_after_the_end_of_its_call_is_ignored() -> None:
    kept: list[Any] = []

    async def keep(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        kept.append(on_update)
        return "ok"

    async def late(tool_call_id: str, params: NoParams) -> str:
        kept[0]("late")
        await kept[0]("later")
        return "ok"

    made = bench(calling("keep"), calling("late"), "done", tools=[tool_of("keep", keep), tool_of("late", late)])
    await made.agent.prompt("hi")
    kept[0]("long after")
    await kept[0]("longer after")
    assert not [event for event in made.events if event.type == "tool_execution_update"]
    assert made.texts == ["ok", "ok"]


# --- listeners that raise --------------------------------------------------------------------


def raising_on(name: str, *, is_async: bool, times: int = 1) -> Callable[[AgentEvent], Any]:
    left = [times]

    def raise_on(event: AgentEvent) -> None:
        if label(event) == name and left[0]:
            left[0] -= 1
            raise Broken(name)

    async def raise_on_async(event: AgentEvent) -> None:
        raise_on(event)

    return raise_on_async if is_async else raise_on


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("name", EVERY_EVENT)
async def test_what_a_listener_raises_ends_the_run_and_reaches_the_caller_as_itself(name: str, is_async: bool) -> None:
    made = a_run_with_everything(heard=False)
    before: list[AgentEvent] = []
    made.agent.subscribe(before.append)
    made.agent.subscribe(raising_on(name, is_async=is_async))
    made.agent.subscribe(made.events.append)
    with anyio.fail_after(5), pytest.raises(Broken) as caught:
        await made.agent.prompt("hi")
    assert caught.value.args == (name,)
    assert balance_faults(made.events) == []
    assert [label(event) for event in before] == made.labels
    assert [name for name in made.labels if name.startswith("agent_end")] == made.labels[-1:]
    assert name in made.labels
    await assert_well_ended(made)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_listener_that_raises_cancels_running_tools_and_their_ends_are_told(is_async: bool) -> None:
    tools = [saying("quick"), sleeping("slow")]
    made = bench(calling("slow", "quick", "slow"), tools=tools)
    made.agent.subscribe(raising_on("tool_execution_end:c2:finished", is_async=is_async))
    with anyio.fail_after(5), pytest.raises(Broken):
        await made.agent.prompt("hi")
    assert [result.is_error for result in made.results] == [True, False, True]
    assert made.texts[1] == "quick"
    assert all("cancelled" in made.texts[index] for index in (0, 2))
    await assert_well_ended(made)


@pytest.mark.parametrize("how", ["without await", "with await", "from a thread"])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_listener_s_bug_at_an_update_is_not_taken_for_the_tool_s(how: str, is_async: bool) -> None:
    async def without_await(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update(1)
        await anyio.sleep_forever()
        return "never"

    async def with_await(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        await on_update(1)
        await anyio.sleep_forever()
        return "never"

    def from_a_thread(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update(1)
        return "ended all the same"

    functions = {"without await": without_await, "with await": with_await, "from a thread": from_a_thread}
    made = bench(calling("report"), "never", tools=[tool_of("report", functions[how])])
    made.agent.subscribe(raising_on("tool_execution_update:c1", is_async=is_async))
    with anyio.fail_after(5), pytest.raises(Broken):
        await made.agent.prompt("hi")
    assert made.provider.call_count == 1
    assert len(made.results) == 1
    assert made.agent.state.last_outcome == "error"
    await assert_well_ended(made)


async def test_a_listener_that_always_raises_does_not_keep_the_others_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = a_run_with_everything(heard=False)

    def always(event: AgentEvent) -> None:
        raise Broken(event.type)

    unsubscribe = made.agent.subscribe(always)
    made.agent.subscribe(made.events.append)
    with pytest.raises(Broken, match="agent_start"):
        await made.agent.prompt("hi")
    assert made.labels == ["agent_start", "agent_end:error"]
    assert "a listener failed" in caplog.text
    unsubscribe()
    await assert_well_ended(made)


async def test_a_group_of_a_listener_s_own_arrives_as_it_was_raised() -> None:
    made = bench(faux_assistant_message([faux_tool_call("say", {}), faux_tool_call("say", {})]), tools=[saying("say")])
    errors = [Broken("a"), Broken("b")]

    async def raise_group(event: AgentEvent) -> None:
        if event.type == "tool_execution_end":
            raise ExceptionGroup("mine", errors)

    unsubscribe = made.agent.subscribe(raise_group)
    with pytest.raises(ExceptionGroup) as caught:
        await made.agent.prompt("hi")
    assert (caught.value.message, list(caught.value.exceptions)) == ("mine", errors)
    unsubscribe()
    await assert_well_ended(made)


async def test_an_async_listener_that_never_returns_is_given_up_while_settling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = bench("ok", limits=RunLimits(settle_timeout=0.05))
    reached = anyio.Event()

    async def stuck(event: AgentEvent) -> None:
        reached.set()
        await anyio.sleep_forever()

    unsubscribe = made.agent.subscribe(stuck)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await reached.wait()
            made.agent.abort()
    assert "settle_timeout=0.05" in caplog.text
    assert made.agent.state.last_outcome == "aborted"
    assert made.labels == ["agent_start", "agent_end:aborted"]
    unsubscribe()
    await assert_well_ended(made)


async def test_what_a_listener_does_to_a_result_does_not_change_the_transcript() -> None:
    made = bench(calling("say"), "done", tools=[saying("say")])

    def clear(event: AgentEvent) -> None:
        if event.type == "tool_execution_end":
            event.result.content.clear()

    made.agent.subscribe(clear)
    await made.agent.prompt("hi")
    [result] = made.results
    assert result.text
