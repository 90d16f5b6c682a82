"""Programs that run an agent and wait to be interrupted; each is run in a process of its own by the tests beside it.

``python programs.py <case> <backend>`` prints ``ready`` when the run is where the case wants it, and, whatever ends
it, a last line of JSON: what the transcripts came to, and which processes the run had started.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
from pydantic import BaseModel

from cubepi_anyio import (
    Agent,
    AgentTool,
    FauxProvider,
    FauxResponse,
    RunLimits,
    ToolResultMessage,
    faux_assistant_message,
    faux_tool_call,
    tool_cycle_faults,
)
from cubepi_anyio.tools.process import run_process


class Nothing(BaseModel):
    """Of tools that take nothing."""


AGENTS: list[Agent] = []
LAST_EVENTS: list[str] = []
PIDS: list[int] = []


def say(text: str) -> None:
    """Print a line that the test waits for."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def agent_with(responses: list[Any], execute: Callable[..., Any] | None = None, **options: Any) -> Agent:
    """An agent with one tool named ``work``."""
    provider = FauxProvider()
    provider.set_responses(responses)
    tools = [AgentTool("work", "works", Nothing, execute, **options)] if execute is not None else []
    agent = Agent(model=provider.model("m"), tools=tools, limits=RunLimits(settle_timeout=3.0))
    number = len(AGENTS)
    AGENTS.append(agent)
    LAST_EVENTS.append("")

    def note(event: Any) -> None:
        LAST_EVENTS[number] = event.type

    agent.subscribe(note)
    return agent


def working(execute: Callable[..., Any], *, count: int = 2, **options: Any) -> Agent:
    """An agent whose model calls ``work`` that many times."""
    calls = [faux_tool_call("work", {}, id=f"c{n}") for n in range(1, count + 1)]
    return agent_with([faux_assistant_message(calls), "never"], execute, **options)


class Gate:
    """Says ``ready`` when as many as are expected have arrived."""

    def __init__(self, expected: int) -> None:
        self._expected, self._lock = expected, threading.Lock()

    def arrive(self) -> None:
        with self._lock:
            self._expected -= 1
            if self._expected == 0:
                say("ready")


def async_tool() -> Agent:
    """Two async tools that sleep."""
    gate = Gate(2)

    async def sleep(tool_call_id: str, params: Nothing) -> str:
        gate.arrive()
        await anyio.sleep(60)
        return "never"

    return working(sleep)


def polling_thread() -> Agent:
    """Two plain functions that look at their signal."""
    gate = Gate(2)

    def poll(tool_call_id: str, params: Nothing, *, signal: Any) -> str:
        gate.arrive()
        pause, deadline = threading.Event(), time.monotonic() + 60
        while not signal.is_set() and time.monotonic() < deadline:
            pause.wait(0.005)
        return "stopped half-way"

    return working(poll)


def deaf_thread() -> Agent:
    """Two plain functions that look at nothing."""
    gate = Gate(2)

    def block(tool_call_id: str, params: Nothing) -> str:
        gate.arrive()
        threading.Event().wait(60)
        return "never"

    return working(block)


def child_process() -> Agent:
    """Two shells, each with a child of its own."""
    gate = Gate(2)

    async def shell(tool_call_id: str, params: Nothing) -> str:
        async def heard(piece: Any) -> None:
            PIDS.extend(int(word) for word in str(piece).split())
            gate.arrive()

        return (await run_process("sleep 60 & echo $$ $!; wait", on_update=heard)).output

    return working(shell)


def deaf_process() -> Agent:
    """A program that ignores every request to end."""

    async def shell(tool_call_id: str, params: Nothing) -> str:
        async def heard(piece: Any) -> None:
            PIDS.append(int(str(piece)))
            say("ready")

        source = (
            "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)];"
            "os.write(1, b'%d' % os.getpid()); time.sleep(60)"  # in one piece, however Python buffers its output
        )
        return (await run_process([sys.executable, "-c", source], on_update=heard, terminate_seconds=0.5)).output

    return working(shell, count=1)


def silent_model() -> Agent:
    """A model that says a few words and then nothing."""
    agent = agent_with([FauxResponse("one two three four", stall_after_deltas=2)])

    def note(event: Any) -> None:
        if event.type == "message_update" and event.stream_event.type == "text_delta":
            said.append(event)
            if len(said) == 2:
                say("ready")

    said: list[Any] = []
    agent.subscribe(note)
    return agent


def nested() -> Agent:
    """An agent whose tool runs an agent whose tool runs an agent whose tool sleeps."""
    inner = async_tool()

    def delegating_to(agent: Agent) -> Callable[..., Any]:
        async def delegate(tool_call_id: str, params: Nothing) -> str:
            return (await agent.prompt("sub task")).text

        return delegate

    return working(delegating_to(working(delegating_to(inner), count=1)), count=1)


def cleaning() -> Agent:
    """A tool whose cleanup under its own shield takes longer than anybody waits."""

    async def careful(tool_call_id: str, params: Nothing) -> str:
        try:
            # Inside, because trio may interrupt the very line that says it.
            say("ready")
            await anyio.sleep(60)
        finally:
            say("cleaning")
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)
        return "never"

    return working(careful, count=1)


def short_cleaning() -> Agent:
    """A tool that cleans up under its own shield for 200 ms."""

    async def careful(tool_call_id: str, params: Nothing) -> str:
        try:
            # Inside, because trio may interrupt the very line that says it.
            say("ready")
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.2)
            say("clean")
        return "never"

    return working(careful, count=1)


CASES = {
    case.__name__: case
    for case in (
        async_tool,
        polling_thread,
        deaf_thread,
        child_process,
        deaf_process,
        silent_model,
        nested,
        cleaning,
        short_cleaning,
    )
}


def report() -> str:
    """What is left, as a line of JSON."""
    return json.dumps(
        {
            "faults": [tool_cycle_faults(agent.state.messages) for agent in AGENTS],
            "roles": ["".join(message.role[0] for message in agent.state.messages) for agent in AGENTS],
            "endings": [
                [message.details.get("ending", "?") if message.details else message.text for message in results(agent)]
                for agent in AGENTS
            ],
            "last_events": LAST_EVENTS,
            "outcomes": [agent.state.last_outcome for agent in AGENTS],
            "pids": PIDS,
        }
    )


def results(agent: Agent) -> list[ToolResultMessage]:
    """The results in an agent's transcript."""
    return [message for message in agent.state.messages if isinstance(message, ToolResultMessage)]


def main(case: str, backend: str) -> None:
    """Run a case until something ends it."""
    options = {"use_uvloop": True} if backend == "uvloop" else {}
    try:
        anyio.run(_prompt, case, backend="trio" if backend == "trio" else "asyncio", backend_options=options)
    finally:
        say(report())


async def _prompt(case: str) -> None:
    await CASES[case]().prompt("hi")


async def _idle_after(case: str, way: str) -> None:
    """End a run in this way and measure what the process uses over the next half second."""
    agent = CASES[case]()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.prompt, "hi")
            while not agent.state.pending_tool_calls and agent.state.phase != "streaming":  # noqa: ASYNC110
                await anyio.sleep(0.005)
            await anyio.sleep(0.1)
            if way == "abort":
                agent.abort()
            else:
                scope.cancel()
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    before = _used_seconds()
    await anyio.sleep(0.5)
    say(json.dumps(_used_seconds() - before))


def _used_seconds() -> float:
    mine, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in (mine, children))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        anyio.run(_idle_after, sys.argv[1], sys.argv[3], backend=sys.argv[2])
    else:
        main(*sys.argv[1:])
