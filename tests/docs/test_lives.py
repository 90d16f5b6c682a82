"""The drawings of what a thing passes through show what it really passes through: each step is traced."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

import cubepi_anyio
from cubepi_anyio import Agent, AgentEvent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.providers.anthropic import AnthropicProvider

from .pages import DOCS

PACKAGE = Path(cubepi_anyio.__file__).parent


def read_lives() -> dict[str, Any]:
    spec = spec_from_file_location("lives", DOCS / "lives.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["lives"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.LIVES


LIVES = read_lives()

Trace = list[tuple[str, str, str]]


@contextmanager
def traced(life: str) -> Generator[Trace]:
    """The functions of a drawing that are begun in the block: file, name and task of each, in order."""
    of_interest = {(step.path, step.name) for step in LIVES[life].steps}
    trace: Trace = []
    begun: set[FrameType] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event != "call" or PACKAGE not in path.parents:
            return
        function = (str(path.relative_to(PACKAGE)), frame.f_code.co_qualname)
        if function in of_interest and frame not in begun:  # going on after a wait is no beginning
            begun.add(frame)
            task = anyio.get_current_task()
            trace.append((*function, f"{task.name} {task.id}"))  # an id alone is used again when its task has ended

    sys.setprofile(watch)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def steps_not_passed(life: str, trace: Trace) -> list[str]:
    """The steps of a drawing that the trace has not in their place: in this order, those of one lane in one task."""
    task_of_lane: dict[int, str] = {}
    missing: list[str] = []
    at = 0
    for step in LIVES[life].steps:
        for place in range(at, len(trace)):
            path, name, task = trace[place]
            if (path, name) == (step.path, step.name) and task == task_of_lane.get(step.lane, task):
                task_of_lane[step.lane] = task
                at = place + 1
                break
        else:
            missing.append(f"{step.path} {step.name}")
    if len(set(task_of_lane.values())) < len(LIVES[life].lanes):
        missing.append("a task for each lane")
    return missing


# --- the runs --------------------------------------------------------------------------------


@tool
async def fast() -> str:
    """Return at once."""
    return "fast"


@tool
async def slow() -> str:
    """Never return."""
    await anyio.sleep_forever()
    return ""


def deltas(*texts: str) -> list[bytes]:
    """An answer of Anthropic's, in chunks."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


async def a_delta(folder: Path) -> Trace:
    """The second of three deltas: the trace begins when the first is sent."""

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in deltas("One", "two", "three"):
                await checkpoint()
                if b'"One"' in chunk:
                    tracing.append(traced("life-of-a-delta"))
                    traces.append(tracing[0].__enter__())
                yield chunk

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())

    tracing: list[Any] = []
    traces: list[Trace] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        agent = Agent(model=AnthropicProvider(api_key="none", http_client=client).model("m"))
        agent.subscribe(lambda event: None)
        try:
            result = await agent.prompt("Go.")
        finally:
            tracing[0].__exit__(None, None, None)
    assert result.text == "Onetwothree"
    return traces[0]


async def a_call(folder: Path) -> Trace:
    provider = FauxProvider()
    provider.set_responses([[faux_tool_call("fast"), faux_tool_call("fast")], "Done."])
    agent = Agent(model=provider.model("m"), tools=[fast])
    agent.subscribe(lambda event: None)
    with traced("life-of-a-call") as trace:
        result = await agent.prompt("Go.")
    assert result.text == "Done."
    return trace


@asynccontextmanager
async def stuck_in_the_second_call(agent: Agent) -> AsyncGenerator[None]:
    """A run that has heard the end of its first call and waits for the second."""
    heard = anyio.Event()

    def listener(event: AgentEvent) -> None:
        if event.type == "tool_execution_end":
            heard.set()

    agent.subscribe(listener)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Go.")
        await heard.wait()
        await anyio.wait_all_tasks_blocked()
        yield
        tasks.cancel_scope.cancel()


async def an_abort(folder: Path) -> Trace:
    provider = FauxProvider()
    provider.set_responses([[faux_tool_call("fast"), faux_tool_call("slow")]])
    agent = Agent(model=provider.model("m"), tools=[fast, slow])
    with traced("life-of-an-abort") as trace:
        async with stuck_in_the_second_call(agent):
            agent.abort()
            await agent.wait_for_idle()
    assert agent.state.last_outcome == "aborted"
    return trace


async def a_stored_result(folder: Path) -> Trace:
    """The other process finds a copy of the thread as it was when the end of the first call had been heard."""
    provider = FauxProvider()
    provider.set_responses([[faux_tool_call("fast"), faux_tool_call("slow")], "Done."])
    model, tools = provider.model("m"), [fast, slow]
    async with SQLiteCheckpointer(folder / "threads.sqlite") as store:
        first = Agent(model=model, tools=tools, checkpointer=store, thread_id="first")
        second = Agent(model=model, tools=tools, checkpointer=store, thread_id="second")
        with traced("life-of-a-stored-result") as trace:
            async with stuck_in_the_second_call(first):
                await store.fork("first", "second")
                await second.prompt("Go on.")
    found = [message for message in second.state.messages if message.role == "tool_result"]
    assert [message.text for message in found][:1] == ["fast"]
    assert [message.is_error for message in found] == [False, True]
    return trace


RUNS: dict[str, Callable[[Path], Awaitable[Trace]]] = {
    "life-of-a-delta": a_delta,
    "life-of-a-call": a_call,
    "life-of-an-abort": an_abort,
    "life-of-a-stored-result": a_stored_result,
}


@pytest.mark.anyio
@pytest.mark.parametrize("life", RUNS)
async def test_a_thing_passes_through_what_its_drawing_shows(life: str, tmp_path: Path) -> None:
    assert steps_not_passed(life, await RUNS[life](tmp_path)) == []


def test_every_drawing_has_its_run_and_stands_on_the_page() -> None:
    page = (DOCS / "design" / "life.md").read_text(encoding="utf-8")
    assert set(RUNS) == set(LIVES)
    assert [name for name in LIVES if f'--8<-- "docs/pictures/{name}.svg"' not in page] == []
    assert [life.title for life in LIVES.values() if f"## {life.title}\n" not in page] == []


def test_a_step_that_is_not_passed_or_passed_too_early_is_found() -> None:
    steps = LIVES["life-of-a-call"].steps
    trace = [(step.path, step.name, str(step.lane)) for step in steps]
    assert steps_not_passed("life-of-a-call", trace) == []
    too_early = [trace[-1], *trace[:-1]]
    assert steps_not_passed("life-of-a-call", too_early) == [f"{steps[-1].path} {steps[-1].name}"]
    assert steps_not_passed("life-of-a-call", trace[:-1]) == [f"{steps[-1].path} {steps[-1].name}"]
    one_task = [(path, name, "0") for path, name, _ in trace]
    assert steps_not_passed("life-of-a-call", one_task) == ["a task for each lane"]
