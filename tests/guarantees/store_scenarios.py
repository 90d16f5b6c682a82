"""The runs that are swept over with a thread in a SQL database, and over several of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from uuid import uuid4

from cubepi_anyio import Agent, Message
from cubepi_anyio.checkpointers import repaired
from cubepi_anyio.checkpointers.sql.store import SQLCheckpointer
from cubepi_anyio.testing import Scenario

from .scenarios import parallel_tools, sequential_tools, steered

STORED_SCENARIOS = (parallel_tools, sequential_tools, steered)
"""What is kept: results of one batch as they come, call by call, and messages said in between."""


def stored_in(store: SQLCheckpointer, make: Callable[[], Scenario]) -> Callable[[], Scenario]:
    """The scenario with each run on a new thread of an open store."""
    numbers, prefix = count(), uuid4().hex

    def make_stored() -> Scenario:
        return _on_thread(make(), store, f"{prefix}-{next(numbers)}")

    return make_stored


def _on_thread(scenario: Scenario, store: SQLCheckpointer, thread_id: str) -> Scenario:
    former, tools_left = scenario.agent, scenario.leftovers
    agent = Agent(
        model=former.state.model,
        tools=former.state.tools,
        tool_execution=former.tool_execution,
        checkpointer=store,
        thread_id=thread_id,
    )
    # What is said to the agent, and who says more of it, goes over to the one with the store.
    agent._steering, agent._follow_ups, agent._listeners = former._steering, former._follow_ups, former._listeners
    scenario.agent = agent

    async def stored() -> Sequence[Message]:
        record = await store.load(thread_id)
        return repaired(record.messages)[0] if record is not None else ()

    def leftovers() -> Sequence[str]:
        calls = [f"{store._calls} calls of the store"] if store._calls else []
        return [*(tools_left() if tools_left is not None else ()), *calls]

    scenario.stored, scenario.leftovers = stored, leftovers
    return scenario
