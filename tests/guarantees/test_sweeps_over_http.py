"""G1 to G8 with a model over HTTP: after each ending no request is left, and the vendor takes the next one."""

from __future__ import annotations

import asyncio

import pytest

from cubepi_anyio.testing import endings_here, sweep

from .http_scenarios import served
from .scenarios import THOROUGH, sniffed_trio

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(3600 if THOROUGH else 120)]


@pytest.mark.parametrize("number", range(5))
async def test_every_ending_lets_go_of_the_model_and_leaves_what_it_takes(number: int) -> None:
    """A socket takes no part in the order of steps, so each sweep ends the runs elsewhere."""
    if number >= len(endings_here()):
        pytest.skip("no more endings on this backend")
    if not sniffed_trio():
        asyncio.get_running_loop().set_debug(False)
    async with served() as make:
        stride = 1 if THOROUGH else 7
        report = await sweep(make, ending=endings_here()[number], start=1 + number, stride=stride)
    report.raise_for_faults()
    assert report.endings > 5
    assert {"waiting", "streaming"} <= report.phases.keys()
