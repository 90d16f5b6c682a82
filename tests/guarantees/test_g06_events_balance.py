"""G6: Events balance and have one order; `agent_end` is last, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cubepi_anyio import AgentEvent
from cubepi_anyio.testing import EventOrder, Scenario

from .scenarios import parallel_tools, sequential_tools
from .sweeps import MakeScenario, faults_of, over_all_scenarios, swept

pytestmark = pytest.mark.anyio


@over_all_scenarios
async def test_every_ending_balances_the_events(make: MakeScenario, anyio_backend: object) -> None:
    assert faults_of(await swept(make, anyio_backend), "G6") == []


async def test_all_starts_of_a_parallel_batch_come_first_in_the_order_of_the_calls() -> None:
    seen = await events_of(parallel_tools())
    first_end = seen.index("tool_execution_end")
    assert seen[:first_end].count("tool_execution_start") == 3
    assert seen.index("tool_execution_update") > [i for i, t in enumerate(seen) if t == "tool_execution_start"][2]


async def test_a_sequential_batch_goes_call_by_call() -> None:
    seen = [t for t in await events_of(sequential_tools()) if t in ("tool_execution_start", "tool_execution_end")]
    assert seen == ["tool_execution_start", "tool_execution_end"] * 3


async def test_a_run_that_a_listener_ends_with_an_error_still_balances() -> None:
    total = len(await events_of(parallel_tools()))
    for number in range(1, total + 1):
        scenario = parallel_tools()
        order = EventOrder()
        scenario.agent.subscribe(order.hear)
        scenario.agent.subscribe(failing_at(number))
        with pytest.raises(LookupError, match="a bug"):
            await scenario.agent.prompt("Go.")
        assert [*order.faults, *order.missing()] == [], number


def failing_at(number: int) -> Callable[[AgentEvent], None]:
    heard: list[AgentEvent] = []

    def hear(event: AgentEvent) -> None:
        heard.append(event)
        if len(heard) == number:
            raise LookupError("a bug of this listener")

    return hear


async def events_of(scenario: Scenario) -> list[str]:
    seen: list[str] = []
    scenario.agent.subscribe(lambda event: seen.append(event.type))
    await scenario.agent.prompt("Go.")
    return seen
