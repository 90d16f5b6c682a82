"""The ways in which a call is ended from outside, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from cubepi_anyio import RunResult
from tests.support.agents import Bench

WAYS = ["abort", "scope", "abort_tool_call", "timeout"]
"""For a timeout the tool itself, or the limits of its agent, has to have one."""
ENDING = {"abort": "cancelled", "scope": "cancelled", "native": "cancelled"} | {
    "abort_tool_call": "aborted",
    "timeout": "timed_out",
}
"""How a call ends that is cancelled in each of the ways."""
REASON = "enough"


def timeout_for(way: str) -> float | None:
    """A tool's timeout in seconds: only for that way; on a busy machine it may pass before another one."""
    return 0.3 if way == "timeout" else None


async def end_call(way: str, made: Bench, reached: Callable[[], Awaitable[object]]) -> RunResult | None:
    """Prompt, end the call ``c1`` in this way when it is there, and return the result of the run, if it has one."""
    if way == "native":
        await _end_natively(made, reached)
        return None
    results: list[RunResult] = []
    async with anyio.create_task_group() as tasks:

        async def prompt() -> None:
            results.append(await made.agent.prompt("hi"))

        tasks.start_soon(prompt)
        await reached()
        if way == "abort":
            made.agent.abort(REASON)
        elif way == "scope":
            tasks.cancel_scope.cancel()
        elif way == "abort_tool_call":
            assert made.agent.abort_tool_call("c1", REASON)
        else:
            assert way == "timeout"
    assert bool(results) is (way != "scope")
    return results[0] if results else None


async def _end_natively(made: Bench, reached: Callable[[], Awaitable[object]]) -> None:
    task = asyncio.create_task(made.agent.prompt("hi"))
    await reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
