"""The runs that are swept over with middleware around all four things at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    Agent,
    FauxProvider,
    Message,
    Middleware,
    RateLimited,
    RunResult,
    faux_assistant_message,
    faux_text,
    faux_tool_call,
)
from cubepi_anyio.checkpointers import Checkpointer, repaired
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from cubepi_anyio.testing import Check, EndedRun, Scenario
from cubepi_anyio.types.hitl import ApproveAnswer
from tests.support.onions import Onions, Swallowing

from .scenarios import Tools

AT_ONCE = RetryPolicy(initial_delay_seconds=0)

_numbers = count()


def balanced(middleware: Sequence[Middleware]) -> Check:
    """Every onion that was opened has been closed, once."""

    def check(ended: EndedRun) -> Sequence[str]:
        return [f"{one.name}: {fault}" for one in middleware if isinstance(one, Onions) for fault in one.faults]

    return check


def inside(middleware: Sequence[Middleware], store: Checkpointer | None, **options: Any) -> Scenario:
    """Three calls in one answer, then one more, of a model that fails once; all of it inside ``middleware``."""
    tools, provider, thread_id = Tools(), FauxProvider(), f"onions-{next(_numbers)}"
    first = [
        faux_text("I do three things."),
        faux_tool_call("echo", {"times": 2}, id="first"),
        faux_tool_call("fail", {}, id="second"),
        faux_tool_call("unknown", {}, id="third"),
    ]
    provider.set_responses(
        [RateLimited("not yet"), first, faux_tool_call("careful", {}, id="fourth"), "All done."],
    )
    if store is not None:
        options.update(checkpointer=store, thread_id=thread_id)
    agent = Agent(
        model=RetryModel(provider.model("m"), AT_ONCE),
        tools=[tools.echo(), tools.fail(), tools.careful()],
        middleware=middleware,
        **options,
    )

    async def stored() -> Sequence[Message]:
        record = await store.load(thread_id) if store is not None else None
        return repaired(record.messages)[0] if record is not None else ()

    return Scenario(
        agent=agent,
        provider=provider,
        returned=tools.returned,
        leftovers=tools.leftovers,
        stored=stored if store is not None else None,
        checks=[balanced(middleware)],
    )


def parallel_onions() -> Scenario:
    """Calls at once, and a store in memory: all inside two onions."""
    return inside([Onions("outer"), Onions("inner")], MemoryCheckpointer())


def streamed_onions() -> Scenario:
    """``agent.stream()``, read to its end."""

    async def consume(agent: Agent) -> RunResult:
        async with agent.stream("Go.") as run:
            async for _ in run:
                await checkpoint()
            return await run.result()

    scenario = inside([Onions("outer"), Swallowing("inner")], None)
    scenario.run = consume
    return scenario


def sequential_onions() -> Scenario:
    return inside([Onions("only")], None, tool_execution="sequential")


def swallowing_onions() -> Scenario:
    """The same inside one that catches everything, with others around it and further in."""
    return inside([Onions("outer"), Swallowing("swallowing"), Onions("inner")], None)


ONION_SCENARIOS = (parallel_onions, sequential_onions, swallowing_onions, streamed_onions)


def stored_onions(store: Checkpointer) -> Callable[[], Scenario]:
    """Two onions, each run on a thread of its own in ``store``."""
    return lambda: inside([Onions("outer"), Swallowing("inner")], store)


@asynccontextmanager
async def resumed_onions() -> AsyncGenerator[Scenario, None]:
    """A run that had waited for a person goes on with the answer: one call was gated, another is still."""
    tools, store, channel, provider = Tools(), MemoryCheckpointer(), DurableChannel(), FauxProvider()
    calls = [faux_tool_call("echo", {"times": 1}, id=call_id) for call_id in ("gated", "free")]
    provider.set_responses([faux_assistant_message(calls), "All done."])
    onions = Onions("onions")
    agent = Agent(
        model=provider.model("m"),
        tools=[tools.echo()],
        middleware=[onions, ConfirmToolCall(channel, lambda call: call.tool_call.id == "gated")],
        checkpointer=store,
        thread_id="thread",
        channel=channel,
    )

    async def run(agent: Agent) -> RunResult:
        return await agent.respond(request.id, ApproveAnswer(decision="approve"))

    async def again(agent: Agent) -> RunResult:
        provider.set_responses(["Yes."] * 16)
        await agent.load()
        record = await store.load("thread")
        if record is not None and record.requests:  # it was ended before it had used the answer
            await agent.withdraw_requests()
        return await agent.prompt("Are you still there?")

    async with store:
        await agent.prompt("Go.")
        (request,) = agent.pending_requests
        assert onions.faults == []
        yield Scenario(
            agent=agent,
            provider=provider,
            run=run,
            again=again,
            leftovers=tools.leftovers,
            checks=[balanced([onions])],
        )
