"""``KeyboardInterrupt`` and ``SystemExit``: the record is completed, then they leave as themselves."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentEvent
from tests.conftest import needs_trio
from tests.support.agents import (
    NoParams,
    assert_well_ended,
    bench,
    calling,
    label,
    running_tasks,
    saying,
    sleeping,
    tool_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]

EXITS = [KeyboardInterrupt, SystemExit]


def leaving(exit_class: type[BaseException], *, in_thread: bool = False, **options: Any) -> Any:
    async def leave(tool_call_id: str, params: NoParams) -> str:
        raise exit_class("enough")

    def leave_from_thread(tool_call_id: str, params: NoParams) -> str:
        raise exit_class("enough")

    return tool_of("leave", leave_from_thread if in_thread else leave, **options)


@pytest.mark.parametrize("exit_class", EXITS)
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("names", [["leave"], ["say", "leave", "sleep"]])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_raised_by_a_tool(exit_class: type[BaseException], in_thread: bool, names: list[str], mode: Any) -> None:
    before = running_tasks()
    tools = [leaving(exit_class, in_thread=in_thread), saying("say"), sleeping("sleep")]
    made = bench(calling(*names), "never", tools=tools, tool_execution=mode)
    with pytest.raises(exit_class) as caught:
        await made.agent.prompt("hi")
    assert (type(caught.value), caught.value.args) == (exit_class, ("enough",))
    assert running_tasks() == before
    assert len(made.results) == len(names)
    assert made.labels[-1] == "agent_end:aborted"
    assert made.provider.call_count == 1
    await assert_well_ended(made)


async def test_raised_by_a_cooperative_tool() -> None:
    made = bench(calling("leave"), "never", tools=[leaving(SystemExit, cancellation="cooperative")])
    with pytest.raises(SystemExit):
        await made.agent.prompt("hi")
    await assert_well_ended(made)


@pytest.mark.parametrize("exit_class", EXITS)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "agent_start",
        "message_update:text_delta",
        "tool_execution_update:c1",
        "tool_execution_end:c2:finished",
        "turn_end",
        "agent_end:completed",
    ],
)
async def test_raised_by_a_listener(exit_class: type[BaseException], is_async: bool, name: str) -> None:
    async def report(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        on_update("half")
        await anyio.lowlevel.checkpoint()
        return "ok"

    tools = [tool_of("report", report), saying("say")]
    made = bench(calling("report", "say", text="look"), "done", tools=tools)

    def leave(event: AgentEvent) -> None:
        if label(event) == name:
            raise exit_class("enough")

    async def leave_async(event: AgentEvent) -> None:
        leave(event)

    unsubscribe = made.agent.subscribe(leave_async if is_async else leave)
    with pytest.raises(exit_class) as caught:
        await made.agent.prompt("hi")
    assert type(caught.value) is exit_class
    # A run that has said how it ended stays with it.
    assert made.agent.state.last_outcome == ("completed" if name == "agent_end:completed" else "aborted")
    unsubscribe()
    await assert_well_ended(made)


@pytest.mark.parametrize("exit_class", EXITS)
@pytest.mark.parametrize("names", [["leave"], ["leave", "sleep"]])
async def test_it_ends_the_block_of_a_streamed_run(exit_class: type[BaseException], names: list[str]) -> None:
    before = running_tasks()
    made = bench(calling(*names), "never", tools=[leaving(exit_class), sleeping("sleep")])
    with pytest.raises(exit_class):
        async with made.agent.stream("hi"):
            await anyio.sleep_forever()
    assert running_tasks() == before
    await assert_well_ended(made)


@pytest.mark.parametrize("exit_class", EXITS)
async def test_it_reaches_the_consumer_of_a_streamed_run(exit_class: type[BaseException]) -> None:
    made = bench(calling("leave"), "never", tools=[leaving(exit_class)])
    with pytest.raises(exit_class):
        async with made.agent.stream("hi") as run:
            async for _ in run:
                pass
    await assert_well_ended(made)


SCRIPT = """
    import json
    import signal
    import sys
    import threading

    import anyio

    from cubepi_anyio import Agent, AgentTool, FauxProvider, faux_assistant_message, faux_tool_call, tool_cycle_faults
    from pydantic import BaseModel

    class Nothing(BaseModel):
        pass

    async def sleep(tool_call_id, params):
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep(20)

    provider = FauxProvider()
    calls = [faux_tool_call("sleep", {}, id=f"c{n}") for n in range(int(sys.argv[2]))]
    provider.set_responses([faux_assistant_message(calls)])
    agent = Agent(model=provider.model("m"), tools=[AgentTool("sleep", "sleeps", Nothing, sleep)])
    events = []
    agent.subscribe(lambda event: events.append(event.type))
    try:
        anyio.run(agent.prompt, "hi", backend=sys.argv[1])
    except KeyboardInterrupt:
        print(json.dumps([tool_cycle_faults(agent.state.messages), len(agent.state.messages), events[-1]]))
        print([thread.name for thread in threading.enumerate() if not thread.daemon])
        raise
"""


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs_trio)])
@pytest.mark.parametrize("count", ["1", "3"])
def test_one_interrupt_ends_the_process_with_a_complete_record(backend: str, count: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), backend, count],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert done.stdout.splitlines() == [f'[[], {2 + int(count)}, "agent_end"]', "['MainThread']"], done.stderr
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert done.returncode in (130, -2)
