"""cubepi_anyio as the benchmarks see it: a provider that says a script, one tool, one agent for each run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from workloads import Answer, Script, ToolBody

from cubepi_anyio import (
    Agent,
    AgentEvent,
    AgentTool,
    BaseProvider,
    Message,
    MessageDraft,
    MessageStream,
    Model,
    RunLimits,
    RunResult,
    StreamOptions,
    TextContent,
    ToolDefinition,
    UserMessage,
    tool,
)
from cubepi_anyio.checkpointers.base import Checkpointer
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.providers.anthropic import AnthropicProvider


async def say(answer: Answer, draft: MessageDraft) -> None:
    """Write ``answer`` into a draft, as a custom provider would."""
    if answer.text is not None:
        for number, delta in enumerate(answer.text):
            if number % 8 == 0:
                await anyio.lowlevel.checkpoint()
            await draft.text(delta)
    elif answer.argument_deltas is not None:
        call = await draft.tool_call("a0", "noop")
        for number, delta in enumerate(answer.argument_deltas):
            if number % 8 == 0:
                await anyio.lowlevel.checkpoint()
            await draft.arguments(call, delta)
        await draft.end_block(call)
    if answer.silent:
        await anyio.sleep_forever()
    for call_id, name, arguments in answer.calls:
        await draft.tool_call(call_id, name, arguments)
    await draft.done()


class ScriptProvider(BaseProvider):
    """A model that says the answers of a script, one for each request."""

    def __init__(self, script: Script) -> None:
        super().__init__(provider_id="script")
        self._script = script
        self._asked = 0

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        answer = self._script(self._asked)
        self._asked += 1

        async def produce(stream: MessageStream) -> None:
            await say(answer, MessageDraft(stream, model))

        return MessageStream(produce)


LIMITS = RunLimits(max_turns=None)


class Ours:
    name = "ours"
    backends = ("asyncio", "trio")

    def tool(self, body: ToolBody) -> AgentTool:
        @tool
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return noop

    async def run(
        self,
        script: Script,
        tool: AgentTool,
        *,
        on_delta: Callable[[str], None] | None = None,
        wait_delta: Callable[[str], Awaitable[None]] | None = None,
        store: Any = None,
        on_abort: Callable[[Callable[[], object]], object] | None = None,
    ) -> RunResult:
        agent = Agent(
            model=ScriptProvider(script).model("m"),
            tools=[tool],
            system_prompt="sys",
            limits=LIMITS,
            checkpointer=store,
            thread_id="t1" if store is not None else None,
        )
        if on_delta is not None:
            agent.subscribe(telling(on_delta))
        if wait_delta is not None:
            agent.subscribe(awaiting(wait_delta))
        if on_abort is not None:
            on_abort(agent.abort)
        result = await agent.prompt("go")
        if on_abort is None:
            result.raise_for_error()
        return result


def telling(on_delta: Callable[[str], None]) -> Callable[[AgentEvent], None]:
    """A listener that passes on each delta."""

    def listener(event: AgentEvent) -> None:
        if event.type == "message_update":
            delta = event.stream_event.delta
            if delta is not None:
                on_delta(delta)

    return listener


def awaiting(wait_delta: Callable[[str], Awaitable[None]]) -> Callable[[AgentEvent], Awaitable[None]]:
    """A listener that waits for each delta."""

    async def listener(event: AgentEvent) -> None:
        if event.type == "message_update":
            delta = event.stream_event.delta
            if delta is not None:
                await wait_delta(delta)

    return listener


async def listen_to_agent(url: str, on_delta: Callable[[str], None]) -> None:
    """A whole run over Anthropic's wire format, with a listener."""
    async with AnthropicProvider(api_key="k", base_url=url) as provider:
        agent = Agent(model=provider.model("claude"))
        agent.subscribe(telling(on_delta))
        (await agent.prompt("x")).raise_for_error()


async def listen_to_provider(url: str, on_delta: Callable[[str], None]) -> None:
    """One stream of the provider alone."""
    async with (
        AnthropicProvider(api_key="k", base_url=url) as provider,
        await provider.model("claude").stream([UserMessage(content=[TextContent(text="x")])]) as stream,
    ):
        async for event in stream:
            if event.delta is not None:
                on_delta(event.delta)


@asynccontextmanager
async def memory_store(path: Path) -> AsyncGenerator[Checkpointer, None]:
    async with MemoryCheckpointer() as store:
        yield store


@asynccontextmanager
async def sqlite_store(path: Path) -> AsyncGenerator[Checkpointer, None]:
    async with SQLiteCheckpointer(path) as store:
        yield store


async def load(store: Checkpointer) -> int:
    """Read the thread; how many messages it has."""
    record = await store.load("t1")
    assert record is not None
    return len(record.messages)


LIBRARY = Ours()
STORES = {"memory": memory_store, "sqlite": sqlite_store}
LOAD = load
WIRES = {"agent": listen_to_agent, "provider": listen_to_provider}
