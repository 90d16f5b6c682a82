"""What users reported of the time after a run: errors that hide others, and objects that stay (topics c, i and l)."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, FauxResponse, RunAborted
from tests.support.agents import Bench, NoParams, bench, calling, label, sleeping, tool_of
from tests.tools.ways import end_call

ROUNDS = 50


class Owned:
    """Something big that a tool belongs to."""

    async def work(self, tool_call_id: str, params: NoParams) -> str:
        await anyio.lowlevel.checkpoint()
        return "worked"

    def plain_work(self, tool_call_id: str, params: NoParams) -> str:
        return "worked in a thread"


def working(owned: Owned, began: anyio.Event, *responses: Any) -> Bench:
    tools = [tool_of("work", owned.work), tool_of("plain", owned.plain_work), sleeping("sleep", began)]
    return bench(*responses, tools=tools, heard=False)


async def _one_run(way: str) -> list[weakref.ref[Any]]:
    """Make an agent, run it to this ending, and return weak references to all that belonged to it."""
    owned, began, seen = Owned(), anyio.Event(), list[weakref.ref[Any]]()
    if way == "completed":
        made = working(owned, began, calling("work", "plain"), "done")
        await made.agent.prompt("hi")
    elif way == "failed":
        made = working(owned, began, calling("work"), RuntimeError("the model is gone"))
        await made.agent.prompt("hi")
    elif way == "streamed and left":
        made = working(owned, began, FauxResponse("one two three"))
        async with made.agent.stream("hi") as run:
            async for event in run:
                if label(event).startswith("message_update"):
                    break
        seen.append(weakref.ref(run))
    else:
        made = working(owned, began, calling("work", "plain", "sleep"), "never")
        await end_call(way, made, began.wait)
    return [*seen, weakref.ref(owned), weakref.ref(made.agent), weakref.ref(made.provider)]


async def _collected() -> None:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        gc.collect()


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["completed", "failed", "abort", "scope", "streamed and left"])
async def test_an_agent_its_tools_and_its_run_are_collected_when_nobody_holds_them(way: str) -> None:
    """B102."""
    references = await _one_run(way)
    await _collected()
    assert [reference() for reference in references] == [None] * len(references)


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["completed", "abort", "scope", "streamed and left"])
async def test_many_runs_leave_no_more_objects_than_one(way: str) -> None:
    """B102."""
    for _ in range(3):
        await _one_run(way)
    await _collected()
    before = _library_objects()
    total = len(gc.get_objects())
    for _ in range(ROUNDS):
        await _one_run(way)
    await _collected()
    for _ in range(200):
        if _library_objects() == before:
            break
        await anyio.sleep(0.01)  # worker threads that were told to begin nothing have yet to hear of it
        gc.collect()
    assert _library_objects() == before
    # A run that stayed would be hundreds of objects; event loops keep a few cancelled timers until they are due.
    assert len(gc.get_objects()) - total < 30 * ROUNDS


@pytest.mark.anyio
async def test_many_runs_of_one_agent_keep_only_its_transcript() -> None:
    """B102."""
    made = bench(heard=False)
    made.provider.set_responses(["fine"] * (ROUNDS + 3))
    for _ in range(3):
        await made.agent.prompt("hi")
    await _collected()
    before = _library_objects()
    for _ in range(ROUNDS):
        await made.agent.prompt("hi")
    made.provider.calls.clear()
    await _collected()
    grown = _library_objects() - before
    messages = {"UserMessage": ROUNDS, "AssistantMessage": ROUNDS, "TextContent": 2 * ROUNDS, "Usage": ROUNDS}
    assert all(count <= messages.get(name, 2) for name, count in grown.items()), grown


def _library_objects() -> Counter[str]:
    """How many objects of the library's own classes there are."""
    return Counter(
        type(thing).__name__ for thing in gc.get_objects() if str(type(thing).__module__).startswith("cubepi_anyio")
    )


# --- outside of an event loop ----------------------------------------------------------------


def _main(made: list[Agent]) -> Any:
    async def main() -> Any:
        prompted = bench(RuntimeError("the model is gone"), heard=False)
        made.append(prompted.agent)
        return await prompted.agent.prompt("hi")

    return main


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_error_of_a_run_is_shown_as_itself_when_its_loop_is_gone(backend: str) -> None:
    """B39: nothing asks the event loop for its exception classes where there is none."""
    if backend == "trio":
        pytest.importorskip("trio")
    made: list[Agent] = []
    result = anyio.run(_main(made), backend=backend)
    assert result.outcome == "error"
    with pytest.raises(Exception, match="the model is gone") as caught:
        result.raise_for_error()
    assert type(caught.value) is not anyio.NoEventLoopError
    [agent] = made
    assert "the model is gone" in str(agent.state.error)
    assert agent.state.last_outcome == "error"
    agent.abort()
    assert agent.abort_tool_call("c1") is False
    agent.reset()
    assert agent.state.messages == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_is_made_and_dropped_outside_of_a_loop(backend: str) -> None:
    """B39."""
    if backend == "trio":
        pytest.importorskip("trio")
    made: list[Agent] = []
    anyio.run(_main(made), backend=backend)
    stream = made[0].stream("hi")
    with pytest.raises(ValueError, match="my own"):
        raise ValueError("my own")
    del stream
    gc.collect()
    with pytest.raises(RunAborted) as caught:
        raise RunAborted("lunch")
    assert "lunch" in str(caught.value)
