"""What a run says, and in which order."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentToolResult, UserMessage, faux_assistant_message, faux_thinking, faux_tool_call
from tests.support.agents import (
    NoParams,
    Word,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    label,
    saying,
    tool_of,
    without_deltas,
)

pytestmark = pytest.mark.anyio


async def test_a_run_with_thinking_text_and_a_tool_has_the_documented_trace() -> None:
    first = faux_assistant_message([faux_thinking("hm", "sig"), "let me look", faux_tool_call("look", {}, id="c1")])
    made = bench(first, "done", tools=[saying("look")])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    assert without_deltas(made.labels) == [
        "agent_start",
        "turn_start",
        "message_start:user",
        "message_end:user",
        "message_start:assistant",
        "message_update:thinking_start",
        "message_update:thinking_end",
        "message_update:text_start",
        "message_update:text_end",
        "message_update:toolcall_start",
        "message_update:toolcall_end",
        "message_end:assistant",
        "tool_execution_start:c1",
        "tool_execution_end:c1:finished",
        "message_start:tool_result",
        "message_end:tool_result",
        "turn_end",
        "turn_start",
        "message_start:assistant",
        "message_update:text_start",
        "message_update:text_end",
        "message_end:assistant",
        "turn_end",
        "agent_end:completed",
    ]
    await assert_well_ended(made)


async def test_deltas_are_relayed_and_the_ends_of_a_stream_are_not() -> None:
    made = bench("one two three")
    await made.agent.prompt("hi")
    kinds = {event.stream_event.type for event in made.events if event.type == "message_update"}
    assert kinds == {"text_start", "text_delta", "text_end"}
    deltas = [e.stream_event.delta for e in made.events if e.type == "message_update" and e.stream_event.delta]
    assert "".join(deltas) == "one two three"
    grown = [event.message.text for event in made.events if event.type == "message_update"]
    assert grown == sorted(grown, key=len)
    assert grown[-1] == "one two three"


async def test_the_model_s_message_starts_without_content() -> None:
    made = bench("text")
    await made.agent.prompt("hi")
    started = [e.message for e in made.events if e.type == "message_start" and e.message.role == "assistant"]
    assert [message.content for message in started] == [[]]


async def test_all_parallel_calls_start_before_anything_else_of_them_happens() -> None:
    async def instant(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update("working")
        return "ok"

    made = bench(calling("do", "missing", "do"), "done", tools=[tool_of("do", instant)])
    await made.agent.prompt("hi")
    batch = [name for name in made.labels if name.startswith("tool_execution")]
    assert batch[:3] == ["tool_execution_start:c1", "tool_execution_start:c2", "tool_execution_start:c3"]
    assert sorted(batch[3:]) == [
        "tool_execution_end:c1:finished",
        "tool_execution_end:c2:refused",
        "tool_execution_end:c3:finished",
        "tool_execution_update:c1",
        "tool_execution_update:c3",
    ]


async def test_calls_end_in_the_order_of_completion_and_results_stand_in_the_order_of_the_calls() -> None:
    gates = {name: anyio.Event() for name in ("first", "second", "third")}

    async def wait(tool_call_id: str, params: Word) -> str:
        await gates[params.word].wait()
        return params.word

    calls = [faux_tool_call("wait", {"word": name}, id=name) for name in gates]
    made = bench(faux_assistant_message(calls), "done", tools=[tool_of("wait", wait, parameters=Word)])

    async def open_backwards(event: Any) -> None:
        if event.type == "tool_execution_start" and event.tool_call_id == "third":
            gates["third"].set()
        if event.type == "tool_execution_end" and event.tool_call_id != "first":
            gates["second" if event.tool_call_id == "third" else "first"].set()

    made.agent.subscribe(open_backwards)
    await made.agent.prompt("hi")
    ends = [event.tool_call_id for event in made.events if event.type == "tool_execution_end"]
    assert ends == ["third", "second", "first"]
    assert made.texts == ["first", "second", "third"]
    last = max(index for index, name in enumerate(made.labels) if name.startswith("tool_execution"))
    assert made.labels[last + 1 : last + 7] == ["message_start:tool_result", "message_end:tool_result"] * 3
    await assert_well_ended(made)


async def test_a_sequential_batch_goes_call_by_call() -> None:
    async def report(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update("half")
        return "ok"

    made = bench(calling("a", "b"), "done", tools=[tool_of("a", report), tool_of("b", report)])
    made.agent.tool_execution = "sequential"
    await made.agent.prompt("hi")
    first = made.labels.index("tool_execution_start:c1")
    assert made.labels[first : first + 10] == [
        label
        for call in ("c1", "c2")
        for label in (
            f"tool_execution_start:{call}",
            f"tool_execution_update:{call}",
            f"tool_execution_end:{call}:finished",
            "message_start:tool_result",
            "message_end:tool_result",
        )
    ]


async def test_turn_end_carries_the_answer_and_its_results_in_order() -> None:
    made = bench(calling("a", "b"), "done", tools=[saying("a"), saying("b")])
    await made.agent.prompt("hi")
    first, second = [event for event in made.events if event.type == "turn_end"]
    assert [call.id for call in first.message.tool_calls] == ["c1", "c2"]
    assert [result.text for result in first.tool_results] == ["a", "b"]
    assert (second.message.text, list(second.tool_results)) == ("done", [])


async def test_agent_end_carries_what_the_run_added() -> None:
    made = bench("one", "two")
    await made.agent.prompt("first")
    result = await made.agent.prompt("second")
    end = made.events[-1]
    assert end.type == "agent_end"
    assert [message.text for message in end.messages if message.role != "tool_result"] == ["second", "two"]
    assert list(end.messages) == result.messages


async def test_what_is_announced_as_complete_is_what_the_transcript_holds() -> None:
    made = bench(calling("a", text="look"), "done", tools=[saying("a")])
    await made.agent.prompt("hi")
    ended = [event.message for event in made.events if event.type == "message_end"]
    assert ended == made.agent.state.messages
    assert len({message.id for message in ended}) == 4
    run_ids = {message.run_id for message in ended}
    start = made.events[0]
    assert start.type == "agent_start"
    assert run_ids == {start.run_id}
    assert all(message.timestamp is not None for message in ended)


async def test_the_same_run_id_twice_gives_different_message_ids() -> None:
    made = bench("one", "two")
    first = await made.agent.prompt("a", run_id="mine")
    second = await made.agent.prompt("b", run_id="mine")
    assert (first.run_id, second.run_id) == ("mine", "mine")
    ids = [message.id for message in made.agent.state.messages]
    assert len(set(ids)) == 4


async def test_the_id_of_a_given_message_is_kept() -> None:
    made = bench("ok")
    await made.agent.prompt(UserMessage(id="given", content=[{"type": "text", "text": "hi"}]))  # type: ignore[list-item]
    assert made.agent.state.messages[0].id == "given"


async def test_the_end_of_a_call_carries_result_details_and_flags() -> None:
    async def failing(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("too fast", details={"wait": 60}, is_error=True)

    made = bench(calling("limit"), "ok", tools=[tool_of("limit", failing)])
    await made.agent.prompt("hi")
    [end] = [event for event in made.events if event.type == "tool_execution_end"]
    assert (end.is_error, end.terminate, end.result.details) == (True, False, {"wait": 60})
    [stored] = made.results
    assert (stored.is_error, stored.text, stored.details) == (True, "too fast", {"wait": 60})


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_events_balance_over_many_turns(mode: Any) -> None:
    made = bench(calling("a", "b"), calling("b", "nope"), "done", tools=[saying("a"), saying("b")], tool_execution=mode)
    await made.agent.prompt("hi")
    assert balance_faults(made.events) == []
    assert [label(event) for event in made.events].count("agent_end:completed") == 1
    await assert_well_ended(made)
