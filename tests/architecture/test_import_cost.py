"""Importing the package is cheap, and loads neither the HTTP client nor an event loop that is not asked for.

Work is counted, because machines are noisy: the calls that an import makes, beside those of the two libraries it stands
on. What it takes of CPU time is measured by `benchmarks/bench_import.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

FLOOR = "import anyio; from pydantic import BaseModel"
MOST_WORK = 2.0 if sys.version_info < (3, 13) else 2.1
"""Times the calls of ``FLOOR``. 1.9 is 130 to 150 ms of CPU where ``FLOOR`` takes 75.

Python 3.13 makes a fiftieth more of them for us; from 3.14 on the annotations of each class are asked for by calls, a
twentieth of all.
"""
MOST_MODULES_OF_OTHERS = 45
"""Beyond those of ``FLOOR``; most are pydantic's. Files of our own cost by their work, which is counted above."""

MEASURE = """
import json, sys
calls = 0
def count(frame, event, arg):
    global calls
    calls += 1
sys.setprofile(count)
{statement}
sys.setprofile(None)
print(json.dumps([calls, sorted(sys.modules)]))
"""


def run_child(statement: str) -> tuple[int, set[str]]:
    """Calls and returns that ``statement`` makes in a new interpreter with warm caches, and the modules then loaded."""
    _in_a_child(statement)  # fills the caches
    calls, loaded = json.loads(_in_a_child(statement))
    return calls, set(loaded)


def _in_a_child(statement: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", MEASURE.format(statement=statement)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    ).stdout


def test_importing_the_package_costs_little() -> None:
    floor, floor_modules = run_child(FLOOR)
    calls, modules = run_child("import cubepi_anyio")
    assert calls <= MOST_WORK * floor, f"{calls / floor:.2f} times the calls of {FLOOR!r}"
    others = {name for name in modules - floor_modules if name.partition(".")[0] != "cubepi_anyio"}
    assert len(others) <= MOST_MODULES_OF_OTHERS, sorted(others)


def test_importing_the_package_loads_no_client_and_no_event_loop() -> None:
    _, loaded = run_child("import cubepi_anyio")
    assert "cubepi_anyio" in loaded
    assert loaded & {"httpx", "httpcore", "trio", "uvloop", "asyncio", "rich", "sqlite3"} == set()


def test_the_measurement_sees_an_expensive_import() -> None:
    cheap, _ = run_child("pass")
    expensive, _ = run_child("for number in range(10_000): abs(number)")
    assert expensive - cheap >= 20_000
