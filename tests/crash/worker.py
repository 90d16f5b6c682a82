"""Runs an agent on a stored thread in processes that are killed: each life is a fork of this program.

``python worker.py`` reads a life from each line of its input (``Life`` as JSON), lets it live, kills it when its time
is over, and answers with a line: the signal or exit code by which it ended, and how many seconds it took.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from cubepi_anyio import (
    AbortSignal,
    Agent,
    AgentEvent,
    AgentTool,
    FauxProvider,
    faux_text,
    faux_tool_call,
    tool_cycle_faults,
)
from cubepi_anyio.checkpointers import Checkpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import ClaimLost, PersonError, ThreadBusy
from cubepi_anyio.hitl import ApprovalPolicy, Approve, AskPerson, DurableChannel
from cubepi_anyio.hooks.middleware import AfterToolCallContext, BeforeToolCallContext, Middleware
from cubepi_anyio.types.hitl import ApproveAnswer

LEASE_SECONDS = 0.03

ASLEEP: list[int] = []
"""The processes that sleep."""


@dataclass
class Life:
    """What one process does, and when it dies."""

    number: int
    store: tuple[str, str]
    """``sqlite`` with a path, or ``postgres`` with a conninfo."""
    thread_id: str
    journal: str
    """The file that gets a line of JSON for whatever the process says or does, before it goes on."""
    backend: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    gated: bool = False
    """Whether a person is asked before tools run."""
    steps: int = 99
    """After how many runs it leaves by itself, though the last one may be suspended."""
    kill_after_seconds: float | None = None
    """From its beginning; ``None`` lets it end by itself."""
    end_at: int | None = None
    """It ends itself at this moment: moments lie before and after each call of the store, and at each line said."""
    end_by: str = "SIGKILL"
    """By which signal. Stopped, it sleeps until all that sleep are woken."""


class Moments:
    """Counts the moments of a life, and ends it at the one it is to end at.

    A life is put to sleep at the first moment from there on at which no call of the store goes on: asleep in a
    transaction, it would hold the lock that the others wait for.
    """

    def __init__(self, life: Life) -> None:
        self._end_at = life.end_at
        self._end_by = signal.Signals[life.end_by]
        self._gate = threading.Lock()
        self._count = 0
        self._calls = 0

    def pass_one(self, calls: int = 0) -> None:
        """``calls`` is 1 where a call of the store begins after this moment, -1 where one has ended before it."""
        with self._gate:
            self._count += 1
            self._calls += min(calls, 0)
            if self._end_at is not None and self._count >= self._end_at and self._may_end():
                self._end_at = None
                os.kill(os.getpid(), self._end_by)
            self._calls += max(calls, 0)

    def _may_end(self) -> bool:
        return self._end_by == signal.SIGKILL or self._calls == 0


class WatchedStore:
    """A store whose calls have a moment before and after each."""

    def __init__(self, store: Checkpointer, moments: Moments) -> None:
        self._store = store
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def watched(*args: Any, **options: Any) -> Any:
            self._moments.pass_one(1)
            try:
                return await method(*args, **options)
            finally:
                self._moments.pass_one(-1)

        return watched


class Journal:
    """Says what happens. A line is written by one call, and what is written outlives the process."""

    def __init__(self, path: str, moments: Moments) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._moments = moments

    def write(self, **entry: Any) -> None:
        self._moments.pass_one()
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        self._moments.pass_one()

    def hear(self, event: AgentEvent) -> None:
        """What an agent announces."""
        if event.type == "message_end":
            self.write(kind="message", id=event.message.id, message=event.message.model_dump(mode="json"))
        if event.type == "tool_execution_end":
            text = "".join(block.text for block in event.result.content)
            self.write(kind="result", call=event.tool_call_id, text=text, is_error=event.is_error, ending=event.ending)


class Name(BaseModel):
    """What a tool is called about."""

    name: str


def tools_of(journal: Journal) -> list[AgentTool]:
    """Tools with an effect in the world that must not be had twice: one that waits, one in a thread."""

    async def book(tool_call_id: str, params: Name) -> str:
        await checkpoint()
        journal.write(kind="effect", call=tool_call_id)
        await anyio.sleep(0.001)
        return f"booked {params.name}"

    def pay(tool_call_id: str, params: Name) -> str:
        journal.write(kind="effect", call=tool_call_id)
        return f"paid {params.name}"

    return [
        AgentTool("book", "Books.", Name, book, idempotent=False),
        AgentTool("pay", "Pays.", Name, pay, idempotent=False),
    ]


class NotingCalls(Middleware):
    """Notes each call that has run, before its result is stored."""

    async def after_tool_call(self, call: AfterToolCallContext, *, signal: AbortSignal) -> None:
        notes = call.ctx.extra
        notes["ran"] = [*notes.get("ran", []), call.tool_call.id]


def answers_of(life: Life) -> list[Any]:
    """What the model says: three calls at once, one more, and the end. No two calls ever have the same id."""

    def call(name: str, letter: str) -> Any:
        return faux_tool_call(name, {"name": letter}, id=f"{life.number}-{letter}")

    return [
        [faux_text("I do three things."), call("book", "a"), call("pay", "b"), call("book", "c")],
        call("pay", "d"),
        "All done.",
    ]


def agent_of(life: Life, store: Any, journal: Journal) -> tuple[Agent, FauxProvider]:
    """The agent of a process, which has seen nothing of what others did."""
    provider = FauxProvider()
    provider.set_responses(answers_of(life))
    channel = DurableChannel() if life.gated else None
    agent = Agent(
        model=provider.model("m"),
        tools=tools_of(journal),
        checkpointer=store,
        thread_id=life.thread_id,
        lease_seconds=LEASE_SECONDS,
        channel=channel,
        middleware=[NotingCalls(), *([ApprovalPolicy(channel, _policy)] if channel is not None else ())],
    )
    agent.subscribe(journal.hear)
    return agent, provider


def _policy(call: BeforeToolCallContext) -> Any:
    return Approve() if call.tool_call.id.endswith("c") else AskPerson()


def answer_to(call_id: str) -> ApproveAnswer:
    """What the person decides: the last call of a run is refused, the others may run."""
    return ApproveAnswer(decision="deny" if call_id.endswith("d") else "approve")


async def go_on(agent: Agent, journal: Journal, life: Life) -> None:
    """Do whatever is to be done next on the thread, until a prompt has been answered."""
    await agent.load()
    for _ in range(life.steps):
        if agent.pending_requests:
            request = agent.pending_requests[-1]
            answer = answer_to(request.tool_call_id)
            journal.write(kind="answer", call=request.tool_call_id, decision=answer.decision)
            result = await agent.respond(request.id, answer)
        elif agent.state.thread is not None and agent.state.thread.requests:
            result = await agent.resume()
        else:
            result = await agent.prompt(f"Go, number {life.number}.")
        if result.outcome != "suspended":
            result.raise_for_error()
            return


async def live(life: Life) -> None:
    """One process, from its beginning to its end."""
    moments = Moments(life)
    journal = Journal(life.journal, moments)
    kind, address = life.store
    async with SQLiteCheckpointer(address) if kind == "sqlite" else PostgresCheckpointer(address) as store:
        agent, provider = agent_of(life, WatchedStore(store, moments), journal)
        while True:
            try:
                await go_on(agent, journal, life)
                break
            except ThreadBusy:  # the claim of the one before
                await anyio.sleep(LEASE_SECONDS / 8)
            except PersonError:
                # A server may still have written what the one before said last: the question was answered, or is gone.
                await anyio.sleep(LEASE_SECONDS / 8)
            except ClaimLost:
                if life.end_by != "SIGSTOP":
                    raise
                break  # others went on while it slept
    faults = [fault for call in provider.calls for fault in tool_cycle_faults(call.messages)]
    if faults:
        raise AssertionError(faults)


def begin(life: Life) -> int:
    """Fork the process of a life; its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        anyio.run(live, life, backend=life.backend, backend_options=life.options)
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def run_to_its_end(life: Life) -> tuple[int, float]:
    """How a life ended (an exit code, or a signal's number with a minus), and how many seconds it took.

    Nobody else waits for the process, so the one that is killed is never another with the same id.
    """
    began = time.monotonic()
    pid = begin(life)
    while True:
        seconds = time.monotonic() - began
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            ASLEEP.append(pid)
            return -signal.SIGSTOP, seconds
        if ended:
            return os.waitstatus_to_exitcode(status), seconds
        if life.kill_after_seconds is not None and seconds >= life.kill_after_seconds:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seconds
        time.sleep(0.0005)


def wake() -> tuple[int, float]:
    """Let the process that sleeps go on, and wait for its end."""
    began, pid = time.monotonic(), ASLEEP.pop()
    os.kill(pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - began


def serve(lines: Iterable[str], answer: Callable[[str], Any]) -> None:
    """Let one life after the other live; an empty line wakes the one that sleeps."""
    for line in lines:
        if not line.strip():
            ended = wake()
        else:
            fields: Any = json.loads(line)
            fields["store"] = tuple(fields["store"])
            ended = run_to_its_end(Life(**fields))
        answer(json.dumps(ended) + "\n")
        sys.stdout.flush()


def line_of(life: Life) -> bytes:
    """A life as ``serve`` reads it."""
    return json.dumps(asdict(life)).encode() + b"\n"


if __name__ == "__main__":
    for name in ("trio", "uvloop", "psycopg", "anyio._backends._asyncio", "anyio._backends._trio"):
        with suppress(ImportError):
            __import__(name)  # before there are any lives, so that none has to wait for it
    serve(sys.stdin, sys.stdout.write)
