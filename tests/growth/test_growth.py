"""Work is counted, not timed: what twice the calls, turns, deltas or bytes cost is twice as much, on every backend.

Counted are scheduler steps, tasks started, function calls, models built or copied, and the most bytes held at once.
Each work is done at n, 2n and 4n; a linear cost grows twice as much in the second doubling as in the first, a
quadratic one four times as much.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from cubepi_anyio import Agent, AgentEvent, BaseProvider, MessageDraft, MessageStream, RunLimits, tool
from cubepi_anyio.testing.sweeps.asyncio_steps import run_on_asyncio
from cubepi_anyio.testing.sweeps.steps import StepWatch

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(anyio_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Without asyncio's debug mode, which keeps the stack of whoever schedules a callback: work, but none of ours."""
    name, options = anyio_backend
    return name, {option: value for option, value in options.items() if option != "debug"}


Say = Callable[[MessageDraft, int], Awaitable[None]]
Work = Callable[[int], Awaitable[None]]
Meter = Callable[[Callable[[], Awaitable[None]]], Awaitable[dict[str, float]]]


class Saying(BaseProvider):
    """A model whose answer number i is written by ``say``."""

    def __init__(self, say: Say) -> None:
        super().__init__(provider_id="saying")
        self._say = say
        self._asked = 0

    async def stream(self, model: Any, messages: Any, **options: Any) -> MessageStream:
        number = self._asked
        self._asked += 1

        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream, model)
            await self._say(draft, number)
            await draft.done()

        return MessageStream(produce)


@tool
async def noop(x: int = 0, s: str = "") -> str:
    """Do nothing."""
    return "ok"


async def run_agent(say: Say, listener: Callable[[AgentEvent], object] | None = None) -> None:
    agent = Agent(model=Saying(say).model("m"), tools=[noop], limits=RunLimits(max_turns=None))
    if listener is not None:
        agent.subscribe(listener)
    (await agent.prompt("go")).raise_for_error()


async def calls(size: int) -> None:
    """One message with ``size`` calls."""

    async def say(draft: MessageDraft, number: int) -> None:
        for each in range(size if number == 0 else 0):
            await draft.tool_call(f"c{each}", "noop", {"x": each})
        await draft.text("done" if number else "")

    await run_agent(say)


async def turns(size: int) -> None:
    """``size`` messages with one call each."""

    async def say(draft: MessageDraft, number: int) -> None:
        if number < size:
            await draft.tool_call(f"c{number}", "noop", {"x": 1})
        else:
            await draft.text("done")

    await run_agent(say)


async def deltas(size: int) -> None:
    """One message of ``size`` deltas, each heard and none kept."""
    heard = 0

    def listener(event: AgentEvent) -> None:
        nonlocal heard
        if event.type == "message_update" and event.stream_event.type == "text_delta":
            heard += 1

    async def say(draft: MessageDraft, number: int) -> None:
        for each in range(size):
            await draft.text(f"{each % 1000:03d} ")

    await run_agent(say, listener)
    assert heard == size


async def slow_listener(size: int) -> None:
    """The same to a listener that lets the model run ahead as far as it may."""
    heard = 0

    async def listener(event: AgentEvent) -> None:
        nonlocal heard
        if event.type == "message_update" and event.stream_event.type == "text_delta":
            heard += 1
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()

    async def say(draft: MessageDraft, number: int) -> None:
        for each in range(size):
            await draft.text(f"{each % 1000:03d} ")

    await run_agent(say, listener)
    assert heard == size


async def arguments(size: int) -> None:
    """One call whose arguments arrive in ``size`` deltas of sixteen characters."""

    async def say(draft: MessageDraft, number: int) -> None:
        if number:
            return await draft.text("done")
        call = await draft.tool_call("c0", "noop")
        await draft.arguments(call, '{"x": 1, "s": "')
        for _ in range(size):
            await draft.arguments(call, "abcdefghijklmnop")
        await draft.arguments(call, '"}')
        return await draft.end_block(call)

    await run_agent(say)


async def blocks(size: int) -> None:
    """One message of ``size`` blocks of text and thinking by turns."""

    async def say(draft: MessageDraft, number: int) -> None:
        for each in range(size):
            await (draft.text("said") if each % 2 else draft.thinking("thought"))

    await run_agent(say)


SIZES: dict[Work, int] = {calls: 16, turns: 8, deltas: 256, slow_listener: 256, arguments: 256, blocks: 32}


class _Started(dict[object, str]):
    """The living tasks of a watch, and how many there ever were."""

    count = 0

    def __setitem__(self, key: object, value: str) -> None:
        self.count += 1
        super().__setitem__(key, value)


async def steps_and_tasks(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """Scheduler steps of the work and of all tasks it starts, and how many those are."""
    watch = StepWatch(None)
    watch.living = started = _Started()
    if sys.modules.get("trio") is not None and _on_trio():
        from cubepi_anyio.testing.sweeps.trio_steps import run_on_trio  # noqa: PLC0415 - trio is optional

        ended = await run_on_trio(work, watch, 25)
    else:
        ended = await run_on_asyncio(work, watch, 25)
    assert ended
    return {"scheduler steps": watch.count, "tasks started": started.count}


def _on_trio() -> bool:
    import trio  # noqa: PLC0415 - trio is optional

    return trio.lowlevel.in_trio_run()


async def function_calls(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """Calls of functions, Python's and C's, in this thread while the work goes on."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        await work()
    finally:
        sys.setprofile(former)
        gc.enable()
    return {"function calls": count}


@contextmanager
def counted(owner: Any, name: str, into: list[int]) -> Generator[None, None, None]:
    former = getattr(owner, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        into[0] += 1
        return former(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counting)
        yield


async def models_built(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """Messages, blocks and other models built or copied."""
    built, copied = [0], [0]
    with counted(BaseModel, "__init__", built), counted(BaseModel, "model_copy", copied):
        await work()
    return {"models built": built[0], "models copied": copied[0]}


async def peak_bytes(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """The most bytes held at once."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        await work()
        return {"peak bytes": tracemalloc.get_traced_memory()[1] - before}
    finally:
        tracemalloc.stop()


METERS: tuple[Meter, ...] = (steps_and_tasks, function_calls, models_built, peak_bytes)


async def growth(meter: Meter, work: Work) -> dict[str, tuple[float, float]]:
    """What each figure grows by for one more unit of size, in the first doubling and in the second."""
    size = SIZES[work]
    await work(size)  # what is prepared once is prepared now
    small, middle, large = [await meter(lambda n=n: work(n)) for n in (size, 2 * size, 4 * size)]
    return {name: ((middle[name] - small[name]) / size, (large[name] - middle[name]) / (2 * size)) for name in small}


@pytest.mark.parametrize("meter", METERS, ids=lambda meter: meter.__name__)
@pytest.mark.parametrize("work", SIZES, ids=lambda work: work.__name__)
async def test_work_grows_no_faster_than_what_is_asked(work: Work, meter: Meter) -> None:
    for name, (first, second) in (await growth(meter, work)).items():
        # A tenth of tolerance, and half a unit for what happens once in so many units; bytes come in growing blocks.
        allowed = 1.5 * first + 64 if name == "peak bytes" else 1.1 * first + 0.5
        assert second <= allowed, f"{name}: {first:.2f} a unit at first, then {second:.2f}"


async def test_a_delta_builds_and_copies_no_message() -> None:
    for work in (deltas, slow_listener, arguments):
        assert await growth(models_built, work) == {"models built": (0, 0), "models copied": (0, 0)}


async def test_a_delta_starts_no_task_and_is_heard_without_a_step_of_its_own() -> None:
    for work in (deltas, arguments):
        found = await growth(steps_and_tasks, work)
        assert found["tasks started"] == (0, 0)
        assert max(found["scheduler steps"]) <= 1 / 16, found


async def test_a_parallel_call_starts_one_task_and_a_turn_of_a_single_call_none() -> None:
    """All answers of a run are produced in one task."""
    assert (await growth(steps_and_tasks, calls))["tasks started"] == (1, 1)
    assert (await growth(steps_and_tasks, turns))["tasks started"] == (0, 0)


async def test_a_call_that_has_ended_keeps_no_scope_and_no_parameters_until_its_batch_is_over() -> None:
    """The one scope of a call is that of its task, which is gone when the call is."""
    count, ran, scopes, parameters = 40, 0, list[int](), list[int]()

    def alive(name: str) -> int:
        return sum(type(thing).__name__ == name for thing in gc.get_objects())

    @tool
    async def look() -> str:
        """Count what there is."""
        nonlocal ran
        ran += 1
        if ran in (1, count):
            scopes.append(alive("CancelScope"))
            parameters.append(alive("LookArgs"))
        return "seen"

    async def say(draft: MessageDraft, number: int) -> None:
        for each in range(count if number == 0 else 0):
            await draft.tool_call(f"c{each}", "look", {})
        await draft.text("done" if number else "")

    gc.collect()
    before = alive("CancelScope")
    agent = Agent(model=Saying(say).model("m"), tools=[look])
    (await agent.prompt("go")).raise_for_error()
    assert parameters == [1, 1]
    # trio has two objects for a scope, its own and anyio's.
    each_has = 2 if type(anyio.CancelScope()).__module__.endswith("_trio") else 1
    assert scopes[0] - scopes[1] >= each_has * (count - 2), "the scopes of the calls that have ended are still there"
    assert scopes[0] - before <= each_has * count + 16


async def test_a_slow_listener_costs_memory_for_the_text_and_not_for_each_delta() -> None:
    used: list[float] = []
    for size in (2_000, 8_000):
        found = await peak_bytes(lambda size=size: slow_listener(size))
        used.append(found["peak bytes"])
    text_bytes = 4 * (8_000 - 2_000)
    assert used[1] - used[0] <= 3 * text_bytes


async def test_the_meters_see_a_quadratic_cost() -> None:
    kept: list[bytes] = []

    async def quadratic(size: int) -> None:
        kept.clear()
        for number in range(size):
            kept.append(bytes(16 * number))
            for _ in range(number):
                abs(number)

    SIZES[quadratic] = 64
    try:
        for meter, name in ((function_calls, "function calls"), (peak_bytes, "peak bytes")):
            first, second = (await growth(meter, quadratic))[name]
            assert second > 1.8 * first
    finally:
        del SIZES[quadratic]
