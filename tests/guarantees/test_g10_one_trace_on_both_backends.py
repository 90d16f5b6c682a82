"""G10: The same script gives the same trace on asyncio and trio, up to the order of calls that end in the same scheduler step (trio starts tasks in random order; events and results do not depend on it)."""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentEvent, Message
from cubepi_anyio.testing import Scenario

from .scenarios import SCENARIOS

pytestmark = pytest.mark.anyio

_traces: dict[str, Any] = {}
"""The first backend's trace of each scenario, to which those of the others are compared."""

_UNORDERED = ("tool_execution_update", "tool_execution_end")


def trace_of(events: list[AgentEvent]) -> list[Any]:
    """The events as plain values; updates and ends between two others are sorted: their order is free."""
    trace: list[Any] = []
    between: list[tuple[str, ...]] = []
    for event in events:
        if event.type in _UNORDERED:
            between.append(_words(event))
            continue
        trace += [*sorted(between), _words(event)]
        between = []
    return trace


def _words(event: Any) -> tuple[str, ...]:
    if event.type == "message_update":
        step = event.stream_event
        return (event.type, step.type, str(step.content_index), str(step.delta))
    if event.type.startswith("message"):
        return (event.type, _said(event.message))
    detail = getattr(event, "partial_result", getattr(event, "ending", getattr(event, "outcome", "")))
    return (event.type, getattr(event, "tool_call_id", ""), str(detail))


def _said(message: Message) -> str:
    return repr(
        message.model_copy(
            update={"id": "", "run_id": "", "timestamp": None, "usage": None, "response_id": None}
            if message.role == "assistant"
            else {"id": "", "run_id": "", "timestamp": None}
        )
    )


async def traced(make: Callable[[], Scenario]) -> Any:
    """The events and the transcript of a run of the scenario that nobody ends."""
    scenario = make()
    events: list[AgentEvent] = []
    scenario.agent.subscribe(events.append)
    with anyio.fail_after(5):
        await scenario.run(scenario.agent)
    return trace_of(events), [_said(message) for message in scenario.agent.state.messages]


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
async def test_the_trace_is_that_of_the_other_backends(make: Callable[[], Scenario]) -> None:
    trace = await traced(make)
    assert len(trace[0]) > 5
    assert _traces.setdefault(make.__name__, trace) == trace


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
async def test_the_trace_is_the_same_again_and_again(make: Callable[[], Scenario]) -> None:
    first = await traced(make)
    for _ in range(5):
        assert await traced(make) == first
