from __future__ import annotations

import anyio
import pytest

from cubepi_anyio import Agent, AgentEvent, AgentTool, FauxProvider, FauxResponse, faux_tool_call, tool
from cubepi_anyio.cli.demo.timeline import Bar, Mark, TimelineRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@tool
async def quick() -> str:
    """Take one second."""
    await anyio.sleep(1)
    return "done"


@tool
async def broken() -> str:
    """Fail after two seconds."""
    await anyio.sleep(2)
    raise ValueError("broken")


@tool(timeout=3)
async def slow() -> str:
    """Take for ever, of which three seconds are allowed."""
    await anyio.sleep_forever()
    return "never"


def watched(provider: FauxProvider, *tools: AgentTool) -> tuple[Agent, TimelineRecorder]:
    agent = Agent(model=provider.model("m"), tools=tools)
    recorder = TimelineRecorder()

    def listen(event: AgentEvent) -> None:
        recorder.record(event, anyio.current_time())

    agent.subscribe(listen)
    return agent, recorder


def times(bar: Bar) -> tuple[str, float, float | None, str]:
    ended = None if bar.ended_seconds is None else round(bar.ended_seconds, 6)
    return bar.name, round(bar.began_seconds, 6), ended, bar.ending


async def test_each_answer_and_call_has_a_bar_with_its_times_and_its_ending() -> None:
    provider = FauxProvider(tokens_per_second=1, token_size_min=4, token_size_max=4)
    provider.set_responses([[faux_tool_call("quick"), faux_tool_call("broken"), faux_tool_call("slow")], "eight by"])
    agent, recorder = watched(provider, quick, broken, slow)
    await agent.prompt("go")
    bars = recorder.timeline.bars
    asked = bars[0].ended_seconds
    assert asked == 3  # three calls, each with one delta of arguments
    assert [times(bar) for bar in bars] == [
        ("model", 0, 3, "finished"),
        ("quick", 3, 4, "finished"),
        ("broken", 3, 5, "failed"),
        ("slow", 3, 6, "timed_out"),
        ("model", 6, 8, "finished"),
    ]
    assert [bar.turn for bar in bars] == [1, 1, 1, 1, 2]
    assert recorder.timeline.total_seconds == 8
    assert recorder.timeline.outcome == "completed"


async def test_what_an_abort_ends_is_cancelled_at_that_time() -> None:
    provider = FauxProvider()
    provider.set_responses([[faux_tool_call("quick"), faux_tool_call("slow")]])
    agent, recorder = watched(provider, quick, slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "go")
        await anyio.sleep(1.5)
        recorder.mark("stop", anyio.current_time())
        agent.abort()
    assert [times(bar) for bar in recorder.timeline.bars] == [
        ("model", 0, 0, "finished"),
        ("quick", 0, 1, "finished"),
        ("slow", 0, 1.5, "cancelled"),
    ]
    assert recorder.timeline.marks == [Mark(1.5, "stop")]
    assert recorder.timeline.outcome == "aborted"


@pytest.mark.parametrize(
    "response", [FauxResponse("text", stall_before_start=True), FauxResponse("text", stall_after_deltas=1)]
)
async def test_an_answer_that_was_cut_off_is_cancelled(response: FauxResponse) -> None:
    provider = FauxProvider()
    provider.set_responses([response])
    agent, recorder = watched(provider)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "go")
        await anyio.sleep(2)
        agent.abort()
    (bar,) = recorder.timeline.bars
    assert times(bar) == ("model", 0, 2, "cancelled")
    assert bar.first_seconds == (None if response.stall_before_start else 0)


async def test_an_answer_that_fails_has_failed() -> None:
    provider = FauxProvider()
    provider.set_responses([ValueError("no")])
    agent, recorder = watched(provider)
    await agent.prompt("go")
    assert [times(bar) for bar in recorder.timeline.bars] == [("model", 0, 0, "failed")]
    assert recorder.timeline.outcome == "error"
