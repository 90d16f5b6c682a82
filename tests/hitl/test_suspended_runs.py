"""What is left of a suspended run when something else ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentTool, FauxProvider, Message, faux_assistant_message, faux_tool_call
from cubepi_anyio.checkpointers import Checkpointer
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel, ask_user_tool
from cubepi_anyio.types.hitl import ApproveAnswer, PersonRequest
from tests.support.agents import Word, sleeping, tool_of, transcript_faults

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
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Nothing in the store, and nothing done yet."""
    store = MemoryCheckpointer() if request.param == "memory" else SQLiteCheckpointer(tmp_path / "threads.db")
    async with store:
        yield World(store)


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


async def test_aborting_a_run_gives_up_the_questions_it_has_asked(world: World) -> None:
    only = world.process(batch("gated", "slow"), "done")
    only.agent.state.tools = [*only.agent.state.tools, sleeping("slow", parameters=Word)]

    asked = anyio.Event()
    only.agent.subscribe(lambda event: asked.set() if event.type == "tool_execution_end" else None)
    async with anyio.create_task_group() as tasks:

        async def abort() -> None:
            await asked.wait()
            only.agent.abort("enough")

        tasks.start_soon(abort)
        assert (await only.agent.prompt("go")).outcome == "aborted"
    assert transcript_faults(only.agent.state.messages) == []
    assert only.agent.pending_requests == []
    assert (await only.agent.prompt("go on")).text == "done"


async def test_aborting_a_run_that_goes_on_leaves_the_results_in_order(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    second = world.process("done")
    second.agent.subscribe(lambda event: second.agent.abort() if event.type == "tool_execution_start" else None)
    assert (await second.agent.respond(ids["c1"], YES)).outcome == "aborted"
    assert transcript_faults(second.agent.state.messages) == []
    assert (await second.agent.prompt("go on")).text == "done"


async def test_an_answer_that_was_stored_before_the_process_died_is_used_by_resume(world: World) -> None:
    ids = by_call((await world.process(batch("gated", "free")).agent.prompt("go")).requests)
    await world.store.save_answer("t", ids["c1"], YES)
    last = world.process("done")
    assert (await last.agent.resume()).text == "done"
    assert world.ran == {"free w2": 1, "gated w1": 1}


async def test_a_question_whose_time_is_over_refuses_its_call_when_the_run_is_resumed(world: World) -> None:
    first = world.process(batch("gated", "free"))
    first.channel.default_timeout = 0
    await first.agent.prompt("go")
    last = world.process("done")
    assert (await last.agent.resume()).text == "done"
    assert last.texts == ["The call was not approved. Nobody answered within 0 seconds.", "free w2"]
