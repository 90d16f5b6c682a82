"""Importing the package is cheap, and loads neither the HTTP client nor an event loop that is not asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

BUDGET_SECONDS = 0.150
FLOOR = "import anyio; from pydantic import BaseModel"
FLOOR_SECONDS = 0.075
"""What ``FLOOR`` costs on the machine for which the budget is meant; a machine that is slower, or busy, gets more."""
ROUNDS = 5

MEASURE = """
import json, sys, time
{statement}
print(json.dumps([time.process_time(), sorted(sys.modules)]))
"""


def run_child(statement: str) -> tuple[float, set[str]]:
    """CPU seconds from the start of a new interpreter to the end of ``statement``, and the modules then loaded."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(statement=statement)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    )
    seconds, loaded = json.loads(done.stdout)
    return seconds, set(loaded)


def import_seconds(*statements: str) -> list[float]:
    """CPU seconds that each statement costs beyond a bare interpreter.

    The least of a few rounds: whatever else the machine does only ever adds to a round. The rounds of the
    statements alternate, so that a busy moment meets all of them. The first round also fills the caches.
    """
    rounds = [[run_child(statement)[0] for statement in ("pass", *statements)] for _ in range(ROUNDS)]
    bare, *costs = (min(seconds) for seconds in zip(*rounds, strict=True))
    return [cost - bare for cost in costs]


def test_importing_the_package_costs_little() -> None:
    floor, seconds = import_seconds(FLOOR, "import cubepi_anyio")
    allowed = BUDGET_SECONDS * max(1.0, floor / FLOOR_SECONDS)
    assert seconds <= allowed, f"{seconds * 1000:.0f} ms of CPU, {allowed * 1000:.0f} ms allowed"


def test_importing_the_package_loads_no_client_and_no_event_loop() -> None:
    _, loaded = run_child("import cubepi_anyio")
    assert "cubepi_anyio" in loaded
    assert loaded & {"httpx", "httpcore", "trio", "uvloop", "asyncio", "rich", "sqlite3"} == set()


def test_the_measurement_sees_an_expensive_import() -> None:
    cheap, expensive = import_seconds("pass", "sum(range(10_000_000))")
    assert cheap < 0.05 < expensive
