"""The suite's own promises: a test that hangs fails on every backend, and the tests after it run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parent

TESTS_OF_TESTS = """
import socket

import anyio
import pytest

pytestmark = pytest.mark.anyio

@pytest.mark.deadline(0.05)
async def test_that_waits_for_ever():
    await anyio.sleep_forever()

async def test_that_comes_after(anyio_backend_name):
    await anyio.lowlevel.checkpoint()

@pytest.mark.virtual_clock
async def test_of_an_hour():
    began = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - began == 3600

@pytest.mark.virtual_clock
async def test_that_waits_for_ever_on_the_virtual_clock():
    await anyio.sleep_forever()

async def test_of_the_outside_world():
    with pytest.raises(PermissionError, match="this machine only"):
        socket.create_connection(("192.0.2.1", 80))
"""


def run_suite(folder: Path, text: str, **variables: str) -> dict[str, str]:
    """Run ``text`` as a test file under this suite's own conftest; the outcome of each test by its name."""
    (folder / "conftest.py").write_bytes((TESTS / "conftest.py").read_bytes())
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-c",
        str(TESTS.parent / "pyproject.toml"),
        "--rootdir",
        str(folder),
    ]
    ours = ("PYTEST_", "CUBEPI_TEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | variables
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return dict(re.findall(r"::(\S+) (PASSED|FAILED|SKIPPED|ERROR)", done.stdout))


def test_a_hanging_test_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    outcomes = run_suite(tmp_path, TESTS_OF_TESTS)
    uvloop, trio = find_spec("uvloop") is not None, find_spec("trio") is not None
    assert outcomes == {
        **{
            f"{name}[{backend}]": outcome if installed else "SKIPPED"
            for name, outcome in (
                ("test_that_waits_for_ever", "FAILED"),
                ("test_that_comes_after", "PASSED"),
                ("test_of_the_outside_world", "PASSED"),
            )
            for backend, installed in (("asyncio", True), ("uvloop", uvloop), ("trio", trio))
        },
        "test_of_an_hour[trio-virtual]": "PASSED" if trio else "SKIPPED",
        "test_that_waits_for_ever_on_the_virtual_clock[trio-virtual]": "FAILED" if trio else "SKIPPED",
    }


TEST_OF_EAGER_TASKS = """
import asyncio

import pytest

pytestmark = pytest.mark.anyio

async def test_a_task_runs_where_it_is_made():
    ran = []

    async def run():
        ran.append(True)

    task = asyncio.create_task(run())
    began = bool(ran)
    await task
    assert began
"""


def test_eager_tasks_are_one_more_backend_where_they_are_asked_for(tmp_path: Path) -> None:
    name = "test_a_task_runs_where_it_is_made"
    outcomes = run_suite(tmp_path, TEST_OF_EAGER_TASKS, CUBEPI_TEST_EAGER="1")
    assert outcomes[f"{name}[asyncio+eager]"] == ("PASSED" if sys.version_info >= (3, 12) else "SKIPPED")
    assert outcomes[f"{name}[asyncio]"] == "FAILED"
    assert f"{name}[asyncio+eager]" not in run_suite(tmp_path, TEST_OF_EAGER_TASKS)


def test_what_make_test_leaves_out_is_run_by_a_stage_of_ci() -> None:
    left_out = re.findall(r"^MARKS := (.*)$", (TESTS.parent / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    run_elsewhere = re.findall(r" -m '([^']*)'", (TESTS.parent / ".ci" / "run").read_text(encoding="utf-8"))
    assert left_out == ["not long and not servers and not oracle"]
    assert set(run_elsewhere) == {"long", "servers or oracle"}
