"""Runs that outlive their process: a store that stays, and processes that come and go on one thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio

from cubepi_anyio import Agent, AgentTool, FauxProvider, Message, faux_assistant_message, faux_tool_call
from cubepi_anyio.checkpointers import Checkpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel, ask_user_tool
from cubepi_anyio.types.hitl import ApproveAnswer, PersonRequest
from tests.support.agents import Word, tool_of

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


class Process:
    """One process of several on the thread: an agent of its own, with a gated and a free tool and one that asks."""

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
    """The ids of the requests, by the call each is about."""
    return {request.tool_call_id: request.id for request in requests}
