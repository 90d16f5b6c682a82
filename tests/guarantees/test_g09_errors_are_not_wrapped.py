"""G9: No `ExceptionGroup` for a single error; a group raised by the user's own code arrives as it was raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import Agent, AgentEvent, MessageStream, ToolResultMessage

from .scenarios import parallel_tools

pytestmark = pytest.mark.anyio

PLACES = [
    "agent_start",
    "message_update",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "agent_end",
]


class Bug(Exception):
    """An error of the user's own code."""


def raising_at(place: str, error: BaseException, *, is_async: bool) -> Callable[[AgentEvent], Any]:
    """A listener that raises ``error`` at the first event of a type."""
    raised: list[str] = []

    def hear(event: AgentEvent) -> None:
        if event.type == place and not raised:
            raised.append(place)
            raise error

    async def hear_async(event: AgentEvent) -> None:
        await checkpoint()
        hear(event)

    return hear_async if is_async else hear


async def prompt(agent: Agent) -> None:
    await agent.prompt("Go.")


async def stream(agent: Agent) -> None:
    async with agent.stream("Go.") as run:
        async for _ in run:
            pass
        await run.result()


@pytest.mark.parametrize("call", [prompt, stream])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("place", PLACES)
async def test_an_error_of_a_listener_arrives_bare(place: str, is_async: bool, call: Callable[[Agent], Any]) -> None:
    scenario = parallel_tools()
    error = Bug(place)
    scenario.agent.subscribe(raising_at(place, error, is_async=is_async))
    with pytest.raises(Bug) as caught:
        await call(scenario.agent)
    assert caught.value is error


@pytest.mark.parametrize("call", [prompt, stream])
@pytest.mark.parametrize("place", PLACES)
async def test_a_group_of_the_users_own_arrives_as_it_was_raised(place: str, call: Callable[[Agent], Any]) -> None:
    scenario = parallel_tools()
    group = ExceptionGroup("the user's own", [Bug("one"), Bug("two")])
    scenario.agent.subscribe(raising_at(place, group, is_async=False))
    with pytest.raises(ExceptionGroup) as caught:
        await call(scenario.agent)
    assert caught.value is group


@pytest.mark.parametrize("error", [Bug("alone"), ExceptionGroup("the user's own", [Bug("one")])], ids=["bare", "group"])
async def test_an_error_of_the_block_that_reads_a_run_arrives_as_it_is(error: Exception) -> None:
    scenario = parallel_tools()
    with pytest.raises(type(error)) as caught:
        async with scenario.agent.stream("Go.") as run:
            async for _ in run:
                raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [Bug("alone"), ExceptionGroup("the user's own", [Bug("one")])], ids=["bare", "group"])
async def test_an_error_of_the_block_that_reads_a_message_arrives_as_it_is(error: Exception) -> None:
    async def produce() -> None:
        await anyio.sleep_forever()

    with pytest.raises(type(error)) as caught:
        async with MessageStream(produce):
            raise error
    assert caught.value is error


async def test_the_errors_of_a_tools_own_group_are_what_the_model_reads() -> None:
    scenario = parallel_tools()
    result = await scenario.agent.prompt("Go.")
    texts = [message.text for message in result.messages if isinstance(message, ToolResultMessage) and message.is_error]
    assert texts == ["this tool always fails"]


async def test_a_failing_surrounding_is_one_error_and_no_cancellation() -> None:
    """The run is cancelled because a task beside it fails: only that task's error is in the caller's own group."""

    async def fail() -> None:
        await checkpoint()
        raise Bug("beside the run")

    scenario = parallel_tools()
    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            tasks.start_soon(scenario.agent.prompt, "Go.")
    assert [str(error) for error in caught.value.exceptions] == ["beside the run"]
