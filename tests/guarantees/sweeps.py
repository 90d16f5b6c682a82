"""The sweeps behind G1 to G8: each is done once, and every guarantee looks at what it found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from cubepi_anyio.testing import Ending, Fault, Scenario, SweepReport, endings_here, sweep

from .scenarios import SCENARIOS, SEEDS, THOROUGH, sniffed_trio

MakeScenario = Callable[[], Scenario]
Test = TypeVar("Test", bound=Callable[..., object])

_done: dict[tuple[str, str], list[SweepReport]] = {}


def over_all_scenarios(test: Test) -> Test:
    """Run a test once for each scenario, given as ``make``; whoever comes first does the sweeps."""
    with_deadline = pytest.mark.deadline(3600 if THOROUGH else 120)(test)
    return pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)(with_deadline)


async def swept(make: MakeScenario, backend: object) -> list[SweepReport]:
    """Every sweep of a scenario on this backend: all endings, all kinds of listeners, at steps and at events."""
    key = (make.__name__, str(backend))
    if key not in _done:
        if not sniffed_trio():
            asyncio.get_running_loop().set_debug(False)  # it takes two thirds of the time, and looks for other things
        _done[key] = await _sweep_all(make)
    return _done[key]


async def _sweep_all(make: MakeScenario) -> list[SweepReport]:
    reports: list[SweepReport] = []
    for number, ending in enumerate(endings_here()):
        first = _first(ending)
        reports.append(await sweep(make, ending=ending, start=first, seeds=SEEDS))
        # An async listener makes many more steps; the endings share them among each other.
        stride = 1 if THOROUGH else 13
        reports.append(
            await sweep(make, ending=ending, listener="async", start=first + number, stride=stride, seeds=SEEDS[-1:])
        )
    reports.append(await sweep(make, ending="abort", listener="none", start=1, seeds=SEEDS[:1]))
    for number, ending in enumerate(endings_here()[:2]):
        stride = 1 if THOROUGH else 5
        reports.append(await sweep(make, ending=ending, at="event", start=1 + number, stride=stride, seeds=SEEDS[:1]))
    return reports


def _first(ending: Ending) -> int:
    """The first position: before the first step there is no run yet that could be aborted."""
    return 1 if ending == "abort" else 0


def faults_of(reports: list[SweepReport], guarantee: str) -> list[str]:
    """What the sweeps found against one guarantee."""
    return [f"{report.ending}: {fault}" for report in reports for fault in report.faults if _is_of(fault, guarantee)]


def _is_of(fault: Fault, guarantee: str) -> bool:
    # A scenario's own checks are about its tools: what becomes of one call beside the others.
    return fault.guarantee == guarantee or (guarantee == "G8" and fault.guarantee.startswith("scenario check"))
