"""G1 to G8 with a SQL store: after each ending, store and memory hold the same, and the thread is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cubepi_anyio.checkpointers.mysql import MySQLCheckpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sql.store import SQLCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.testing import Ending, Scenario, endings_here, sweep
from tests.support.servers import shared_mariadb, shared_postgres

from .scenarios import THOROUGH, parallel_tools, sniffed_trio
from .store_scenarios import STORED_SCENARIOS, stored_in

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(3600 if THOROUGH else 120)]


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SQLCheckpointer:
    if request.param == "sqlite":
        return SQLiteCheckpointer(tmp_path / "threads.db")
    if request.param == "postgres":
        return PostgresCheckpointer(shared_postgres(request))
    return MySQLCheckpointer(**shared_mariadb(request))


@pytest.mark.parametrize("make", STORED_SCENARIOS if THOROUGH else (parallel_tools,), ids=lambda make: make.__name__)
@pytest.mark.parametrize("number", range(5 if THOROUGH else 3))
async def test_every_ending_leaves_the_same_in_store_and_memory(
    make: Callable[[], Scenario], number: int, store: SQLCheckpointer
) -> None:
    """Threads take no part in the order of steps, so each sweep ends the runs elsewhere."""
    if not sniffed_trio():
        asyncio.get_running_loop().set_debug(False)
    ending = nth_ending(number)
    async with store:
        stride = 1 if THOROUGH else 7
        report = await sweep(stored_in(store, make), ending=ending, start=1 + 2 * number, stride=stride)
    report.raise_for_faults()
    assert report.endings > 5


def nth_ending(number: int) -> Ending:
    """One of the endings of this backend; skips the test where there are fewer."""
    if number >= len(endings_here()):
        pytest.skip("no more endings on this backend")
    return endings_here()[number]
