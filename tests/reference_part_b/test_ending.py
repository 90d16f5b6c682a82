"""Where the asyncio original goes on, waits or forgets when it is told to stop (part B of the reference)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import from_thread

from cubepi_anyio import (
    AssistantMessage,
    BaseProvider,
    FauxProvider,
    FauxResponse,
    MessageStream,
    Model,
    TextContent,
    UserMessage,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.hooks import Middleware
from cubepi_anyio.providers.openai import OpenAIProvider
from tests.providers.loopback import HEAD, Connection, chunk, serve
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    bench,
    calling,
    running_tasks,
    sleeping,
    tool_of,
)
from tests.support.backends import on_asyncio
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

PROMPT_SECONDS = 1.0
"""What "at once" may take on a busy machine; the original takes two to six seconds in these places."""


@asynccontextmanager
async def prompting(made: Bench) -> AsyncGenerator[list[Any]]:
    """Prompt beside the block, and wait for the end at its end; the list gets the result."""
    results: list[Any] = []

    async def prompt() -> None:
        results.append(await made.agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        yield results


async def test_an_abort_ends_a_sleeping_tool_at_once_and_asks_the_model_no_more() -> None:
    """B1."""
    began = anyio.Event()
    made = bench(calling("sleep"), "never", tools=[sleeping("sleep", began)])
    aborted_at = 0.0
    async with prompting(made) as results:
        await began.wait()
        aborted_at = anyio.current_time()
        made.agent.abort()
    assert anyio.current_time() - aborted_at < PROMPT_SECONDS
    assert results[0].outcome == "aborted"
    assert made.provider.call_count == 1


async def test_a_tool_that_blocks_its_thread_does_not_hold_up_the_abort() -> None:
    """B1b."""
    began, token, go = anyio.Event(), anyio.lowlevel.current_token(), threading.Event()

    def block(tool_call_id: str, params: NoParams) -> str:
        from_thread.run_sync(began.set, token=token)
        go.wait()
        return "never heard"

    made = bench(calling("block"), "never", tools=[tool_of("block", block)])
    try:
        async with prompting(made) as results:
            await began.wait()
            made.agent.abort()
    finally:
        go.set()
    assert (results[0].outcome, made.results[0].details["ending"]) == ("aborted", "abandoned")


async def test_an_abort_keeps_the_rest_of_a_sequential_batch_from_beginning() -> None:
    """B1c."""
    began, ran = anyio.Event(), list[str]()

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ran"

    tools = [sleeping("sleep", began), tool_of("note", note)]
    made = bench(calling("sleep", "note", "note"), "never", tools=tools, tool_execution="sequential")
    await end_call("abort", made, began.wait)
    assert ran == []
    assert [result.details["ending"] for result in made.results] == ["cancelled"] * 3
    await assert_well_ended(made)


async def test_an_abort_in_a_hook_before_a_call_keeps_its_tool_from_beginning() -> None:
    """B12e."""
    began, ran = anyio.Event(), list[str]()

    class Asking(Middleware):
        async def before_tool_call(self, call: Any, *, signal: Any) -> None:
            began.set()
            await anyio.sleep_forever()

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ran"

    made = bench(calling("note", "note"), "never", tools=[tool_of("note", note)], middleware=[Asking()])
    aborted_at = 0.0
    async with prompting(made):
        await began.wait()
        aborted_at = anyio.current_time()
        made.agent.abort()
    assert anyio.current_time() - aborted_at < PROMPT_SECONDS
    assert ran == []
    assert [result.text for result in made.results] == [
        "The call was cancelled before it began: the run was aborted"
    ] * 2


@on_asyncio
async def test_a_cancelled_prompt_takes_its_producer_along_and_keeps_the_partial_text() -> None:
    """B2."""
    before = running_tasks()
    made = bench(FauxResponse("one two three four", stall_after_deltas=3))
    task = asyncio.create_task(made.agent.prompt("hi"))
    await made.provider.wait_stalled()
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running_tasks() == before
    answer = made.agent.state.messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.stop_reason, "one two three four".startswith(answer.text)) == ("aborted", True)
    assert answer.text
    assert made.labels[-3:] == ["message_end:assistant", "turn_end", "agent_end:aborted"]


FIRST_TOKEN = (
    b'data: {"id":"1","object":"chat.completion.chunk","model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
)


async def _silent_after_a_token(connection: Connection) -> None:
    await connection.request()
    await connection.send(HEAD + chunk(FIRST_TOKEN))
    await connection.until_closed()


async def _check_silent_server(way: str) -> None:
    before = running_tasks()
    async with serve(_silent_after_a_token) as server:
        provider = OpenAIProvider(api_key="k", base_url=server.base)
        async with provider:
            made = Bench(FauxProvider(), bench("unused").agent)
            agent = type(made.agent)(model=provider.model("m"))
            heard, ended_at = anyio.Event(), 0.0
            agent.subscribe(lambda event: heard.set() if event.type == "message_update" else None)
            made.agent = agent
            began = anyio.current_time()

            async def reached() -> None:
                nonlocal began
                await heard.wait()
                began = anyio.current_time()

            await end_call(way, made, reached)
            ended_at = anyio.current_time()
            assert ended_at - began < PROMPT_SECONDS
            await server.connections[0].closed.wait()
            answer = agent.state.messages[-1]
            assert isinstance(answer, AssistantMessage)
            assert (answer.text, answer.stop_reason) == ("Hel", "aborted")
    assert running_tasks() == before


@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_an_abort_does_not_wait_for_the_next_byte_of_a_silent_server(way: str) -> None:
    """B7."""
    await _check_silent_server(way)


@on_asyncio
async def test_a_cancelled_task_has_closed_its_connection_when_it_returns() -> None:
    """B7b."""
    await _check_silent_server("native")


async def test_leaving_generate_or_a_stream_takes_the_producer_along() -> None:
    """B6e, B6f."""
    before = running_tasks()
    provider = FauxProvider()
    provider.set_responses([FauxResponse("one two three", stall_after_deltas=2)] * 2)
    model, ask = provider.model("m"), UserMessage(content=[TextContent(text="hi")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.generate, [ask])
        await provider.wait_stalled()
        tasks.cancel_scope.cancel()
    assert running_tasks() == before
    async with await model.stream([ask]) as stream:
        async for event in stream:
            if event.type == "text_delta":
                break
    assert running_tasks() == before


async def test_a_cancelled_parent_takes_the_child_s_stream_along() -> None:
    """B9g."""
    before = running_tasks()
    child = bench(FauxResponse("one two three", stall_after_deltas=2))

    async def delegate(tool_call_id: str, params: NoParams) -> str:
        return (await child.agent.prompt("sub")).text

    parent = bench(calling("delegate"), tools=[tool_of("delegate", delegate)])
    await end_call("scope", parent, child.provider.wait_stalled)
    assert running_tasks() == before
    assert (parent.labels[-1], child.labels[-1]) == ("agent_end:aborted", "agent_end:aborted")


async def test_a_tool_that_swallows_its_cancellation_and_goes_on_is_said_to() -> None:
    """B6b: the call is not recorded as a plain success, and the cancellation leaves all the same."""
    began = anyio.Event()

    async def stubborn(tool_call_id: str, params: NoParams) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)
        return "went on"

    made = bench(calling("stubborn"), "never", tools=[tool_of("stubborn", stubborn)])
    made.agent.limits = type(made.agent.limits)(settle_timeout=0.1)
    await end_call("scope", made, began.wait)
    assert made.results[0].details["ending"] == "ignored_cancellation"
    assert made.texts[0].startswith("went on")


@on_asyncio
async def test_asyncio_timeout_around_a_prompt_is_heard_by_its_caller() -> None:
    """B5c, B5d."""
    made = bench(FauxResponse("never", stall_before_start=True))
    stages: list[str] = []
    second = asyncio.Event()

    async def program() -> None:
        try:
            async with asyncio.timeout(0.05):
                await made.agent.prompt("hi")
                stages.append("after the prompt")
        except TimeoutError:
            stages.append("timed out")
        made.provider.set_responses([FauxResponse("never", stall_before_start=True)])
        second.set()
        await made.agent.prompt("hi")
        stages.append("after the second prompt")

    task = asyncio.create_task(program())
    await second.wait()
    await made.provider.wait_stalled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stages, task.cancelled()) == (["timed out"], True)


async def test_an_abort_while_the_thread_is_loaded_is_not_lost() -> None:
    """B5e."""
    loading = anyio.Event()

    class Slow(MemoryCheckpointer):
        async def load(self, thread_id: str) -> Any:
            loading.set()
            await anyio.sleep(0.05)
            return await super().load(thread_id)

    async with Slow() as store:
        made = bench("never", checkpointer=store, thread_id="t")
        async with prompting(made) as results:
            await loading.wait()
            made.agent.abort("changed my mind")
    assert (results[0].outcome, results[0].abort_reason) == ("aborted", "changed my mind")
    assert made.provider.call_count == 0


async def test_what_steers_an_aborted_run_is_still_there_and_heard_before_the_next_prompt() -> None:
    """B9c, B9d: said before it, heard before it; and it can be seen and taken back."""
    made = bench(FauxResponse("never", stall_before_start=True))
    async with prompting(made):
        await made.provider.wait_stalled()
        first = made.agent.steer("turn left")
        made.agent.steer("turn right")
        made.agent.abort()
    assert [message.text for message in made.agent.queued_messages if isinstance(message, UserMessage)] == [
        "turn left",
        "turn right",
    ]
    assert made.agent.retract(first)
    made.provider.set_responses(["fine"])
    await made.agent.prompt("next")
    said = [message.text for message in made.agent.state.messages if isinstance(message, UserMessage)]
    assert said == ["hi", "turn right", "next"]


class _Odd(BaseProvider):
    """A provider whose producer ends without a word."""

    def __init__(self, *, wait: bool = False) -> None:
        super().__init__(provider_id="odd")
        self.wait, self.waiting = wait, anyio.Event()

    async def stream(self, model: Model, messages: Any, **options: Any) -> MessageStream:
        async def produce(stream: MessageStream) -> None:
            if self.wait:
                self.waiting.set()
                await anyio.sleep_forever()

        return MessageStream(produce)


async def test_a_producer_that_returns_without_a_word_is_an_error_and_no_hang() -> None:
    """B9i, B12a."""
    made = Bench(FauxProvider(), bench("unused").agent)
    made.agent = type(made.agent)(model=_Odd().model("m"))
    result = await made.agent.prompt("hi")
    assert result.outcome == "error"
    assert type(result.error).__name__ == "IncompleteStream"


async def test_an_abort_unblocks_a_run_whose_producer_says_nothing() -> None:
    """B9i, B12a."""
    odd = _Odd(wait=True)
    made = Bench(FauxProvider(), bench("unused").agent)
    made.agent = type(made.agent)(model=odd.model("m"))
    result = await end_call("abort", made, odd.waiting.wait)
    assert result is not None
    assert result.outcome == "aborted"


async def test_an_abort_before_the_first_token_is_no_error_of_the_provider() -> None:
    """B5."""
    made = bench(FauxResponse("never", stall_before_start=True), "never either")
    result = await end_call("abort", made, made.provider.wait_stalled)
    assert result is not None
    assert (result.outcome, result.error, made.provider.call_count) == ("aborted", None, 1)
    await assert_well_ended(made)
