"""A process that runs an agent is killed at any moment: nothing announced is lost, and nothing is done twice.

``CUBEPI_ANYIO_CRASHES=500`` kills that often in each test, and at every single moment; ``CUBEPI_ANYIO_CRASH_SEED``
repeats the moments of a run that failed, as far as the machine does.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from cubepi_anyio import Agent, FauxProvider, Message, RunResult, ToolResultMessage, tool_cycle_faults
from cubepi_anyio.checkpointers import Checkpointer, ThreadRecord
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import RequestsPending, ThreadBusy
from cubepi_anyio.hitl import DurableChannel
from tests.conftest import needs_trio
from tests.support.servers import shared_postgres

from .worker import LEASE_SECONDS, Life, line_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are made by fork"),
    pytest.mark.deadline(3600 if "CUBEPI_ANYIO_CRASHES" in os.environ else 120),
    pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=needs_trio)], indirect=True),
]

KILLS = int(os.environ.get("CUBEPI_ANYIO_CRASHES", "10"))
"""For each store, backend and kind of run."""
THOROUGH = "CUBEPI_ANYIO_CRASHES" in os.environ
SEED = int(os.environ.get("CUBEPI_ANYIO_CRASH_SEED", "0")) or Random().randrange(1, 2**31)
KILLED, STOPPED = -9, -19
_KILLS_OF_A_THREAD = 25


class Processes:
    """The program that lives one life after the other, in processes of its own."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._answers = BufferedByteReceiveStream(program.stdout)

    async def live(self, life: Life) -> tuple[int, float]:
        """How the life ended, and how many seconds it took."""
        await self._program.stdin.send(line_of(life))
        ended, seconds = json.loads(await self._answers.receive_until(b"\n", 1000))
        assert ended in (0, KILLED, STOPPED), f"{life} ended with exit code {ended}"
        return ended, seconds

    async def wake(self) -> None:
        """Let the one that sleeps live on to its end."""
        await self._program.stdin.send(b"\n")
        ended, _ = json.loads(await self._answers.receive_until(b"\n", 1000))
        assert ended == 0, f"woken, it ended with exit code {ended}"


@asynccontextmanager
async def processes() -> AsyncGenerator[Processes]:
    command = [sys.executable, str(Path(__file__).with_name("worker.py"))]
    async with await anyio.open_process(command, stderr=None) as program:
        yield Processes(program)
        assert program.stdin is not None
        await program.stdin.aclose()
        assert await program.wait() == 0


@dataclass
class World:
    """What outlives the processes: one thread, and the journal of all that was said and done."""

    store: Checkpointer
    life: Life
    """What all lives on this thread have in common."""
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _too_late: range = range(0)

    def next_life(self, **changes: Any) -> Life:
        """The next life, with a number that none has had."""
        self.life = replace(self.life, number=self.life.number + 1)
        return replace(self.life, **changes)

    async def check(self) -> None:
        """Assert all that holds after a death."""
        self.entries = self._read_journal()
        record = await self.store.load(self.life.thread_id)
        self._check_announced(record.messages if record is not None else [])
        self._check_effects(record.messages if record is not None else [])
        self._check_notes(record)
        await self._check_usable()

    async def wake(self, alive: Processes) -> None:
        """Let the life that sleeps end. What it announces then is not what was stored: the store refuses it."""
        before = len(self._read_journal())
        await alive.wake()
        self._too_late = range(before, len(self._read_journal()))

    def _read_journal(self) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in Path(self.life.journal).read_bytes().splitlines()]
        announced = ("message", "result")
        return [
            {**entry, "kind": "too late"} if number in self._too_late and entry["kind"] in announced else entry
            for number, entry in enumerate(entries)
        ]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == kind]

    def _check_announced(self, stored: list[Message]) -> None:
        kept = {message.id: message.model_dump(mode="json") for message in stored}
        for entry in self.of_kind("message"):
            assert kept.get(entry["id"]) == entry["message"], "an announced message is not in the store"
        results = {m.tool_call_id: (m.text, m.is_error) for m in stored if isinstance(m, ToolResultMessage)}
        for entry in self.of_kind("result"):
            if entry["ending"] != "suspended":
                assert results.get(entry["call"]) == (entry["text"], entry["is_error"]), entry

    def _check_notes(self, record: ThreadRecord | None) -> None:
        """A call that ran was noted before its result was stored, so the note is there if the result is.

        A process that slept through its lease wakes with old notes; they would undo those of the others.
        """
        if record is None:
            return
        noted = record.extra.get("ran", [])
        assert len(noted) == len(set(noted)), "a call was noted twice"
        ran = {m.tool_call_id for m in record.messages if isinstance(m, ToolResultMessage) and m.details is None}
        refused = {m.tool_call_id for m in record.messages if isinstance(m, ToolResultMessage) and m.is_error}
        assert ran - refused <= set(noted), "a result was stored without the note of its call"

    def _check_effects(self, stored: list[Message]) -> None:
        effects = Counter(entry["call"] for entry in self.of_kind("effect"))
        assert [call for call, times in effects.items() if times > 1] == [], "a call had its effect twice"
        for message in stored:
            if isinstance(message, ToolResultMessage) and message.details is None:
                done = not message.is_error
                assert effects[message.tool_call_id] == done, message
        approved = {entry["call"] for entry in self.of_kind("answer") if entry["decision"] == "approve"}
        unasked = {call for call in effects if call.endswith("c")}
        assert not self.life.gated or effects.keys() <= approved | unasked, "a call ran that nobody had approved"

    async def _check_usable(self) -> None:
        """Another process loads the thread, and goes on as far as nobody has to be waited for."""
        provider = FauxProvider()
        provider.set_responses(["Yes."])
        agent = Agent(
            model=provider.model("m"),
            checkpointer=self.store,
            thread_id=self.life.thread_id,
            lease_seconds=LEASE_SECONDS,
            channel=DurableChannel() if self.life.gated else None,
        )
        await agent.load()
        try:
            result = await when_free(lambda: agent.prompt("Are you there?"))
        except RequestsPending:
            assert self.life.gated
            return
        assert (result.outcome, result.text) == ("completed", "Yes.")
        assert tool_cycle_faults(provider.calls[0].messages) == []


async def when_free(run: Callable[[], Awaitable[RunResult]]) -> RunResult:
    """Run as soon as the claim of the dead has ended."""
    with anyio.fail_after(10):
        while True:
            try:
                return await run()
            except ThreadBusy:
                await anyio.sleep(LEASE_SECONDS / 8)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "threads.db")
    return "postgres", shared_postgres(request)


@asynccontextmanager
async def worlds(
    address: tuple[str, str], backend: tuple[str, dict[str, Any]], folder: Path, *, gated: bool
) -> AsyncGenerator[Callable[[int], World]]:
    """Makes worlds, each with a thread of its own."""
    kind, where = address
    async with SQLiteCheckpointer(where) if kind == "sqlite" else PostgresCheckpointer(where) as store:

        def make(number: int) -> World:
            journal = folder / f"journal-{number}"
            journal.touch()
            options = {name: value for name, value in backend[1].items() if name != "debug"}
            # The path is of this test alone, and so is the thread.
            return World(store, Life(0, address, str(journal), str(journal), backend[0], options, gated))

        yield make


@pytest.mark.parametrize("gated", [False, True], ids=["runs", "suspended_runs"])
async def test_a_process_killed_at_random_moments_loses_nothing_announced_and_repeats_nothing(
    address: tuple[str, str], gated: bool, anyio_backend: Any, tmp_path: Path
) -> None:
    print(f"CUBEPI_ANYIO_CRASH_SEED={SEED}")  # noqa: T201 - shown if the test fails
    random = Random(f"{SEED} {address[0]} {gated} {anyio_backend[0]}")
    async with worlds(address, anyio_backend, tmp_path, gated=gated) as make, processes() as alive:
        world, kills, lives = make(0), 0, 0
        _, usual_seconds = await alive.live(world.next_life())
        while kills < KILLS:
            if kills % _KILLS_OF_A_THREAD == 0:
                world = make(lives + 1)
            moment = random.uniform(0, usual_seconds)
            life = world.next_life(kill_after_seconds=moment, steps=random.choice((1, 2, 99)))
            ended, _ = await alive.live(life)
            await world.check()
            kills += ended == KILLED
            lives += 1
            assert lives < 20 * KILLS, "hardly any life was long enough to be killed in"
        await _end_well(world, alive)


async def _end_well(world: World, alive: Processes) -> None:
    """The last life is not killed: whatever was begun comes to an end, and every call has a result."""
    assert (await alive.live(world.next_life()))[0] == 0
    await world.check()
    record = await world.store.load(world.life.thread_id)
    assert record is not None
    assert record.requests == []
    assert world.of_kind("message")[-1]["message"]["content"][0]["text"] == "All done."


def some_moments() -> range:
    """At which moments of a life it is ended: all of them, or a part that differs from seed to seed."""
    stride = 1 if THOROUGH else 13
    return range(1 + Random(SEED).randrange(stride), 1000, stride)


@pytest.mark.parametrize("gated", [False, True], ids=["runs", "suspended_runs"])
async def test_a_process_killed_before_and_after_each_call_of_the_store_loses_and_repeats_nothing(
    address: tuple[str, str], gated: bool, anyio_backend: Any, tmp_path: Path
) -> None:
    """Also before and after each event, and each effect of a tool; one such moment for each thread."""
    async with worlds(address, anyio_backend, tmp_path, gated=gated) as make, processes() as alive:
        deaths = 0
        for moment in some_moments():
            world = make(moment)
            ended, _ = await alive.live(world.next_life(end_at=moment))
            await world.check()
            await _end_well(world, alive)
            if ended == 0:
                break
            deaths += 1
        assert deaths > 2


@pytest.mark.parametrize("gated", [False, True], ids=["runs", "suspended_runs"])
async def test_a_process_that_slept_through_its_lease_does_nothing_a_second_time(
    address: tuple[str, str], gated: bool, anyio_backend: Any, tmp_path: Path
) -> None:
    """It was taken for dead, and another went on; then it wakes, and goes on as well until it learns of that."""
    async with worlds(address, anyio_backend, tmp_path, gated=gated) as make, processes() as alive:
        sleeps = 0
        for moment in some_moments():
            world = make(moment)
            ended, _ = await alive.live(world.next_life(end_at=moment, end_by="SIGSTOP"))
            if ended == 0:
                break
            assert (await alive.live(world.next_life()))[0] == 0
            await world.check()
            await world.wake(alive)
            await world.check()
            await _end_well(world, alive)
            sleeps += 1
        assert sleeps > 2
