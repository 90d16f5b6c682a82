"""What the record holds where that of the asyncio original is broken (part B of the reference)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import AssistantMessage, FauxResponse, ToolResultMessage, faux_assistant_message, faux_tool_call
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hooks import Middleware, TurnAction
from tests.support.agents import assert_well_ended, bench, calling, saying, sleeping
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


async def test_an_abort_while_arguments_stream_leaves_no_call_without_a_result() -> None:
    """B3."""
    half = faux_assistant_message(["let me", faux_tool_call("say", {"word": "a long word indeed"}, id="c1")])
    made = bench(FauxResponse(half, stall_after_deltas=4), tools=[saying("say")])
    await end_call("abort", made, made.provider.wait_stalled)
    answer = made.agent.state.messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.tool_calls, answer.stop_reason) == ("let me", [], "aborted")
    await assert_well_ended(made)


async def test_a_listener_that_raises_reaches_the_caller_and_leaves_every_call_answered() -> None:
    """B3c."""
    made = bench(calling("say", "say"), "never", tools=[saying("say")])

    def fail(event: Any) -> None:
        if event.type == "tool_execution_end":
            raise LookupError("a bug in the listener")

    unsubscribe = made.agent.subscribe(fail)
    with pytest.raises(LookupError, match="a bug in the listener"):
        await made.agent.prompt("hi")
    unsubscribe()
    assert [result.tool_call_id for result in made.results] == ["c1", "c2"]
    assert made.provider.call_count == 1
    await assert_well_ended(made)


async def test_a_hook_that_stops_at_an_answer_with_calls_has_them_answered() -> None:
    """B12b."""

    class Stopping(Middleware):
        async def after_model_response(self, response: AssistantMessage, *, ctx: Any, signal: Any) -> TurnAction | None:
            return TurnAction(decision="stop") if response.tool_calls else None

    made = bench(calling("say"), tools=[saying("say")], middleware=[Stopping()])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert [(answer.is_error, answer.details["ending"]) for answer in made.results] == [(True, "refused")]
    await assert_well_ended(made)


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_a_result_is_in_the_store_before_its_end_is_announced_and_stays_there(way: str) -> None:
    """B6, B6': the slow one has its end announced too, and its result stored."""
    began = anyio.Event()
    stored_at_end: list[int] = []
    async with MemoryCheckpointer() as store:
        tools = [saying("say", "paid"), sleeping("sleep", began)]
        made = bench(calling("say", "sleep"), "never", tools=tools, checkpointer=store, thread_id="t")
        ended = anyio.Event()

        async def look(event: Any) -> None:
            if event.type == "tool_execution_end" and event.tool_call_id == "c1":
                record = await store.load("t")
                assert record is not None
                stored_at_end.append(sum(isinstance(message, ToolResultMessage) for message in record.messages))
                ended.set()

        made.agent.subscribe(look)
        await end_call(way, made, ended.wait)
        assert stored_at_end == [1]
        record = await store.load("t")
        assert record is not None
        kept = {message.tool_call_id: message for message in record.messages if isinstance(message, ToolResultMessage)}
    assert kept["c1"].text == "paid"
    assert kept["c2"].details["ending"] == "cancelled"
    assert made.labels[-1] == "agent_end:aborted"
    for label in ("tool_execution_end:c1:finished", "tool_execution_end:c2:cancelled", "turn_end"):
        assert made.labels.count(label) == 1
    assert made.agent.state.run_id is None


async def test_a_cancelled_run_gives_its_thread_back() -> None:
    """B6'."""
    async with MemoryCheckpointer() as store:
        began = anyio.Event()
        tools = [sleeping("sleep", began)]
        made = bench(calling("sleep"), "never", tools=tools, checkpointer=store, thread_id="t")
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                await made.agent.prompt("hi", run_id="r1")

            tasks.start_soon(prompt)
            await began.wait()
            tasks.cancel_scope.cancel()
        made.provider.set_responses(["fine"])
        result = await made.agent.prompt("again", run_id="r2")
    assert (result.outcome, result.run_id) == ("completed", "r2")


async def test_what_the_store_gives_out_is_a_copy() -> None:
    """B12d."""
    async with MemoryCheckpointer() as store:
        made = bench("fine", checkpointer=store, thread_id="t")
        await made.agent.prompt("hi")
        first = await store.load("t")
        assert first is not None
        list(first.messages).clear()
        if isinstance(first.messages, list):
            first.messages.clear()
        second = await store.load("t")
    assert second is not None
    assert [message.role for message in second.messages] == ["user", "assistant"]
