"""Cancelling the consumer, wherever it waits and whoever cancels: nothing is left, and nothing is swallowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.stream import MessageDraft, MessageStream

pytestmark = pytest.mark.anyio


class Run:
    """A stream that is opened, read and closed, with a record of what is left of it."""

    def __init__(self) -> None:
        self.open_connections = 0
        self.begun = 0
        self.finished = False
        self.stream = MessageStream(self.produce)

    async def produce(self, stream: MessageStream) -> None:
        self.open_connections += 1
        self.begun += 1
        try:
            draft = MessageDraft(stream)
            for number in range(6):
                await draft.text(f"{number} ")
                await checkpoint()
            index = await draft.tool_call("1", "t")
            await draft.arguments(index, '{"a": 1}')
            for _ in range(100):
                await draft.text("burst ")
            await draft.done()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
                await checkpoint()
            self.open_connections -= 1

    async def by_iterating(self) -> None:
        async with self.stream as stream:
            async for _ in stream:
                pass
            await stream.result()
        self.finished = True

    async def by_result(self) -> None:
        await self.stream.result()
        self.finished = True

    async def by_leaving_early(self) -> None:
        async with self.stream as stream:
            await anext(stream)
        self.finished = True


class _InterruptAtStep:
    """Drives a coroutine and calls ``interrupt`` at its n-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], interrupt: Callable[[], object], step: int) -> None:
        self._coroutine, self._interrupt, self._step = coroutine, interrupt, step

    def __await__(self) -> Generator[Any, Any, None]:
        resume: Callable[[Any], Any] = self._coroutine.send
        argument: Any = None
        seen = 0
        while True:
            try:
                trap = resume(argument)
            except StopIteration:
                return
            seen += 1
            if seen == self._step:
                self._interrupt()
            try:
                argument, resume = (yield trap), self._coroutine.send
            except BaseException as error:
                argument, resume = error, self._coroutine.throw


WAYS = ["by_iterating", "by_result", "by_leaving_early"]


def tasks_alive() -> set[int]:
    return {task.id for task in anyio.get_running_tasks()}


@pytest.mark.parametrize("way", WAYS)
async def test_a_scope_cancelled_at_any_step_leaves_nothing_behind(way: str) -> None:
    steps = 0
    while True:
        steps += 1
        run = Run()
        alive = tasks_alive()
        after = False
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            await _InterruptAtStep(getattr(run, way)(), scope.cancel, steps)
            await checkpoint()
            after = True
        assert run.open_connections == 0, steps
        assert tasks_alive() == alive, steps
        assert after is not scope.cancelled_caught, steps
        if not scope.cancel_called:
            break
        assert scope.cancelled_caught, f"step {steps}: the cancellation was swallowed"
    assert run.finished
    assert run.begun == 1
    assert steps > 2


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_cancelled_natively_at_any_step_leaves_nothing_behind(way: str, anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("Task.cancel() is asyncio's")
    import asyncio  # noqa: PLC0415

    steps, cancelled, run = 0, True, Run()
    while cancelled:
        steps += 1
        run = Run()
        alive = tasks_alive()
        reached: list[str] = []

        async def main(run: Run = run, step: int = steps, reached: list[str] = reached) -> None:
            task = asyncio.current_task()
            assert task is not None
            interrupted: list[bool] = []
            interrupt = lambda: interrupted.append(task.cancel())  # noqa: E731
            await _InterruptAtStep(getattr(run, way)(), interrupt, step)
            reached.append("behind the stream")
            await checkpoint()
            if interrupted:
                raise AssertionError(f"step {step}: the cancellation was swallowed")

        task = asyncio.create_task(main())
        with anyio.fail_after(5):
            await asyncio.wait([task])
        cancelled = task.cancelled()
        if not cancelled:
            task.result()
        assert run.open_connections == 0, steps
        assert tasks_alive() == alive, steps
    assert run.finished
    assert steps > 2


@pytest.mark.parametrize("way", WAYS)
async def test_an_asyncio_timeout_at_any_step_is_a_timeout_and_balanced(way: str, anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("asyncio.timeout() is asyncio's")
    import asyncio  # noqa: PLC0415

    current = asyncio.current_task()
    assert current is not None
    steps, expired, run = 0, True, Run()
    while expired:
        steps += 1
        run = Run()
        alive = tasks_alive()
        try:
            async with asyncio.timeout(None) as timeout:
                loop = asyncio.get_running_loop()
                interrupt = lambda timeout=timeout, loop=loop: timeout.reschedule(loop.time() - 1)  # noqa: E731
                await _InterruptAtStep(getattr(run, way)(), interrupt, steps)
                expired = timeout.when() is not None
                if expired:
                    await anyio.sleep_forever()
        except TimeoutError:
            expired = True
        assert run.open_connections == 0, steps
        assert tasks_alive() == alive, steps
        assert current.cancelling() == 0, steps
    assert run.finished


async def test_a_cancelled_trio_nursery_ends_the_producer(anyio_backend_name: str) -> None:
    if anyio_backend_name != "trio":
        pytest.skip("nurseries are trio's")
    import trio  # noqa: PLC0415

    log: list[str] = []

    async def produce(stream: MessageStream) -> None:
        try:
            await stream.send(StreamEvent("text_delta", delta="x"))
            await trio.sleep_forever()
        finally:
            log.append("producer gone")

    async def consume() -> None:
        try:
            async with MessageStream(produce) as stream:
                await stream.result()
        finally:
            log.append("consumer gone")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert log == ["producer gone", "consumer gone"]


async def test_a_cancelled_consumer_is_not_told_that_the_stream_ended() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("text_delta", delta="x"))
        await anyio.sleep_forever()

    events: list[str] = []
    stream = MessageStream(produce)
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()

            tasks.start_soon(cancel)
            async with stream:
                async for event in stream:
                    events += [event.type]
                events.append("end")
    assert events == ["text_delta"]
    assert scope.cancelled_caught
    assert await stream.result() == stream.message.model_copy(update={"stop_reason": "aborted"})


async def test_a_shielded_consumer_of_a_cancelled_producer_gets_an_error_and_does_not_hang() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("text_delta", delta="x"))
        await anyio.sleep_forever()

    events: list[str] = []
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with MessageStream(produce) as stream:
            await anext(stream)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            with anyio.CancelScope(shield=True):
                events.extend([event.type async for event in stream])
                assert (await stream.result()).error_type == "IncompleteStream"
        await checkpoint()
    assert events == ["error"]
    assert scope.cancelled_caught


async def test_a_cancelled_send_leaves_its_event_unsent() -> None:
    stream = MessageStream()
    for number in range(64):
        await stream.send(StreamEvent("text_delta", delta=str(number)))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stream.send(StreamEvent("text_delta", delta="unsent"))
    assert scope.cancelled_caught
    stream.push(StreamEvent("done"))
    assert (await stream.result()).text == "".join(map(str, range(64)))


@pytest.mark.parametrize("run", ["iterate", "result"])
async def test_an_already_cancelled_scope_is_noticed_at_once(run: str) -> None:
    async def produce(stream: MessageStream) -> None:
        for _ in range(64):
            stream.push(StreamEvent("text_delta", delta="x"))
        stream.push(StreamEvent("done"))

    async def iterate(stream: MessageStream) -> None:
        async for _ in stream:
            pass

    async def result(stream: MessageStream) -> None:
        await stream.result()

    ask: Callable[[MessageStream], Awaitable[None]] = {"iterate": iterate, "result": result}[run]
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with MessageStream(produce) as stream:
            await ask(stream)
    assert scope.cancelled_caught
