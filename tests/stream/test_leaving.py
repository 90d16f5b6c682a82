"""Leaving a stream: the producer is gone, and what was raised leaves as itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.errors import IncompleteStream, StreamMisuse
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageDraft, MessageStream

pytestmark = pytest.mark.anyio


class Producer:
    """Sends for ever; remembers that it was begun, cancelled, and has cleaned up."""

    def __init__(self, *, cleanup_steps: int = 0, fails_in_cleanup: bool = False) -> None:
        self.cleanup_steps = cleanup_steps
        self.fails_in_cleanup = fails_in_cleanup
        self.log: list[str] = []

    async def __call__(self, stream: MessageStream) -> None:
        self.log.append("begun")
        try:
            while True:
                await stream.send(StreamEvent("text_delta", delta="x"))
        except anyio.get_cancelled_exc_class():
            self.log.append("cancelled")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(self.cleanup_steps):
                    await checkpoint()
            self.log.append("gone")
            if self.fails_in_cleanup:
                raise ValueError("cleanup")


async def test_leaving_early_waits_for_the_producers_shielded_cleanup() -> None:
    producer = Producer(cleanup_steps=20)
    with anyio.fail_after(5):
        async with MessageStream(producer) as stream:
            async for _ in stream:
                break
    assert producer.log == ["begun", "cancelled", "gone"]


async def test_an_error_of_a_cleanup_after_an_early_leaving_reaches_nobody() -> None:
    producer = Producer(fails_in_cleanup=True)
    with anyio.fail_after(5):
        async with MessageStream(producer) as stream:
            await anext(stream)
    assert producer.log == ["begun", "cancelled", "gone"]
    assert (await stream.result()).stop_reason == "aborted"


async def test_errors_of_a_producers_own_tasks_end_the_same_way_on_every_backend() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    async def produce(stream: MessageStream) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail_when_cancelled)
            await stream.send(StreamEvent("text_delta", delta="x"))
            await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            await anext(stream)
            await anyio.wait_all_tasks_blocked()
    assert (await stream.result()).stop_reason == "aborted"


async def test_a_group_of_a_producers_own_tasks_is_the_error_as_it_was_raised() -> None:
    async def fail(name: str) -> None:
        raise ValueError(name)

    async def produce() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, "a")
            tasks.start_soon(anyio.sleep_forever)

    async with MessageStream(produce) as stream:
        message = await stream.result()
    assert message.stop_reason == "error"
    group: Any = stream.error
    assert isinstance(group, ExceptionGroup)
    assert [str(error) for error in group.exceptions] == ["a"]


async def test_a_producer_that_goes_on_sending_after_its_last_word_can_be_cancelled() -> None:
    gone: list[str] = []

    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream)
        await draft.text("x")
        await draft.done()
        try:
            while True:
                await draft.text("y")
                await stream.send(StreamEvent("text_delta", delta="z"))
        finally:
            gone.append("gone")

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            assert (await stream.result()).text == "x"
    assert gone == ["gone"]


async def test_a_producer_that_ignores_its_cancellation_between_two_sends_still_ends() -> None:
    refused = 0

    async def produce(stream: MessageStream) -> None:
        nonlocal refused
        while refused < 3:
            try:
                while True:
                    await stream.send(StreamEvent("text_delta", delta="x"))
            except anyio.get_cancelled_exc_class():
                refused += 1
        raise ValueError("at last")

    with anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            await anext(stream)
    assert refused == 3


async def test_a_producer_that_has_said_its_last_word_may_put_its_connection_away() -> None:
    log: list[str] = []

    async def produce(stream: MessageStream) -> None:
        try:
            stream.push(StreamEvent("done"))
        finally:
            for _ in range(5):
                await checkpoint()
            log.append("closed")

    async with MessageStream(produce) as stream:
        await stream.result()
    assert log == ["closed"]


@pytest.mark.virtual_clock
async def test_a_producer_that_lingers_after_its_last_word_is_cancelled_after_a_twentieth_of_a_second() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push(StreamEvent("done"))
        await anyio.sleep_forever()

    started = anyio.current_time()
    async with MessageStream(produce) as stream:
        await stream.result()
        assert anyio.current_time() == started
    assert anyio.current_time() - started == pytest.approx(0.05)


async def test_send_after_the_stream_was_left_drops_the_event_and_returns() -> None:
    async def produce() -> None:
        await anyio.sleep_forever()

    async with MessageStream(produce) as stream:
        pass
    for _ in range(200):
        await stream.send(StreamEvent("text_delta", delta="x"))
    stream.push(StreamEvent("text_delta", delta="x"))
    with pytest.raises(StreamMisuse):
        await anext(stream)


# --- errors of the block ---------------------------------------------------------------------


class Unusual(BaseException):
    pass


GROUP = ExceptionGroup("the caller's own", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
BASE_GROUP = BaseExceptionGroup("the caller's own", [Unusual("a")])


@pytest.mark.parametrize("error", [ValueError("mine"), GROUP, BASE_GROUP, Unusual("mine"), StopAsyncIteration()])
@pytest.mark.parametrize("read", ["nothing", "some", "all"])
async def test_the_callers_own_error_leaves_as_itself(error: BaseException, read: str) -> None:
    producer = Producer(cleanup_steps=3)

    async def short(stream: MessageStream) -> None:
        stream.push(StreamEvent("text_delta", delta="x"))
        stream.push(StreamEvent("done"))

    async def use(stream: MessageStream) -> None:
        async with stream:
            if read == "some":
                await anext(stream)
            if read == "all":
                await stream.result()
            raise error

    with pytest.raises(type(error)) as caught, anyio.fail_after(5):
        await use(MessageStream(short if read == "all" else producer))
    assert caught.value is error
    assert error.__cause__ is None
    if read == "some":
        assert producer.log == ["begun", "cancelled", "gone"]


async def test_an_error_of_the_caller_and_one_of_the_producer_do_not_make_a_group() -> None:
    error = ValueError("mine")

    async def produce(stream: MessageStream) -> None:
        try:
            await stream.send(StreamEvent("text_delta", delta="x"))
            await anyio.sleep_forever()
        finally:
            raise KeyError("the producer's")

    async def use(stream: MessageStream) -> None:
        async with stream:
            await anext(stream)
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await use(MessageStream(produce))
    assert caught.value is error


async def test_closing_a_half_read_generator_around_a_stream_is_silent() -> None:
    producer = Producer()

    async def words() -> AsyncIterator[str]:
        async with MessageStream(producer) as stream:
            async for event in stream:
                yield event.delta or ""

    generator: Any = words()
    with anyio.fail_after(5):
        assert await anext(generator) == "x"
        await generator.aclose()
    assert producer.log == ["begun", "cancelled", "gone"]


# --- errors no stream holds back -------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("consumer", ["iterates", "asks for the result", "waits elsewhere"])
def test_an_interrupt_in_the_producer_leaves_bare(
    error: type[BaseException], consumer: str, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    raised = error("stop")

    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("text_delta", delta="x"))
        await checkpoint()
        raise raised

    async def main() -> None:
        async with MessageStream(produce) as stream:
            if consumer == "iterates":
                async for _ in stream:
                    pass
            elif consumer == "asks for the result":
                await stream.result()
            else:
                await anyio.sleep_forever()

    name, options = anyio_backend
    with pytest.raises(error) as caught:
        anyio.run(main, backend=name, backend_options=options)
    assert caught.value is raised


async def test_any_other_base_exception_of_the_producer_leaves_bare() -> None:
    raised = Unusual("stop")

    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("text_delta", delta="x"))
        raise raised

    with pytest.raises(Unusual) as caught, anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            await stream.result()
    assert caught.value is raised


async def test_a_base_exception_in_a_group_of_the_producer_leaves_as_it_was_raised() -> None:
    raised = BaseExceptionGroup("the producer's", [Unusual("a"), ValueError("b")])

    async def produce() -> None:
        raise raised

    with pytest.raises(BaseExceptionGroup) as caught, anyio.fail_after(5):
        async with MessageStream(produce) as stream:
            await stream.result()
    assert caught.value.message == "the producer's"
    assert caught.value.exceptions == raised.exceptions


# --- a producer that cancels itself ----------------------------------------------------------


async def test_a_producer_whose_inner_scope_is_cancelled_goes_on() -> None:
    async def produce(stream: MessageStream) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        await stream.send(StreamEvent("text_delta", delta="x"))
        await stream.send(StreamEvent("done"))

    async with MessageStream(produce) as stream:
        assert (await stream.result()).stop_reason == "stop"


async def test_a_producer_that_raises_a_cancellation_of_its_own_is_an_error(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("trio lets nobody make a cancellation")
    import asyncio  # noqa: PLC0415

    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("text_delta", delta="x"))
        raise asyncio.CancelledError

    async with MessageStream(produce) as stream:
        message = await stream.result()
    assert (message.text, message.stop_reason, message.error_type) == ("x", "error", "IncompleteStream")


async def test_a_producer_task_cancelled_by_a_stranger_is_an_error(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("only asyncio lets a stranger cancel a task")
    import asyncio  # noqa: PLC0415

    tasks: list[asyncio.Task[Any] | None] = []

    async def produce(stream: MessageStream) -> None:
        tasks.append(asyncio.current_task())
        await stream.send(StreamEvent("text_delta", delta="x"))
        await anyio.sleep_forever()

    async with MessageStream(produce) as stream:
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
        assert tasks[0] is not None
        tasks[0].cancel()
        message = await stream.result()
    assert (message.text, message.stop_reason) == ("x", "error")
    assert isinstance(stream.error, IncompleteStream)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
