"""G12: A slow or absent consumer holds the producer back; memory stays bounded."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentEvent, AgentTool, BaseProvider, MessageDraft, MessageStream, faux_tool_call

from .scenarios import Nothing, agent_with

pytestmark = pytest.mark.anyio

MANY = 10_000
FEW = 200


class Counting(BaseProvider):
    """Sends many deltas and counts them."""

    def __init__(self) -> None:
        super().__init__(provider_id="counting")
        self.sent = 0

    async def stream(self, *_: Any, **__: Any) -> MessageStream:
        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream)
            for _ in range(MANY):
                await draft.text("word ")
                self.sent += 1
            await draft.done()

        return MessageStream(produce)


async def test_a_stream_that_nobody_reads_sends_little() -> None:
    provider = Counting()
    async with await provider.model("m").stream([]):
        await anyio.wait_all_tasks_blocked()
        assert 0 < provider.sent < FEW


async def test_a_run_whose_events_nobody_reads_receives_little() -> None:
    provider = Counting()
    async with Agent(model=provider.model("m")).stream("Go.") as run:
        await anyio.wait_all_tasks_blocked()
        assert 0 < provider.sent < FEW
        seen = 0
        async for _ in run:
            seen += 1
            assert provider.sent < seen + FEW
        assert seen > MANY
    assert provider.sent == MANY


async def test_an_async_listener_that_waits_holds_the_model_back() -> None:
    provider = Counting()
    agent = Agent(model=provider.model("m"))
    go_on = anyio.Event()

    async def hear(event: AgentEvent) -> None:
        if event.type == "message_update":
            await go_on.wait()

    agent.subscribe(hear)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Go.")
        await anyio.wait_all_tasks_blocked()
        assert 0 < provider.sent < FEW
        go_on.set()
    assert provider.sent == MANY


async def test_a_tool_that_awaits_its_updates_is_held_back() -> None:
    updates = 0

    async def report(tool_call_id: str, params: Nothing, *, on_update: Any) -> str:
        nonlocal updates
        for number in range(MANY):
            await on_update(number)
            updates += 1
        return "reported"

    agent = agent_with([AgentTool("report", "Reports.", Nothing, report)], faux_tool_call("report", {}), "Done.")
    async with agent.stream("Go.") as run:
        await anyio.wait_all_tasks_blocked()
        assert 0 < updates < FEW
        run.abort()


async def test_a_thread_that_reports_is_held_back() -> None:
    updates = 0

    def report(tool_call_id: str, params: Nothing, *, signal: Any, on_update: Any) -> str:
        nonlocal updates
        while not signal.is_set():
            on_update(updates)
            updates += 1
        return "reported"

    agent = agent_with([AgentTool("report", "Reports.", Nothing, report)], faux_tool_call("report", {}), "Done.")
    before = -1
    async with agent.stream("Go.") as run:
        with anyio.fail_after(5):
            while updates != before or updates == 0:  # it stands still when it is held back
                before = updates
                await anyio.sleep(0.05)
        assert 0 < updates < FEW
        run.abort()
