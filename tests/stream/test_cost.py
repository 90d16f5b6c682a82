"""What a stream costs: linear work, bounded memory, checkpoints, and a producer that is held back."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageBuilder, MessageDraft, MessageStream
from cubepi_anyio.types import AssistantMessage, TextContent

pytestmark = pytest.mark.anyio

needs_trio = pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")


def delta(text: str = "x") -> StreamEvent:
    return StreamEvent("text_delta", delta=text)


# --- back-pressure ---------------------------------------------------------------------------


async def test_a_producer_nobody_reads_is_stopped_after_64_events() -> None:
    sent = 0

    async def produce(stream: MessageStream) -> None:
        nonlocal sent
        for _ in range(100_000):
            await stream.send(delta())
            sent += 1

    async with MessageStream(produce) as stream:
        await anyio.wait_all_tasks_blocked()
        assert sent == 64
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
        assert sent <= 128


async def test_a_draft_nobody_reads_is_stopped_after_64_events() -> None:
    texts = 0

    async def produce(stream: MessageStream) -> None:
        nonlocal texts
        draft = MessageDraft(stream)
        for _ in range(100_000):
            await draft.text("abcd")
            texts += 1

    async with MessageStream(produce):
        await anyio.wait_all_tasks_blocked()
        assert texts == 64 - 2 - 1  # `start` and `text_start` are events too; the last text has been handed over


async def test_push_never_waits() -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(1_000):
            stream.push(delta())
        stream.push(StreamEvent("done"))

    stream = MessageStream(produce)
    async with stream:
        await anyio.wait_all_tasks_blocked()
        assert len([event async for event in stream]) == 1_001


async def test_several_tasks_of_a_producer_may_send_at_once() -> None:
    async def produce(stream: MessageStream) -> None:
        async def send(letter: str) -> None:
            for _ in range(500):
                await stream.send(delta(letter))

        async with anyio.create_task_group() as tasks:
            for letter in "abc":
                tasks.start_soon(send, letter)
        await stream.send(StreamEvent("done"))

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            text = (await stream.result()).text
    assert sorted(text) == sorted("abc" * 500)


async def test_a_slow_consumer_gets_every_event_in_order() -> None:
    async def produce(stream: MessageStream) -> None:
        for number in range(500):
            await stream.send(delta(f"{number} "))
        await stream.send(StreamEvent("done"))

    seen: list[str] = []
    async with MessageStream(produce) as stream:
        async for event in stream:
            await checkpoint()
            seen.append(event.delta or "")
    assert "".join(seen) == "".join(f"{number} " for number in range(500))


# --- checkpoints -----------------------------------------------------------------------------


async def test_iteration_lets_other_tasks_run_at_least_every_64_events() -> None:
    events_since = 0
    longest = 0
    stream = MessageStream()
    for _ in range(10_000):
        stream.push(delta())
    stream.push(StreamEvent("done"))

    async def compete() -> None:
        nonlocal events_since
        while True:
            events_since = 0
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compete)
        await checkpoint()
        events_since = 0
        async for _ in stream:
            events_since += 1
            longest = max(longest, events_since)
        tasks.cancel_scope.cancel()
    # trio runs the tasks of one step in any order, so the other task may be first once and last the next time.
    assert longest <= 2 * 64


async def test_what_lies_ready_is_given_without_waiting_up_to_the_next_checkpoint() -> None:
    stream = MessageStream()
    assert stream.next_nowait() is None
    for number in range(100):
        stream.push(delta(f"{number} "))
    stream.push(StreamEvent("done"))
    texts: list[str] = []
    for expected in (64, 100):
        while (event := stream.next_nowait()) is not None:
            texts.append(event.delta or "")
        assert len(texts) - texts.count("") == expected
        if expected == 64:
            texts.append((await anext(stream)).delta or "")
    assert texts == [*(f"{number} " for number in range(100)), ""]
    assert stream.is_over
    assert stream.next_nowait() is None
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_ten_thousand_buffered_events_can_be_cancelled() -> None:
    stream = MessageStream()
    for _ in range(10_000):
        stream.push(delta())
    seen = 0
    with anyio.CancelScope() as scope:
        async for _ in stream:
            seen += 1
            if seen == 100:
                scope.cancel()
    assert scope.cancelled_caught
    assert 100 <= seen <= 164
    with anyio.move_on_after(0) as scope:
        async for _ in stream:
            seen += 1
    assert scope.cancelled_caught
    assert seen <= 164 + 64


async def test_a_producer_of_many_events_is_held_to_a_checkpoint_every_64() -> None:
    with anyio.move_on_after(0) as scope:

        async def produce(stream: MessageStream) -> None:
            while True:
                await stream.send(delta())

        async with MessageStream(produce) as stream:
            async for _ in stream:
                pass
    assert scope.cancelled_caught


async def test_the_end_and_the_result_are_checkpoints() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))

    async with MessageStream(produce) as stream:
        await anext(stream)
        for ask in (stream.__anext__, stream.result):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await ask()
            assert scope.cancelled_caught
    async with MessageStream() as left:
        pass
    with anyio.CancelScope() as scope:
        scope.cancel()
        await left.result()
    assert scope.cancelled_caught


async def test_steps_of_the_scheduler_are_linear_and_few() -> None:
    async def steps(deltas: int) -> int:
        count = 0

        async def produce(stream: MessageStream) -> None:
            for _ in range(deltas):
                await stream.send(delta())
            await stream.send(StreamEvent("done"))

        async def compete() -> None:
            nonlocal count
            while True:
                count += 1
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compete)
            async with MessageStream(produce) as stream:
                await stream.result()
            tasks.cancel_scope.cancel()
        return count

    small, large = await steps(6_400), await steps(12_800)
    assert large <= 2.2 * small
    assert large <= 12_800 / 64 * 6


# --- work ------------------------------------------------------------------------------------


async def test_an_event_nobody_reads_holds_no_copy_of_the_message() -> None:
    stream = MessageStream()
    events = [delta("abcd") for _ in range(1_000)]
    for event in events:
        stream.push(event)
    stream.push(StreamEvent("done"))
    assert (await stream.result()).text == "abcd" * 1_000
    assert [event for event in events if event.given is not None] == []
    partial = events[9].partial
    assert partial is not None
    assert partial.text == "abcd" * 10
    assert events[9].partial is partial


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs_trio)])
def test_a_megabyte_of_text_needs_less_than_three_times_its_size(backend: str, index: int | None) -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(250_000):
            await stream.send(StreamEvent("text_delta", index, "abcd"))
        await stream.send(StreamEvent("done"))

    async def peak_bytes() -> int:
        gc.collect()
        tracemalloc.start()
        try:
            async with MessageStream(produce) as stream:
                message = await stream.result()
            assert message.text == "abcd" * 250_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # A loop of its own, because asyncio's debug mode takes ten times as long under tracemalloc.
    assert anyio.run(peak_bytes, backend=backend) < 3_000_000


def test_deltas_without_an_index_cost_no_more_notes_than_deltas_with_one() -> None:
    builder = MessageBuilder()
    for _ in range(1_000):
        builder.apply(delta())
    assert len(builder._turns) == 1


def steps_of(work: Callable[[], object]) -> int:
    """How many instructions of Python's the work takes."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    former = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(former)
    return steps


def test_a_hundred_open_blocks_are_looked_at_without_walking_through_every_turn() -> None:
    def steps_after(rounds: int) -> int:
        builder = MessageBuilder()
        first = delta()
        builder.apply(first)
        for index in range(1, 100):
            builder.apply(StreamEvent("text_start", index))
        for _ in range(rounds):
            for index in range(100):
                builder.apply(StreamEvent("text_delta", index, "x"))
        steps = steps_of(lambda: (builder.message(), first.partial))
        assert builder.message().text == "x" * (100 * rounds + 1)
        assert first.partial is not None
        assert first.partial.content == [TextContent(text="x")]
        return steps

    few, many = steps_after(50), steps_after(200)
    assert few > 0
    assert many < 1.5 * few, "four times the turns"


async def test_a_stream_that_has_ended_keeps_nothing_alive() -> None:
    class Owner:
        async def produce(self, stream: MessageStream) -> None:
            await stream.send(delta())
            await stream.send(StreamEvent("done"))

    owner = Owner()
    stream: Any = MessageStream(owner.produce)
    async with stream:
        message = await stream.result()
    references = [weakref.ref(owner), weakref.ref(stream)]
    del owner, stream
    await checkpoint()
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert message == AssistantMessage(content=[TextContent(text="x")])
