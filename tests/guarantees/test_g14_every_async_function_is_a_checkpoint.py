"""G14: Every public `async` function is a checkpoint; iterating a stream passes one at least every 64 events."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import cubepi_anyio
from cubepi_anyio import (
    Agent,
    AgentTool,
    AssistantMessage,
    FauxProvider,
    MessageDraft,
    MessageStream,
    ProviderResponse,
    StreamEvent,
    faux_tool_call,
    invoke_on_payload,
    invoke_on_response,
    run_agent_loop,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.concurrency import AbortSource
from cubepi_anyio.providers.model_call import ModelCall, StreamingModel, StreamOptions, TryBody
from cubepi_anyio.testing.sweeps.asyncio_steps import run_on_asyncio
from cubepi_anyio.testing.sweeps.steps import StepWatch
from cubepi_anyio.testing.sweeps.trio_steps import run_on_trio
from tests.hitl.restarts import YES, World, batch

from .scenarios import Nothing, agent_with, parallel_tools, sniffed_trio

pytestmark = pytest.mark.anyio

EVERY = 64


def faux(*responses: Any) -> FauxProvider:
    provider = FauxProvider()
    provider.set_responses(responses)
    return provider


async def prompt() -> None:
    await agent_with([], "Hello.").prompt("Go.")


async def prompt_with_tools() -> None:
    await parallel_tools().agent.prompt("Go.")


async def resume() -> None:
    agent = agent_with([], "Hello.")
    agent.steer("Go.")
    await agent.resume()


async def wait_for_idle() -> None:
    await agent_with([]).wait_for_idle()


async def stream_of_a_run() -> None:
    async with agent_with([], "Hello.").stream("Go.") as run:
        await run.result()


async def run_without_an_agent() -> None:
    await run_agent_loop("Go.", [], faux("Hello.").model("m"))


async def fork_once() -> None:
    await agent_with([], "Hello.").fork_once("Go.")


async def generate() -> None:
    await faux("Hello.").model("m").generate([])


async def provider_generate() -> None:
    provider = faux("Hello.")
    await provider.generate(provider.model("m").spec, [])


async def stream_of_a_model() -> None:
    await faux("Hello.").model("m").stream([])


async def try_with_a_hook_around_it() -> None:
    async def hook(model: StreamingModel, body: TryBody) -> None:
        await body()

    call = ModelCall(messages=[], options=StreamOptions(around_try=hook))
    await faux("Hello.").model("m").open(call)


async def signal_that_is_set() -> None:
    signal = AbortSource()
    signal.set()
    await signal.wait()


async def wait_stalled() -> None:
    await FauxProvider().wait_stalled(0)


async def leaving_a_stream() -> None:
    async with MessageStream():
        pass


async def result_of_a_stream_that_has_ended() -> None:
    stream = MessageStream()
    stream.push(StreamEvent("done", partial=AssistantMessage()))
    await stream.result()


async def iterating_over_a_stream_that_has_ended() -> None:
    stream = MessageStream()
    stream.push(StreamEvent("done", partial=AssistantMessage()))
    async for _ in stream:
        pass


async def sending_into_a_full_stream() -> None:
    stream = MessageStream()
    for number in range(EVERY + 1):
        if number == EVERY:
            with anyio.move_on_after(0.01):
                await stream.send(StreamEvent("text_delta", 0, "x"))
        else:
            stream.push(StreamEvent("text_delta", 0, "x"))
    await checkpoint()


FUNCTIONS = [
    prompt,
    prompt_with_tools,
    resume,
    wait_for_idle,
    stream_of_a_run,
    run_without_an_agent,
    fork_once,
    generate,
    provider_generate,
    stream_of_a_model,
    try_with_a_hook_around_it,
    signal_that_is_set,
    wait_stalled,
    leaving_a_stream,
    result_of_a_stream_that_has_ended,
    iterating_over_a_stream_that_has_ended,
    sending_into_a_full_stream,
]


async def counted(function: Callable[[], Awaitable[None]], watch: StepWatch) -> None:
    """Call ``function`` in a task of its own, and count that task's steps in ``watch.steps_after``."""
    watch.acted = True
    run = run_on_trio if sniffed_trio() else run_on_asyncio
    assert await run(function, watch, 5.0)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
async def test_each_lets_others_run(function: Callable[[], Awaitable[None]]) -> None:
    watch = StepWatch(None)
    await counted(function, watch)
    assert watch.steps_after >= 2  # a step ends where the task waits, and with the task


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f is not leaving_a_stream], ids=lambda f: f.__name__)
async def test_each_hears_of_a_cancellation(function: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await function()
        pytest.fail("the cancellation was not heard")
    assert scope.cancelled_caught


ON_STORED_THREADS: dict[str, Callable[[Agent, str], Awaitable[object]]] = {
    "Agent.fork": lambda agent, request_id: agent.fork("another"),
    "Agent.load": lambda agent, request_id: agent.load(),
    "Agent.respond": lambda agent, request_id: agent.respond(request_id, YES),
    "Agent.withdraw_requests": lambda agent, request_id: agent.withdraw_requests(),
}


@pytest.mark.parametrize("name", list(ON_STORED_THREADS))
async def test_each_that_works_on_a_stored_thread_hears_of_a_cancellation_and_lets_others_run(name: str) -> None:
    async with MemoryCheckpointer() as store:
        agent = World(store).process(batch("gated"), "done").agent
        [request] = (await agent.prompt("Go.")).requests

        async def call() -> None:
            await ON_STORED_THREADS[name](agent, request.id)

        with anyio.CancelScope() as scope:
            scope.cancel()
            await call()
            pytest.fail("the cancellation was not heard")
        assert scope.cancelled_caught
        watch = StepWatch(None)
        await counted(call, watch)
        assert watch.steps_after >= 2


async def test_iterating_over_what_is_there_passes_a_checkpoint_every_64_events() -> None:
    stream = MessageStream()
    for _ in range(10 * EVERY):
        stream.push(StreamEvent("text_delta", 0, "x"))
    stream.push(StreamEvent("done"))
    assert await longest_stretch(stream) <= EVERY


async def test_iterating_over_a_run_passes_a_checkpoint_every_64_events() -> None:
    async with agent_with([], "many words " * 200).stream("Go.") as run:
        assert await longest_stretch(run) <= EVERY


async def longest_stretch(events: Any) -> int:
    """How many events come at most in one step of the task that reads them."""
    watch = StepWatch(None)
    stretches: Counter[int] = Counter()

    async def read() -> None:
        async for _ in events:
            stretches[watch.steps_after] += 1

    await counted(read, watch)
    assert len(stretches) > 1
    return max(stretches.values())


async def test_a_producer_can_be_cancelled_at_least_every_64_deltas() -> None:
    written = 0

    async def produce(stream: MessageStream) -> None:
        nonlocal written
        draft = MessageDraft(stream)
        while True:
            await draft.text("x")
            written += 1

    async with MessageStream(produce) as stream:
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
    assert written <= 2 * EVERY


async def test_plain_hooks_cost_no_step_and_async_ones_are_theirs() -> None:
    """These two only call what they are given; they are a checkpoint if that is."""
    model = faux().model("m").spec
    assert await invoke_on_payload(None, {"a": 1}, model) == {"a": 1}
    assert await invoke_on_payload(lambda payload, model: {"b": 2}, {}, model) == {"b": 2}
    seen: list[int] = []

    async def look(response: ProviderResponse, model: object) -> None:
        await checkpoint()
        seen.append(response.status)

    await invoke_on_response(look, ProviderResponse(status=200), model)
    assert seen == [200]


def test_every_public_async_function_is_among_those_tested() -> None:
    """A new one has to be added above; those left out only call what they are given, or wait when there is need to."""
    known = {
        "Agent.fork_once",
        "Agent.prompt",
        "Agent.resume",
        "Agent.wait_for_idle",
        "RunStream.result",
        "AbortSignal.wait",
        "BaseProvider.generate",
        "BaseProvider.stream",
        "BoundModel.generate",
        "BoundModel.open",
        "BoundModel.stream",
        "FauxProvider.generate",
        "FauxProvider.stream",
        "FauxProvider.wait_stalled",
        "MessageStream.result",
        "Provider.stream",
        "run_agent_loop",
    }
    waits_when_needed = {"MessageStream.send", "MessageStream.wait_writable"}
    calls_what_it_is_given = {"invoke_on_payload", "invoke_on_response"}
    # Written by others: what stores and middleware promise stands in their own suites.
    protocols = ("MessageDraft.", "Checkpointer.", "Middleware.")
    found = {name for name in public_async_functions() if not name.startswith(protocols)}
    assert found - known - set(ON_STORED_THREADS) - waits_when_needed - calls_what_it_is_given == set()


def public_async_functions() -> set[str]:
    names: set[str] = set()
    for name, value in vars(cubepi_anyio).items():
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(value):
            names.add(name)
        if inspect.isclass(value):
            members = inspect.getmembers(value, inspect.iscoroutinefunction)
            names |= {f"{name}.{member}" for member, _ in members if not member.startswith("_")}
    return names


async def test_a_run_of_many_quick_calls_can_be_cancelled_in_between() -> None:
    """Tools that never wait do not keep the run from hearing of an abort."""
    ran = 0

    async def quick(tool_call_id: str, params: Nothing) -> str:
        nonlocal ran
        ran += 1
        if ran == 3:
            agent.abort()
        return "quick"

    responses = [faux_tool_call("quick", {}) for _ in range(50)]
    agent = Agent(model=faux(*responses).model("m"), tools=[AgentTool("quick", "Quick.", Nothing, quick)])
    result = await agent.prompt("Go.")
    assert (result.outcome, ran) == ("aborted", 3)
