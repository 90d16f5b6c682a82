"""A producer in its reader's own task: every event is heard as it is pushed, and every ending has one value."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.concurrency import native_cancel_requests, run_in_own_task
from cubepi_anyio.errors import IncompleteStream, StreamMisuse
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageDraft, MessageStream

pytestmark = pytest.mark.anyio


class Reader:
    """Notes what it hears and when the producer waits."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.pauses = 0

    def hear(self, event: StreamEvent) -> bool:
        self.log.append(event.delta or event.type)
        return event.delta == "wait!"

    def before_wait(self) -> None:
        self.log.append("…")

    async def pause(self) -> None:
        self.pauses += 1
        await checkpoint()


async def read(produce: Any) -> tuple[MessageStream, Reader]:
    stream, reader = MessageStream(produce), Reader()
    await run_in_own_task(lambda: stream.run_in_place(reader))
    return stream, reader


async def test_events_are_heard_when_they_are_pushed_and_waits_when_they_begin() -> None:
    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.text("a")
        await draft.text("b")
        await checkpoint()
        await draft.text("c")
        await draft.done()

    stream, reader = await read(produce)
    heard = [entry for entry in reader.log if not entry.startswith(("start", "text_"))]
    assert "".join(heard).replace("……", "…") == "ab…cdone"
    assert stream.is_over
    assert stream.result_nowait().text == "abc"


async def test_what_was_pushed_before_is_heard_first() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))

    stream, reader = MessageStream(produce), Reader()
    stream.push(StreamEvent("text_delta", 0, "early"))
    await stream.run_in_place(reader)
    assert reader.log[0] == "early"
    assert stream.result_nowait().text == "early"


async def test_a_producer_that_raises_is_an_error_event_and_keeps_what_had_arrived() -> None:
    async def produce(stream: MessageStream) -> None:
        await MessageDraft(stream).text("half")
        raise LookupError("gone")

    stream, reader = await read(produce)
    assert reader.log[-1] == "error"
    assert isinstance(stream.error, LookupError)
    assert (stream.result_nowait().stop_reason, stream.result_nowait().text) == ("error", "half")


async def test_a_producer_that_returns_without_a_last_word_has_not_completed_its_message() -> None:
    async def produce(stream: MessageStream) -> None:
        await MessageDraft(stream).text("half")

    stream, _ = await read(produce)
    assert isinstance(stream.error, IncompleteStream)


async def test_the_second_of_two_readings_is_refused() -> None:
    async def produce(stream: MessageStream) -> None:
        await MessageDraft(stream).done()

    stream, reader = await read(produce)
    with pytest.raises(StreamMisuse, match="in place once"):
        await stream.run_in_place(reader)
    with pytest.raises(StreamMisuse, match="entered once"):
        async with stream:
            pass
    with pytest.raises(StreamMisuse, match="producer of its own"):
        await MessageStream().run_in_place(reader)


async def test_sending_pauses_every_64_events() -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(640):
            await stream.send(StreamEvent("text_delta", 0, "x"))
        await stream.send(StreamEvent("done"))

    _, reader = await read(produce)
    assert reader.pauses == 10


async def test_sending_pauses_where_the_reader_asks_for_it() -> None:
    async def produce(stream: MessageStream) -> None:
        for text in ("a", "wait!", "b", "c"):
            await stream.send(StreamEvent("text_delta", 0, text))
        stream.push(StreamEvent("done"))

    _, reader = await read(produce)
    assert reader.pauses == 1


async def test_a_cancellation_reaches_the_producer_where_it_waits_and_waits_for_its_cleanup() -> None:
    steps: list[str] = []

    async def produce(stream: MessageStream) -> None:
        await MessageDraft(stream).text("half")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
                steps.append("cleaned up")

    stream, reader = MessageStream(produce), Reader()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.run_in_place, reader)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert steps == ["cleaned up"]
    assert stream.broken_message().text == "half"
    assert not stream.is_over


async def test_a_cancelled_producer_that_only_pushes_is_not_heard_for_long() -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(10_000):
            stream.push(StreamEvent("text_delta", 0, "x"))
        stream.push(StreamEvent("done"))

    stream, reader = MessageStream(produce), Reader()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stream.run_in_place(reader)
    assert scope.cancelled_caught
    assert len(reader.log) == 64


async def test_a_cancellation_that_a_producer_swallows_is_raised_at_its_end() -> None:
    async def produce(stream: MessageStream) -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            await MessageDraft(stream).done()

    stream = MessageStream(produce)
    with anyio.move_on_after(0.001) as scope:
        await stream.run_in_place(Reader())
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught


@pytest.mark.parametrize("meets_it", [True, False])
async def test_a_producer_that_cancels_its_own_task_fails_and_nobody_else(
    anyio_backend_name: str, meets_it: bool
) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("Task.cancel() is asyncio's")

    async def produce(stream: MessageStream) -> None:
        await MessageDraft(stream).text("half")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if meets_it:
            await checkpoint()
        await MessageDraft(stream).done()

    requests: list[int] = []

    async def reading() -> MessageStream:
        stream = MessageStream(produce)
        await stream.run_in_place(Reader())
        await checkpoint()
        requests.append(native_cancel_requests())
        return stream

    stream = await run_in_own_task(reading)
    assert requests == [0]
    assert isinstance(stream.error, IncompleteStream) is meets_it
