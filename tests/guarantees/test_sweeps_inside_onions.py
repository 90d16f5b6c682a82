"""G1 to G8 for runs with middleware around everything: each onion is closed, and none keeps an ending from leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.testing import GUARANTEES, Scenario, endings_here, sweep
from tests.support.agents import balance_faults

from .onion_scenarios import ONION_SCENARIOS, parallel_onions, resumed_onions, stored_onions, swallowing_onions
from .scenarios import SEEDS, THOROUGH, sniffed_trio

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(3600 if THOROUGH else 120)]


@pytest.fixture(autouse=True)
async def quick() -> None:
    """asyncio's debug mode takes two thirds of the time, and looks for other things."""
    if not sniffed_trio():
        asyncio.get_running_loop().set_debug(False)


@pytest.mark.parametrize("make", ONION_SCENARIOS, ids=lambda make: make.__name__)
async def test_a_run_may_be_ended_anywhere_inside_onions(make: Callable[[], Scenario]) -> None:
    for number, ending in enumerate(endings_here()):
        stride = 1 if THOROUGH else 11
        report = await sweep(make, ending=ending, start=1 + number, stride=stride, seeds=SEEDS[:1])
        report.raise_for_faults()
        assert report.endings > 5


async def test_a_run_may_be_ended_at_its_events_inside_onions() -> None:
    for number, ending in enumerate(endings_here()[:2]):
        stride = 1 if THOROUGH else 9
        report = await sweep(swallowing_onions, ending=ending, at="event", start=1 + number, stride=stride)
        report.raise_for_faults()
        assert report.endings > 3


async def test_a_run_with_an_async_listener_may_be_ended_anywhere_inside_onions() -> None:
    for number, ending in enumerate(endings_here()[:3]):
        stride = 3 if THOROUGH else 37
        report = await sweep(parallel_onions, ending=ending, listener="async", start=1 + 3 * number, stride=stride)
        report.raise_for_faults()
        assert report.endings > 5


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("make", ONION_SCENARIOS, ids=lambda make: make.__name__)
async def test_every_step_of_a_run_inside_onions_may_be_its_last(make: Callable[[], Scenario]) -> None:
    for ending in endings_here():
        report = await sweep(make, ending=ending, start=1, seeds=SEEDS)
        report.raise_for_faults()
        impatient = await sweep(make, ending=ending, start=1, stride=3, again_after=2, seeds=SEEDS[:1])
        impatient.raise_for_faults()


async def test_a_run_in_a_database_may_be_ended_anywhere_inside_onions(tmp_path: Path) -> None:
    """Threads take no part in the order of steps, so each sweep ends the runs elsewhere."""
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        for number, ending in enumerate(endings_here()[:4]):
            stride = 1 if THOROUGH else 29
            report = await sweep(stored_onions(store), ending=ending, start=2 + 5 * number, stride=stride)
            report.raise_for_faults()
            assert report.endings > 3


async def test_a_resumed_run_may_be_ended_anywhere_inside_its_onions() -> None:
    """What waits is answered later: the transcript may end with an open batch, and a run may begin with one."""
    checks = {name: check for name, check in GUARANTEES.items() if name not in ("G4", "G6")}
    checks["balance"] = lambda ended: [fault for events in ended.heard for fault in balance_faults(events)]
    for number, ending in enumerate(endings_here()):
        stride = 1 if THOROUGH else 7
        report = await sweep(resumed_onions, ending=ending, start=1 + number, stride=stride, checks=checks)
        report.raise_for_faults()
        assert report.endings > 3
