"""G13: No `asyncio` or `trio` import in the package; all of it works with asyncio's task functions removed, under trio."""  # noqa: E501

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.source import package_root
from tests.architecture.test_no_backend_imports import backend_imports

ROOT = Path(__file__).parents[2]

SETUP_TRIO = """
import asyncio
for name in ("create_task", "ensure_future", "gather", "wait", "wait_for", "as_completed", "shield", "sleep", "timeout",
             "timeout_at", "to_thread", "run", "run_coroutine_threadsafe", "new_event_loop", "get_running_loop",
             "get_event_loop", "Task", "TaskGroup", "Runner", "Queue", "Event", "Lock", "Semaphore", "Condition"):
    if hasattr(asyncio, name):
        delattr(asyncio, name)
"""

SETUP_ASYNCIO = """
import sys
sys.modules["trio"] = None
"""

RUN_ALL = """
import anyio
from tests.guarantees.scenarios import SCENARIOS, thread_tools

async def main():
    for make in (*SCENARIOS, thread_tools):
        scenario = make()
        result = await scenario.run(scenario.agent)
        assert result.outcome == scenario.outcome, make
        assert (await scenario.prompt_again()).outcome == "completed", make
        with anyio.CancelScope() as scope:
            scenario = make()
            scenario.agent.subscribe(lambda event: scope.cancel() if event.type == "message_update" else None)
            await scenario.run(scenario.agent)
        assert scope.cancelled_caught, make
        print(make.__name__)

anyio.run(main, backend={backend!r})
"""


def run_all(setup: str, backend: str) -> list[str]:
    """Run every scenario in a child process and return the names of those that worked."""
    code = setup + RUN_ALL.format(backend=backend)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")
def test_all_of_it_works_under_trio_without_asyncios_task_functions() -> None:
    assert {"parallel_tools", "streamed", "nested_agents", "thread_tools"} <= set(run_all(SETUP_TRIO, "trio"))


def test_all_of_it_works_under_asyncio_without_trio() -> None:
    assert {"parallel_tools", "streamed", "nested_agents", "thread_tools"} <= set(run_all(SETUP_ASYNCIO, "asyncio"))


def test_the_package_imports_neither() -> None:
    assert backend_imports(package_root()) == []
