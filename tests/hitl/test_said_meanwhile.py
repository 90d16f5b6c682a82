"""What a hook adds to an answer of which a call waits for a person: said when the agent goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cubepi_anyio import (
    AssistantMessage,
    Message,
    Middleware,
    TextContent,
    TurnAction,
    UserMessage,
)
from cubepi_anyio.types.hitl import ApproveAnswer
from tests.support.agents import transcript_faults

from .restarts import NO, YES, Process, World, batch, by_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


class Adding(Middleware):
    """Adds messages to the first answer."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    async def after_model_response(self, response: AssistantMessage, *, ctx: Any, signal: Any) -> TurnAction:
        said: list[Message] = [UserMessage(content=[TextContent(text=text)]) for text in self.texts]
        self.texts.clear()
        return TurnAction(inject_messages=said)


def said(process: Process) -> list[str]:
    """The transcript: who spoke, and what people and hooks said."""
    return [message.text if message.role == "user" else message.role for message in process.agent.state.messages]


@pytest.mark.parametrize("answer", [YES, NO])
async def test_it_stands_behind_the_batch_when_the_agent_goes_on(world: World, answer: ApproveAnswer) -> None:
    process = world.process(batch("gated", "free"), "done")
    process.agent.use(Adding("by the way"))
    result = await process.agent.prompt("go")
    assert (result.outcome, said(process)) == ("suspended", ["go", "assistant", "tool_result"])
    assert [message.text for message in process.agent.queued_messages] == ["by the way"]
    result = await process.agent.respond(result.requests[0].id, answer)
    assert result.outcome == "completed"
    assert said(process) == ["go", "assistant", "tool_result", "tool_result", "by the way", "assistant"]
    assert transcript_faults(process.provider.calls[-1].messages) == []
    assert transcript_faults(process.agent.state.messages) == []


async def test_the_thread_is_loaded_by_another_process_without_a_repair(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    process = world.process(batch("gated", "free"))
    process.agent.use(Adding("by the way"))
    result = await process.agent.prompt("go")
    other = world.process("done")
    await other.agent.load()
    assert [message.role for message in other.agent.state.messages] == ["user", "assistant", "tool_result"]
    result = await other.agent.respond(by_call(result.requests)["c1"], YES)
    assert (result.outcome, result.text) == ("completed", "done")
    assert caplog.records == []
    assert transcript_faults(other.provider.calls[0].messages) == []


async def test_it_waits_for_all_calls_of_the_batch(world: World) -> None:
    process = world.process(batch("gated", "gated"), "done")
    process.agent.use(Adding("one", "two"))
    ids = by_call((await process.agent.prompt("go")).requests)
    assert (await process.agent.respond(ids["c2"], YES)).outcome == "suspended"
    assert said(process)[:2] == ["go", "assistant"]
    assert "one" not in said(process)
    assert (await process.agent.respond(ids["c1"], YES)).outcome == "completed"
    assert said(process) == ["go", "assistant", "tool_result", "tool_result", "one", "two", "assistant"]


async def test_it_is_said_after_what_waited_was_withdrawn_too(world: World) -> None:
    process = world.process(batch("gated"), "done")
    process.agent.use(Adding("by the way"))
    await process.agent.prompt("go")
    await process.agent.withdraw_requests()
    assert (await process.agent.prompt("and now?")).outcome == "completed"
    assert said(process) == ["go", "assistant", "tool_result", "by the way", "and now?", "assistant"]


async def test_without_a_call_that_waits_it_is_said_at_once(world: World) -> None:
    process = world.process(batch("free"), "done")
    process.agent.use(Adding("by the way"))
    assert (await process.agent.prompt("go")).outcome == "completed"
    assert said(process) == ["go", "assistant", "tool_result", "by the way", "assistant"]
    assert [message.text for message in await world.messages() if message.role == "user"] == ["go", "by the way"]
