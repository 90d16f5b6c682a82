"""A run that waits for a person leaves, and another process goes on with it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from cubepi_anyio import Agent, FauxProvider, faux_assistant_message, faux_tool_call
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import (
    AlreadyAnswered,
    InvalidAnswer,
    NothingToResume,
    RequestsPending,
    UnknownRequest,
    UsageError,
)
from cubepi_anyio.hitl import ConfirmToolCall
from cubepi_anyio.types.hitl import ApproveAnswer, ApproveRequest
from tests.support.agents import Word, tool_of, transcript_faults

from .restarts import NO, YES, World, batch, by_call

pytestmark = pytest.mark.anyio


async def test_a_batch_of_two_gated_calls_and_a_free_one_goes_on_through_restarts(world: World) -> None:
    first = world.process(batch("gated", "gated", "free"))
    result = await first.agent.prompt("go")
    assert result.outcome == "suspended"
    ids = by_call(result.requests)
    assert sorted(ids) == ["c1", "c2"]
    assert world.ran == {"free w3": 1}

    second = world.process()
    result = await second.agent.respond(ids["c2"], YES)
    assert (result.outcome, by_call(result.requests)) == ("suspended", {"c1": ids["c1"]})
    assert world.ran == {"free w3": 1, "gated w2": 1}

    third = world.process("all done")
    result = await third.agent.respond(ids["c1"], YES)
    assert (result.outcome, result.text, result.requests) == ("completed", "all done", [])
    assert world.ran == {"free w3": 1, "gated w2": 1, "gated w1": 1}
    assert third.texts == ["gated w1", "gated w2", "free w3"]
    assert transcript_faults(third.provider.calls[0].messages) == []
    assert transcript_faults(third.agent.state.messages) == []

    fourth = world.process("and on")
    assert (await fourth.agent.prompt("go on")).text == "and on"
    assert fourth.texts == ["gated w1", "gated w2", "free w3"]
    assert transcript_faults(fourth.provider.calls[0].messages) == []
    assert world.ran.total() == 3


async def test_the_same_agent_goes_on_without_a_restart(world: World) -> None:
    only = world.process(batch("free", "gated"), batch("gated"), "done")
    ids = by_call((await only.agent.prompt("go")).requests)
    assert [request.id for request in only.agent.pending_requests] == list(ids.values())
    result = await only.agent.respond(ids["c2"], YES)
    assert result.outcome == "suspended"  # the model has called the gated tool once more
    (request,) = result.requests
    assert request.id not in ids.values()
    result = await only.agent.respond(request.id, YES)
    assert (result.outcome, result.text) == ("completed", "done")
    assert world.ran == {"free w1": 1, "gated w2": 1, "gated w1": 1}
    assert only.agent.pending_requests == []


async def test_a_call_id_that_is_used_again_is_asked_about_again(world: World) -> None:
    only = world.process(batch("gated"), batch("gated"), batch("gated"), "done")
    seen: list[str] = []
    result = await only.agent.prompt("go")
    for _ in range(3):
        (request,) = result.requests
        seen.append(request.id)
        result = await only.agent.respond(request.id, YES)
    assert result.outcome == "completed"
    assert len(set(seen)) == 3
    assert world.ran == {"gated w1": 3}
    with pytest.raises(UnknownRequest):
        await world.process().agent.respond(seen[0], YES)


async def test_a_call_that_was_refused_has_a_result_that_says_so(world: World) -> None:
    ids = by_call((await world.process(batch("free", "gated")).agent.prompt("go")).requests)
    second = world.process("I see")
    result = await second.agent.respond(ids["c2"], NO)
    assert (result.outcome, result.text) == ("completed", "I see")
    assert second.texts == ["free w1", "The user refused this call: better not"]
    assert world.ran == {"free w1": 1}


async def test_a_call_runs_with_the_arguments_a_person_gave_it(world: World) -> None:
    ids = by_call((await world.process(batch("gated")).agent.prompt("go")).requests)
    edited = ApproveAnswer(decision="edit", edited_args={"word": "other"})
    assert (await world.process("done").agent.respond(ids["c1"], edited)).outcome == "completed"
    assert world.ran == {"gated other": 1}


async def test_a_model_asks_a_person_and_the_process_leaves(world: World) -> None:
    call = faux_tool_call("ask_user", {"questions": [{"prompt": "Which?", "options": ["A", "B"]}]}, id="c1")
    result = await world.process(faux_assistant_message([call])).agent.prompt("go")
    assert result.outcome == "suspended"
    second = world.process("B it is")
    result = await second.agent.respond(result.requests[0].id, {"question_1": "B"})
    assert (result.outcome, result.text) == ("completed", "B it is")
    assert second.texts == ["Which?\nB"]


async def test_a_call_that_is_approved_and_then_asks_needs_both_answers(world: World) -> None:
    call = faux_tool_call("ask_user", {"questions": [{"prompt": "Which?"}]}, id="c1")
    gated = {"gated": "ask_user"}
    result = await world.process(faux_assistant_message([call]), **gated).agent.prompt("go")
    assert [request.payload.kind for request in result.requests] == ["approve"]
    result = await world.process(**gated).agent.respond(result.requests[0].id, YES)
    assert (result.outcome, [request.payload.kind for request in result.requests]) == ("suspended", ["ask"])
    last = world.process("done", **gated)
    result = await last.agent.respond(result.requests[0].id, {"question_1": "this"})
    assert result.outcome == "completed"
    assert last.texts == ["Which?\nthis"]


async def test_a_question_that_is_not_there_is_an_error_and_changes_nothing(world: World) -> None:
    ids = by_call((await world.process(batch("gated")).agent.prompt("go")).requests)
    with pytest.raises(UnknownRequest):
        await world.process().agent.respond("nobody", YES)
    with pytest.raises(InvalidAnswer):
        await world.process().agent.respond(ids["c1"], True)
    assert (await world.process("done").agent.respond(ids["c1"], YES)).outcome == "completed"
    with pytest.raises((UnknownRequest, AlreadyAnswered)):
        await world.process().agent.respond(ids["c1"], NO)
    assert world.ran == {"gated w1": 1}


async def test_a_suspended_thread_takes_no_new_prompt(world: World) -> None:
    ids = by_call((await world.process(batch("gated")).agent.prompt("go")).requests)
    with pytest.raises(RequestsPending) as caught:
        await world.process("never").agent.prompt("and now?")
    assert caught.value.request_ids == (ids["c1"],)
    assert (await world.process("done").agent.respond(ids["c1"], YES)).text == "done"


async def test_questions_can_be_given_up(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    second = world.process("fine")
    await second.agent.withdraw_requests("changed my mind")
    assert second.agent.pending_requests == []
    with pytest.raises(UnknownRequest):
        await second.agent.respond(ids["c1"], YES)
    assert (await second.agent.prompt("go on")).text == "fine"
    assert "changed my mind" in second.texts[0]
    assert second.texts[1] == "free w2"
    assert transcript_faults(second.provider.calls[0].messages) == []
    with pytest.raises(NothingToResume):
        await second.agent.withdraw_requests()
    assert world.ran == {"free w2": 1}


async def test_a_model_that_fails_after_the_call_does_not_run_it_again(world: World) -> None:
    ids = by_call((await world.process(batch("gated")).agent.prompt("go")).requests)
    broken = world.process(faux_assistant_message("", stop_reason="error", error_message="500"))
    assert (await broken.agent.respond(ids["c1"], YES)).outcome == "error"
    with pytest.raises((UnknownRequest, AlreadyAnswered)):
        await world.process().agent.respond(ids["c1"], YES)
    last = world.process("done")
    await last.agent.load()
    assert (await last.agent.resume()).text == "done"
    assert last.texts == ["gated w1"]
    assert world.ran == {"gated w1": 1}


async def test_aborting_a_run_that_goes_on_leaves_a_thread_that_goes_on(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    second = world.process("never")
    second.agent.subscribe(lambda event: second.agent.abort() if event.type == "tool_execution_start" else None)
    result = await second.agent.respond(ids["c1"], YES)
    assert result.outcome == "aborted"
    last = world.process("done")
    assert (await last.agent.prompt("go on")).text == "done"
    assert transcript_faults(last.provider.calls[0].messages) == []
    assert world.ran.total() <= 2


async def test_a_channel_of_two_agents_is_refused(world: World) -> None:
    first = world.process()
    with pytest.raises(UsageError, match="belongs to one agent"):
        Agent(
            model=first.provider.model("m"),
            checkpointer=world.store,
            thread_id="other",
            channel=first.channel,
        )


async def test_an_answer_given_in_one_store_object_is_found_by_the_next(tmp_path: Path) -> None:
    path, ran = tmp_path / "threads.db", Counter[str]()
    async with SQLiteCheckpointer(path) as store:
        ids = by_call((await World(store, ran).process(batch("gated", "gated", "free")).agent.prompt("go")).requests)
    for call_id, responses, outcome in (("c2", [], "suspended"), ("c1", ["done"], "completed")):
        async with SQLiteCheckpointer(path) as store:
            process = World(store, ran).process(*responses)
            assert (await process.agent.respond(ids[call_id], YES)).outcome == outcome
    assert ran == {"free w3": 1, "gated w2": 1, "gated w1": 1}


async def test_a_pending_question_can_be_shown_by_a_process_that_did_not_ask_it(world: World) -> None:
    asked = (await world.process(batch("gated")).agent.prompt("go")).requests
    other = world.process()
    await other.agent.load()
    assert other.agent.pending_requests == asked
    assert (asked[0].thread_id, asked[0].tool_call_id) == ("t", "c1")
    assert asked[0].payload == ApproveRequest(tool_name="gated", args={"word": "w1"})


DYING = """
import os, sys
from functools import partial
import anyio
from pydantic import BaseModel
from cubepi_anyio import Agent, AgentTool, FauxProvider
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel
from cubepi_anyio.types.hitl import ApproveAnswer

class Word(BaseModel):
    word: str

async def die(tool_call_id: str, params: Word) -> str:
    os._exit(7)

async def main(path: str, request_id: str) -> None:
    channel = DurableChannel()
    async with SQLiteCheckpointer(path) as store:
        agent = Agent(
            model=FauxProvider().model("m"),
            tools=[AgentTool("gated", "dies", Word, die)],
            middleware=[ConfirmToolCall(channel)],
            checkpointer=store,
            thread_id="t",
            channel=channel,
        )
        agent.state.thread._lease_seconds = 0.001
        await agent.respond(request_id, ApproveAnswer(decision="approve"))

anyio.run(main, *sys.argv[1:])
"""


async def test_a_body_in_which_the_process_died_is_not_run_again(tmp_path: Path) -> None:
    path, ran = tmp_path / "threads.db", Counter[str]()
    async with SQLiteCheckpointer(path) as store:
        ids = by_call((await World(store, ran).process(batch("gated")).agent.prompt("go")).requests)
    with anyio.fail_after(20):
        died = await anyio.run_process([sys.executable, "-c", DYING, str(path), ids["c1"]], check=False)
    assert (died.returncode, died.stderr) == (7, b"")
    async with SQLiteCheckpointer(path) as store:
        last = World(store, ran).process("I see")
        with pytest.raises(UnknownRequest):
            await last.agent.respond(ids["c1"], YES)
        assert (await last.agent.prompt("go on")).text == "I see"
    assert "outcome of this call is unknown" in last.texts[0]
    assert ran == {}


async def test_a_tool_that_asks_in_the_middle_of_its_work_fails_and_leaves_no_question(world: World) -> None:
    only = world.process(batch("careless"), "I see")

    async def execute(tool_call_id: str, params: Word) -> str:
        world.ran["began"] += 1
        await only.channel.confirm("sure?", tool_call_id=tool_call_id)
        raise AssertionError

    only.agent.state.tools = [tool_of("careless", execute, parameters=Word)]
    result = await only.agent.prompt("go")
    assert (result.outcome, result.text, only.agent.pending_requests) == ("completed", "I see", [])
    assert "asked a person in the middle of its work" in only.texts[0]
    assert world.ran == {"began": 1}
    assert (await world.process("fine").agent.prompt("go on")).text == "fine"


async def test_a_nested_agent_does_not_ask_through_the_channel_of_its_parent(world: World) -> None:
    parent = world.process(batch("delegate"), "I see", gated="gated")
    provider = FauxProvider()
    provider.set_responses([batch("gated")])
    confirm = ConfirmToolCall(parent.channel)
    child = Agent(model=provider.model("m"), tools=[world.tool("gated")], middleware=[confirm])

    async def execute(tool_call_id: str, params: Word) -> str:
        return (await child.prompt(params.word)).text

    parent.agent.state.tools = [tool_of("delegate", execute, parameters=Word)]
    result = await parent.agent.prompt("go")
    assert (result.outcome, parent.agent.pending_requests) == ("completed", [])
    assert "asks for its own agent only" in parent.texts[0]
    assert world.ran == {}
