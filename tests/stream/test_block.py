"""A block that owns a task, and what the streams made of it say of themselves."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, FauxProvider, FauxResponse, MessageStream, StreamEvent, StreamStatistics
from cubepi_anyio.stream.block import TaskBlock
from tests.support.agents import bench

pytestmark = pytest.mark.anyio


def filled(*, used: int = 0, sending: int = 0, receiving: int = 0, entered: bool = True, over: bool = False) -> Any:
    return StreamStatistics(
        current_buffer_used=used,
        max_buffer_size=64,
        tasks_waiting_send=sending,
        tasks_waiting_receive=receiving,
        is_entered=entered,
        is_over=over,
    )


# --- one task --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_an_exit_request_of_the_task_goes_before_the_cancellation_of_who_waits_for_it(
    error: type[BaseException],
) -> None:
    raised = error("stop")

    async def task() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise raised

    block = TaskBlock("a block of this test")
    with pytest.raises(error) as caught, anyio.CancelScope() as scope:
        await block.enter(task)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await block.leave(None)
    assert caught.value is raised


async def test_a_cancelled_block_waits_until_its_task_has_gone() -> None:
    log: list[str] = []

    async def task() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                log.append("gone")

    block = TaskBlock("a block of this test")
    await block.enter(task)
    await anyio.wait_all_tasks_blocked()
    block.cancel()
    assert log == []
    await block.leave(None)
    assert log == ["gone"]
    await block.leave(None)


# --- never left ------------------------------------------------------------------------------


async def test_a_stream_that_was_entered_and_never_left_warns_when_it_is_collected() -> None:
    streams = [MessageStream()]
    await streams[0].__aenter__()
    with pytest.warns(ResourceWarning, match="a message stream was entered and never left"):
        streams.clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_was_entered_and_never_left_warns_when_it_is_collected() -> None:
    async def enter() -> None:
        provider = FauxProvider()
        provider.set_responses(["ok"])
        agent = Agent(model=provider.model("m"))
        await agent.stream("hi").__aenter__()
        await agent.wait_for_idle()

    def run_and_collect() -> None:
        asyncio.run(enter())
        gc.collect()

    with pytest.warns(ResourceWarning, match="the stream of a run was entered and never left"):
        run_and_collect()


async def test_a_stream_that_was_never_entered_or_was_left_does_not_warn() -> None:
    made = bench("ok")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with MessageStream(lambda: anyio.sleep_forever()):
            pass
        MessageStream(lambda: anyio.sleep_forever())
        made.agent.stream("never")
        async with made.agent.stream("hi") as run:
            await run.result()
        del run
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


# --- statistics ------------------------------------------------------------------------------


async def test_a_message_stream_says_what_fills_it_and_who_waits() -> None:
    go_on = anyio.Event()

    async def produce(stream: MessageStream) -> None:
        await go_on.wait()
        for _ in range(65):
            await stream.send(StreamEvent("text_delta", 0, "x"))
        await stream.send(StreamEvent("done"))

    stream = MessageStream(produce)
    assert stream.statistics() == filled(entered=False)
    async with stream, anyio.create_task_group() as tasks:
        tasks.start_soon(anext, stream)
        await anyio.wait_all_tasks_blocked()
        assert stream.statistics() == filled(receiving=1)
        go_on.set()
        await anyio.wait_all_tasks_blocked()
        # One was read; who sends is let on when all are.
        assert stream.statistics() == filled(used=63, sending=1)
        async for _ in stream:
            pass
        assert stream.statistics() == filled(over=True)
    assert stream.statistics() == filled(over=True)


async def test_a_sender_that_waits_for_room_is_counted_and_a_stream_that_was_left_is_over() -> None:
    async def produce(stream: MessageStream) -> None:
        while True:
            await stream.send(StreamEvent("text_delta", 0, "x"))

    async with MessageStream(produce) as stream:
        await anyio.wait_all_tasks_blocked()
        assert stream.statistics() == filled(used=64, sending=1)
    assert stream.statistics() == filled(over=True)


async def test_the_stream_of_a_run_says_the_same() -> None:
    made = bench(FauxResponse("word " * 300))
    run = made.agent.stream("hi")
    assert run.statistics() == filled(entered=False)
    async with run:
        await anyio.wait_all_tasks_blocked()
        assert run.statistics() == filled(used=64, sending=1)
        await run.result()
        assert run.statistics() == filled(over=True)


async def test_the_stream_of_a_run_that_is_left_twice_does_nothing_the_second_time() -> None:
    made = bench(FauxResponse("one two", stall_after_deltas=1))
    run = made.agent.stream("hi")
    async with run:
        await anext(run)
    heard = list(made.labels)
    await run.__aexit__(None, None, None)
    assert made.labels == heard
    assert heard[-1] == "agent_end:aborted"
