"""A run that waits for a person leaves, and another process goes on with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentTool, FauxProvider, Message, faux_assistant_message, faux_tool_call
from cubepi_anyio.checkpointers import Checkpointer, MemoryCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import (
    AlreadyAnswered,
    InvalidAnswer,
    NothingToResume,
    RequestsPending,
    UnknownRequest,
    UsageError,
)
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel, ask_user_tool
from cubepi_anyio.types.hitl import ApproveAnswer, PersonRequest
from tests.support.agents import Word, tool_of, transcript_faults

pytestmark = pytest.mark.anyio

YES = ApproveAnswer(decision="approve")
NO = ApproveAnswer(decision="deny", reason="better not")


@dataclass
class World:
    """What outlives a process: the store, and what the tools did."""

    store: Checkpointer
    ran: Counter[str] = field(default_factory=Counter[str])

    def process(self, *responses: Any, **options: Any) -> Process:
        """A process with an agent of its own on the one thread."""
        return Process(self, responses, **options)

    def tool(self, name: str) -> AgentTool:
        async def execute(tool_call_id: str, params: Word) -> str:
            self.ran[f"{name} {params.word}"] += 1
            await anyio.lowlevel.checkpoint()
            return f"{name} {params.word}"

        return tool_of(name, execute, parameters=Word)

    async def messages(self) -> list[Message]:
        record = await self.store.load("t")
        assert record is not None
        return record.messages


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Nothing in the store, and nothing done yet."""
    return World(MemoryCheckpointer() if request.param == "memory" else SQLiteCheckpointer(tmp_path / "threads.db"))


class Process:
    def __init__(self, world: World, responses: Any, gated: Any = "gated") -> None:
        self.provider = FauxProvider()
        self.provider.set_responses(responses)
        self.channel = DurableChannel()
        self.agent = Agent(
            model=self.provider.model("m"),
            tools=[world.tool("gated"), world.tool("free"), ask_user_tool(self.channel)],
            middleware=[ConfirmToolCall(self.channel, gated)],
            checkpointer=world.store,
            thread_id="t",
            channel=self.channel,
        )

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.agent.state.messages if message.role == "tool_result"]


def batch(*names: str) -> Any:
    """An answer with calls ``c1``, ``c2``, …, each with its own id as its word."""
    return faux_assistant_message(
        [faux_tool_call(name, {"word": f"w{n}"}, id=f"c{n}") for n, name in enumerate(names, 1)]
    )


def by_call(requests: list[PersonRequest]) -> dict[str, str]:
    return {request.tool_call_id: request.id for request in requests}


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
