"""Every store keeps every promise of ``Checkpointer``, on every backend, against real servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from cubepi_anyio.checkpointers import Checkpointer, RunClaim
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.checkpointers.mysql import MySQLCheckpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.testing.checkpointers import (
    CHECKPOINTER_CHECKS,
    CheckpointerCheck,
    StoreFactory,
    check_checkpointer,
)
from cubepi_anyio.types import JsonObject, Message
from tests.support.servers import shared_mariadb, shared_postgres

pytestmark = pytest.mark.anyio


def each_opened(make: Callable[[], Checkpointer]) -> StoreFactory:
    """Opens a new store each time."""

    @asynccontextmanager
    async def open_store() -> AsyncGenerator[Checkpointer]:
        async with make() as store:
            yield store

    return open_store


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql"])
def make_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[Checkpointer]]:
    if request.param == "memory":
        store = MemoryCheckpointer()
        return each_opened(lambda: store)
    if request.param == "sqlite":
        return each_opened(lambda: SQLiteCheckpointer(tmp_path / "threads.db"))
    if request.param == "postgres":
        conninfo = shared_postgres(request)
        return each_opened(lambda: PostgresCheckpointer(conninfo))
    address = shared_mariadb(request)
    return each_opened(lambda: MySQLCheckpointer(**address))


@pytest.mark.parametrize("check", CHECKPOINTER_CHECKS, ids=lambda check: check.name)
async def test_the_promise_is_kept(check: CheckpointerCheck, make_store: StoreFactory) -> None:
    await check(make_store)


async def test_the_checks_run_without_a_test_runner() -> None:
    store = MemoryCheckpointer()
    await check_checkpointer(each_opened(lambda: store))


async def test_a_store_that_breaks_a_promise_is_told_which() -> None:
    class Forgetful(MemoryCheckpointer):
        async def append(
            self,
            thread_id: str,
            messages: Sequence[Message],
            *,
            claim: RunClaim | None = None,
            extra: JsonObject | None = None,
        ) -> None:
            await super().append(thread_id, messages[:1], claim=claim, extra=extra)

    store = Forgetful()
    with pytest.raises(AssertionError, match="messages: expected") as caught:
        await check_checkpointer(each_opened(lambda: store))
    assert caught.value.__notes__ == ["in the check what_was_stored_is_loaded_as_it_was"]


@pytest.mark.parametrize("notes_first", [False, True])
async def test_a_store_that_keeps_notes_apart_from_their_messages_is_told(notes_first: bool) -> None:
    class InTwoSteps(MemoryCheckpointer):
        async def append(
            self,
            thread_id: str,
            messages: Sequence[Message],
            *,
            claim: RunClaim | None = None,
            extra: JsonObject | None = None,
        ) -> None:
            if notes_first:
                await self.save_extra(thread_id, extra or {})
            await super().append(thread_id, messages, claim=claim)
            if not notes_first:
                await self.save_extra(thread_id, extra or {})

    store, broken = InTwoSteps(), list[str]()
    for check in CHECKPOINTER_CHECKS:
        try:
            await check(each_opened(lambda: store))
        except AssertionError:
            broken.append(check.name)
    assert "a_cancelled_append_is_whole_or_absent" in broken
    assert ("a_lease_that_ran_out_is_taken_over" in broken) == notes_first
