"""``agent.between_runs()``: an idle agent and its thread, claimed for a block."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import Agent, AgentBusy, FauxProvider, FauxResponse, RunContext, StreamMisuse, ThreadBusy
from cubepi_anyio.checkpointers.base import RunClaim
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.errors import ClaimLost, StoreUnavailable
from cubepi_anyio.testing import GUARANTEES, EndedRun, Scenario, endings_here, sweep
from tests.support.agents import Bench, assert_well_ended, bench
from tests.support.backends import on_asyncio

from .test_notes import Watched

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(30)]


async def test_it_gives_the_context_of_an_idle_agent_and_tells_nobody() -> None:
    made = bench("one", "two")
    await made.agent.prompt("hi")
    heard = len(made.events)
    async with made.agent.between_runs() as ctx:
        assert isinstance(ctx, RunContext)
        assert [message.text for message in ctx.messages] == ["hi", "one"]
        assert (ctx.tool_call_id, ctx.turn, ctx.model) == (None, 0, made.agent.state.model)
        assert made.agent.state.is_running
        ctx.notes["summary"] = "short"
    assert (len(made.events), made.agent.state.notes) == (heard, {"summary": "short"})
    await assert_well_ended(made)


async def test_no_run_begins_meanwhile_and_no_other_block() -> None:
    made = bench("one")
    async with made.agent.between_runs():
        for attempt in (made.agent.prompt("hi"), made.agent.resume()):
            with pytest.raises(AgentBusy):
                await attempt
        with pytest.raises(AgentBusy, match=r"between_runs\(\)"):
            async with made.agent.between_runs():
                raise AssertionError("entered")
        with pytest.raises(AgentBusy):
            async with made.agent.stream("hi"):
                raise AssertionError("entered")
    await assert_well_ended_after(made)


async def assert_well_ended_after(made: Bench) -> None:
    made.provider.set_responses(["fine"])
    assert (await made.agent.prompt("and now")).text == "fine"


async def test_it_is_refused_while_a_run_goes_on_and_can_be_waited_for() -> None:
    made = bench(FauxResponse("one", stall_before_start=True))
    order: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def prompt() -> None:
            await made.agent.prompt("hi")
            order.append("run")

        tasks.start_soon(prompt)
        await made.provider.wait_stalled()
        with pytest.raises(AgentBusy):
            async with made.agent.between_runs():
                raise AssertionError("entered")
        made.provider.release_stalls()
        await made.agent.wait_for_idle()
        async with made.agent.between_runs():
            order.append("block")
    assert sorted(order) == ["block", "run"]


async def test_who_waits_for_an_idle_agent_waits_for_the_block() -> None:
    made, log = bench("one"), list[str]()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            await made.agent.wait_for_idle()
            log.append("idle")

        async with made.agent.between_runs():
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            log.append("block")
    assert log == ["block", "idle"]


async def test_an_abort_does_nothing_to_a_block() -> None:
    made = bench("one")
    async with made.agent.between_runs():
        made.agent.abort()
        await checkpoint()
    await assert_well_ended_after(made)


async def test_a_block_can_be_entered_once() -> None:
    made = bench("one")
    block = made.agent.between_runs()
    async with block:
        pass
    with pytest.raises(StreamMisuse, match="entered once"):
        async with block:
            raise AssertionError("entered")
    await assert_well_ended_after(made)


# --- with a store ----------------------------------------------------------------------------


async def test_notes_are_stored_under_the_claim_and_the_thread_is_brought_up_to_date() -> None:
    async with Watched() as store:
        await store.bench("one").agent.prompt("hi")
        made = store.bench("two")
        async with made.agent.between_runs() as ctx:
            assert [message.text for message in ctx.messages] == ["hi", "one"]
            ctx.notes["summary"] = "short"
            assert await store.notes() == {}
        assert store.appends[-1] == ([], {"summary": "short"})
        assert await store.notes() == {"summary": "short"}
        await assert_well_ended(made, heard=False)


async def test_the_thread_is_busy_for_others_meanwhile_and_free_afterwards() -> None:
    async with MemoryCheckpointer() as store:
        made, other = (bench("one", checkpointer=store, thread_id="t") for _ in range(2))
        async with made.agent.between_runs():
            with pytest.raises(ThreadBusy):
                await other.agent.prompt("hi")
            with pytest.raises(ThreadBusy):
                async with other.agent.between_runs():
                    raise AssertionError("entered")
            assert not other.agent.state.is_running
        assert (await other.agent.prompt("hi")).outcome == "completed"


async def test_a_thread_that_is_busy_leaves_the_agent_idle() -> None:
    async with MemoryCheckpointer() as store:
        made = bench("one", checkpointer=store, thread_id="t")
        claim = await store.claim_run("t", "another", lease_seconds=60)
        with pytest.raises(ThreadBusy):
            async with made.agent.between_runs():
                raise AssertionError("entered")
        assert not made.agent.state.is_running
        await store.release_claim(claim, "completed")
        await assert_well_ended_after(made)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_an_exception_of_the_block_leaves_as_itself_and_its_notes_are_kept(is_stored: bool) -> None:
    async with Watched() as store:
        made = store.bench("one") if is_stored else bench("one")
        bug = LookupError("the block's")
        with pytest.raises(LookupError) as caught:
            async with made.agent.between_runs() as ctx:
                ctx.notes["k"] = 1
                raise bug
        assert caught.value is bug
        if is_stored:
            assert await store.notes() == {"k": 1}
        await assert_well_ended_after(made)


async def test_a_group_of_the_block_leaves_as_itself() -> None:
    async with MemoryCheckpointer() as store:
        made = bench("one", checkpointer=store, thread_id="t")
        group = ExceptionGroup("two", [ValueError(), KeyError()])
        with pytest.raises(ExceptionGroup) as caught:
            async with made.agent.between_runs():
                raise group
        assert caught.value is group


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_block_that_is_cancelled_gives_everything_back_and_keeps_its_notes(is_stored: bool) -> None:
    async with Watched() as store:
        made = store.bench("one") if is_stored else bench("one")
        with anyio.CancelScope() as scope:
            async with made.agent.between_runs() as ctx:
                ctx.notes["k"] = 1
                scope.cancel()
                await anyio.sleep_forever()
        assert (scope.cancelled_caught, made.agent.state.is_running) == (True, False)
        if is_stored:
            assert await store.notes() == {"k": 1}
        await assert_well_ended_after(made)


@on_asyncio
async def test_a_block_that_is_cancelled_by_its_task_gives_everything_back() -> None:
    async with Watched() as store:
        made = store.bench("one")

        async def hold() -> None:
            async with made.agent.between_runs() as ctx:
                ctx.notes["k"] = 1
                await anyio.sleep_forever()

        task = asyncio.create_task(hold())
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.notes() == {"k": 1}
        await assert_well_ended_after(made)


class Renewing(MemoryCheckpointer):
    """Counts how often a claim is renewed, and refuses it where told to."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.renewals = 0
        self.error = error

    async def renew_claim(self, claim: RunClaim, *, lease_seconds: float) -> None:
        self.renewals += 1
        if self.error is not None:
            raise self.error
        await super().renew_claim(claim, lease_seconds=lease_seconds)


@pytest.mark.virtual_clock
async def test_the_claim_is_renewed_while_the_block_goes_on() -> None:
    async with Renewing() as store:
        made = bench("one", checkpointer=store, thread_id="t", lease_seconds=30)
        async with made.agent.between_runs():
            await anyio.sleep(95)
        assert store.renewals == 9
        await anyio.sleep(100)
        assert store.renewals == 9


@pytest.mark.virtual_clock
@pytest.mark.parametrize("error", [ClaimLost("t"), StoreUnavailable("no disk")])
async def test_a_block_whose_claim_is_lost_is_ended_and_raises_why(error: Exception) -> None:
    async with Renewing(error) as store:
        made = bench("one", checkpointer=store, thread_id="t", lease_seconds=30)
        reached: list[str] = []
        with pytest.raises(type(error)) as caught:
            async with made.agent.between_runs():
                await anyio.sleep(1000)
                reached.append("end")
        assert (caught.value is error, reached) == (True, [])
        assert not made.agent.state.is_running


@pytest.mark.virtual_clock
async def test_an_exception_of_the_block_goes_before_the_lost_claim() -> None:
    async with Renewing(ClaimLost("t")) as store:
        made = bench("one", checkpointer=store, thread_id="t", lease_seconds=30)
        with pytest.raises(LookupError):
            async with made.agent.between_runs():
                try:
                    await anyio.sleep(1000)
                finally:
                    raise LookupError("the block's")
        assert not made.agent.state.is_running


async def test_a_store_that_fails_at_the_end_is_logged_and_the_agent_is_idle(caplog: pytest.LogCaptureFixture) -> None:
    async with Watched() as store:
        made = store.bench("one")
        async with made.agent.between_runs() as ctx:
            ctx.notes["k"] = 1
            store.failures.append(StoreUnavailable("no disk"))
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert not made.agent.state.is_running


# --- the sweep -------------------------------------------------------------------------------

_numbers = count()


def _scenario(store: MemoryCheckpointer, thread_id: str) -> Scenario:
    provider = FauxProvider()
    agent = Agent(model=provider.model("m"), checkpointer=store, thread_id=thread_id)

    async def block(agent: Agent) -> None:
        async with agent.between_runs() as ctx:
            for number in range(3):
                await checkpoint()
                ctx.notes["steps"] = number
            await checkpoint()

    def notes_are_stored(ended: EndedRun) -> Sequence[str]:
        steps = agent.state.notes.get("steps")
        stored = notes.get("steps")
        return [] if steps == stored else [f"the notes say {steps}, the store {stored}"]

    notes: dict[str, Any] = {}

    async def stored() -> Sequence[Any]:
        record = await store.load(thread_id)
        if record is not None:
            notes.update(record.extra)
        return record.messages if record is not None else ()

    return Scenario(agent=agent, provider=provider, run=block, stored=stored, checks=[notes_are_stored])


@asynccontextmanager
async def block_on_a_thread() -> AsyncGenerator[Scenario, None]:
    async with MemoryCheckpointer() as store:
        yield _scenario(store, f"t{next(_numbers)}")


async def test_a_block_may_be_ended_at_any_step() -> None:
    stride = 1 if os.environ.get("CUBEPI_ANYIO_THOROUGH_SWEEPS") else 2
    checks = {name: check for name, check in GUARANTEES.items() if name in ("G1", "G2", "G4", "G5", "G7", "G8")}
    for number, ending in enumerate(endings_here()):
        if ending == "abort":
            continue  # it is for runs
        report = await sweep(block_on_a_thread, ending=ending, start=1 + number % 2, stride=stride, checks=checks)
        report.raise_for_faults()
        assert report.endings > 2
