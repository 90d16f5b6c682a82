"""A run renews its claim on a stored thread while it goes on, and bears with a store that fails for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentTool
from cubepi_anyio.checkpointers.base import RunClaim
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.errors import ClaimLost
from tests.support.agents import Bench, NoParams, assert_well_ended, bench, calling, running_tasks, tool_of

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(20)]

LEASE_SECONDS = 0.9


class Unreachable(Exception):
    """What a driver raises whose server is gone."""


class Moody(MemoryCheckpointer):
    """Fails to renew a claim where ``fails`` says so of the attempt's number."""

    def __init__(self, fails: Callable[[int], Exception | None], enough: int) -> None:
        super().__init__()
        self._fails, self._enough = fails, enough
        self.attempts = 0
        self.had_enough = anyio.Event()

    async def renew_claim(self, claim: RunClaim, *, lease_seconds: float) -> None:
        self.attempts += 1
        if self.attempts == self._enough:
            self.had_enough.set()
        error = self._fails(self.attempts)
        if error is not None:
            raise error
        await super().renew_claim(claim, lease_seconds=lease_seconds)

    def working(self) -> AgentTool:
        """A tool that works until the claim has been renewed often enough."""

        async def work(tool_call_id: str, params: NoParams) -> str:
            await self.had_enough.wait()
            return "worked"

        return tool_of("work", work)

    def bench(self, last_word: str) -> Bench:
        """An agent on a thread of this store, whose one call works so long."""
        tools = [self.working()]
        options: dict[str, Any] = {"checkpointer": self, "thread_id": "t", "lease_seconds": LEASE_SECONDS}
        return bench(calling("work"), last_word, tools=tools, **options)


def first_of_two(attempt: int) -> Exception | None:
    return Unreachable("server closed the connection") if attempt % 2 else None


async def test_a_store_that_fails_now_and_then_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async with Moody(first_of_two, enough=4) as store:
        made = store.bench("done")
        result = await made.agent.prompt("hi")
    assert (result.outcome, made.texts) == ("completed", ["worked"])
    said = [record for record in caplog.records if "was not renewed" in record.getMessage()]
    assert len(said) >= 2
    assert all(record.exc_info and record.exc_info[0] is Unreachable for record in said)
    await assert_well_ended(made)


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(Unreachable("server closed the connection"), 2), (ClaimLost("t"), 1)],
    ids=["unreachable", "lost"],
)
async def test_a_claim_that_cannot_be_kept_ends_the_run(error: Exception, attempts: int) -> None:
    before = running_tasks()
    async with Moody(lambda attempt: error, enough=1000) as store:
        made = store.bench("never")
        with pytest.raises(type(error)) as raised:
            await made.agent.prompt("hi")
        assert raised.value is error
        assert store.attempts == attempts
        assert running_tasks() == before
    await assert_well_ended(made)
