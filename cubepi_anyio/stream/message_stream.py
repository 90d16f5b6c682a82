"""``MessageStream``: one message as it is written, then its result.

A memory object stream with one producer, one consumer and a result. The traps it closes: an iterator is an
object, never an async generator (trio leaves a generator that is not exhausted to the garbage collector); on
asyncio a cancelled producer ends before its consumer hears of the cancellation, so an end without an outcome
passes a checkpoint before it is believed; and a task group wraps the caller's own error, so the error of the
block is kept out of it.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from ..concurrency import Driven, OwnCancelCount, bare_error, let_own_cancellation_pass, surroundings_are_cancelled
from ..errors import IncompleteStream, StreamMisuse, error_text
from ..events.stream import StreamEvent
from ..types.content import ToolCall
from ..types.messages import AssistantMessage
from ..types.usage import Usage
from .builder import MessageBuilder, is_sendable, stop_reason_of
from .produce import call_with

__all__ = ("LINGER_SECONDS", "EventReader", "MessageStream", "Produce")

Produce = Callable[["MessageStream"], Awaitable[object]] | Callable[[], Awaitable[object]]
"""The producer of a stream: an async function, called with the stream if it takes a parameter."""

_BUFFERED_EVENTS = 64
"""How far ``send`` lets a producer run ahead, and how many buffered events are read between two checkpoints."""

LINGER_SECONDS = 0.05
"""How long a producer that has said its last word may take to put its connection away."""

_RESULT_SECONDS = 1.0
"""How long ``result`` waits, after ``done``, for a provider that builds messages itself to set its own."""


class EventReader(Protocol):
    """Who hears of events where the producer runs in place, in the reader's own task."""

    def hear(self, event: StreamEvent) -> bool:
        """Take one event; true to be waited for (``pause``). Must not raise: it is called from the producer's code."""
        ...

    def before_wait(self) -> None:
        """The producer is about to wait for something."""
        ...

    async def pause(self) -> None:
        """Called by ``send`` every 64 events, and when ``hear`` has asked for it; a checkpoint."""
        ...


class _Given:
    """Where the events of a provider that builds its messages itself come from: it knows which blocks were open."""

    __slots__ = ("message", "open_blocks")

    def __init__(self, message: AssistantMessage, open_blocks: frozenset[int]) -> None:
        self.message = message
        self.open_blocks = open_blocks

    def snapshot(self, mark: int, length: int) -> AssistantMessage:
        return self.message

    def preview_arguments(self, content_index: int, mark: int, length: int) -> dict[str, object]:
        content = self.message.content
        block = content[content_index] if 0 <= content_index < len(content) else None
        return block.arguments if isinstance(block, ToolCall) else {}


class MessageStream:
    """One message while it is written: iterate over its events, then ask for the result.

    ::

        async with stream:
            async for event in stream:
                ...
            message = await stream.result()

    Entering the stream starts its producer in the entering task's care; leaving the block cancels the producer
    and waits until it has gone, so no connection outlives the block. A stream never entered has started nothing.

    Iteration is a checkpoint whenever it has to wait, and at least every 64 events. It has one consumer, and after
    the end it ends again. A cancelled iteration loses no event.
    """

    def __init__(self, produce: Produce | None = None) -> None:
        self._produce: Produce | None = None
        self._builder: MessageBuilder | None = None
        self._given: AssistantMessage | None = None
        self._gives_messages = False
        self._open_blocks: frozenset[int] = frozenset()
        self._buffer: deque[StreamEvent] = deque()
        self._burst = 0
        """How many events were taken since the last checkpoint."""
        self._reader: EventReader | None = None
        self._waiting = False
        self._readable: anyio.Event | None = None
        self._writable: anyio.Event | None = None
        self._settled: anyio.Event | None = None
        self._task_group: TaskGroup | None = None
        self._entered = False
        self._closed = False
        self._producer_ended = False
        self._exit: BaseException | None = None
        self._last: StreamEvent | None = None
        self._terminal: StreamEvent | None = None
        self._ended = False
        self._result: AssistantMessage | None = None
        self._deaf = False
        """Whether events are dropped from now on: after a terminal event, and when the consumer has left."""
        if produce is not None:
            self.attach_task(produce)

    # --- the producer's side -----------------------------------------------------------------

    def attach_task(self, produce: Produce) -> None:
        """Give the stream its producer: an async function, not a task. It runs when the stream is entered."""
        if self._produce is not None:
            raise StreamMisuse("this stream has a producer already")
        if self._entered:
            raise StreamMisuse("attach the producer before the stream is entered")
        if not callable(produce):
            if inspect.iscoroutine(produce):
                produce.close()  # it will never run; this spares the caller a warning about that on top
            raise StreamMisuse(
                f"attach_task() takes the async function itself, not {type(produce).__name__}: the stream runs it"
            )
        self._produce = produce

    def push(self, event: StreamEvent) -> None:
        """Hand over one event without waiting. What follows a terminal event is dropped."""
        if self._deaf:
            return
        if event.given is not None:
            self._keep_given(event, event.given)
        else:
            builder = self._builder
            if builder is None or self._given is not None:
                # The provider's own message is authoritative, so later deltas go on from it.
                self._builder = builder = MessageBuilder(self._given, open_blocks=self._open_blocks)
                self._given = None
            builder.apply(event)
        if event.type == "done" or event.type == "error":
            self._terminal = event
            self._deaf = True
        reader = self._reader
        if reader is not None:
            self._last, self._ended = event, self._deaf
            self._burst += 1
            if not self._burst % _BUFFERED_EVENTS and surroundings_are_cancelled():
                self._deaf = True  # a producer that only pushes meets no checkpoint, and goes on for nobody
            if reader.hear(event):
                self._burst += _BUFFERED_EVENTS
            return
        self._buffer.append(event)
        if self._readable is not None:
            self._readable.set()
            self._readable = None

    def _keep_given(self, event: StreamEvent, given: AssistantMessage) -> None:
        if self._given is None:
            self._open_blocks = self._builder.open_blocks() if self._builder is not None else frozenset()
        self._given = given
        _, _, step = event.type.partition("_")
        if step:
            self._gives_messages = True
            index = event.content_index if event.content_index is not None else len(given.content) - 1
            if (index in self._open_blocks) is (step == "end"):
                self._open_blocks = self._open_blocks ^ {index}
        if event.source is None:
            event.source = _Given(given, self._open_blocks)

    async def send(self, event: StreamEvent) -> None:
        """Hand over one event, waiting while 64 are unread. Cancelling the wait leaves the event unsent.

        A checkpoint whenever the buffer is full, which it is at least every 64 events, and always when nobody will
        read the event: after a terminal event, and when the consumer has left.
        """
        if not self.is_writable:
            await self.wait_writable()
        self.push(event)

    @property
    def is_writable(self) -> bool:
        """Whether the consumer is less than 64 events behind and still reads."""
        behind = len(self._buffer) if self._reader is None else self._burst
        return behind < _BUFFERED_EVENTS and not self._deaf

    async def wait_writable(self) -> None:
        """Return when the consumer has read enough for more to be sent, or will read no more.

        A checkpoint if it has to wait, and if no more is read: a producer that goes on all the same can be cancelled.
        """
        if self._deaf:
            await checkpoint()
            return
        if self._reader is not None:
            if self._burst >= _BUFFERED_EVENTS:
                self._burst = 0
                await self._reader.pause()
            return
        while len(self._buffer) >= _BUFFERED_EVENTS and not self._deaf:
            if self._writable is None:
                self._writable = anyio.Event()
            await self._writable.wait()

    def set_result(self, message: AssistantMessage) -> None:
        """Say what the finished message is; the first call counts."""
        if self._result is None:
            self._result = message
            if self._settled is not None:
                self._settled.set()

    def fail(self, error: Exception, *, usage: Usage | None = None) -> None:
        """End the stream with an ``error`` event that carries ``error``. What had arrived is kept."""
        self.push(StreamEvent("error", error_message=error_text(error), error=error, usage=usage))

    # --- the consumer's side -----------------------------------------------------------------

    @property
    def message(self) -> AssistantMessage:
        """The message as far as the consumer has read it."""
        if self._ended and self._result is not None:
            return self._result
        partial = self._last.partial if self._last is not None else None
        return partial if partial is not None else AssistantMessage()

    @property
    def is_readable(self) -> bool:
        """Whether the next event is there already."""
        return bool(self._buffer)

    @property
    def is_over(self) -> bool:
        """Whether the terminal event has been read."""
        return self._ended

    @property
    def has_producer(self) -> bool:
        """Whether the stream runs its own producer, and has not begun to."""
        return self._produce is not None and not self._entered

    async def run_in_place(self, reader: EventReader) -> None:
        """Run the producer in the current task, instead of entering the stream and iterating over it.

        Each event goes to ``reader`` at the moment it is pushed; none is buffered. Returns when the producer has ended;
        ``result_nowait`` gives the message then. For readers that wait for nobody, in a task that only scopes cancel.
        It waits where the producer does; a cancellation is raised at its end at the latest, and the producer has gone.
        """
        produce = self._produce
        if produce is None or self._entered:
            raise StreamMisuse("a stream runs in place once, and only with a producer of its own")
        self._entered = True
        while self._buffer:
            reader.hear(self._take())
        self._reader = reader
        try:
            await Driven(self._produce_to_the_end(produce), before_wait=reader.before_wait)
            await let_own_cancellation_pass()
            await checkpoint_if_cancelled()
        finally:
            self._closed = self._deaf = True
            self._reader = None  # it knows the stream, and the two would wait for the garbage collector

    def ignore_rest(self) -> None:
        """Drop what is pushed from now on."""
        self._deaf = True

    @property
    def error(self) -> Exception | None:
        """The typed error the stream ended with, if it did."""
        return self._terminal.error if self._terminal is not None else None

    def broken_message(self) -> AssistantMessage:
        """What the consumer has read, as far as it may stay in a transcript although it is unfinished."""
        last = self._last
        if last is None:
            return AssistantMessage()
        if isinstance(last.source, MessageBuilder):
            return last.source.broken(last.mark, last.length)
        if last.partial is None:
            return AssistantMessage()
        open_blocks = last.source.open_blocks if isinstance(last.source, _Given) else ()
        return MessageBuilder(last.partial, open_blocks=open_blocks).broken(0, 0)

    async def __aenter__(self) -> Self:
        if self._entered:
            raise StreamMisuse("a stream can be entered once")
        self._entered = True
        if self._produce is not None:
            self._task_group = anyio.create_task_group()
            await self._task_group.__aenter__()
            self._task_group.start_soon(self._run_producer, self._produce)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Cancel the producer and wait until it has gone. A checkpoint."""
        self._closed = self._deaf = True
        for event in (self._readable, self._writable, self._settled):
            if event is not None:
                event.set()
        group, self._task_group = self._task_group, None
        if group is None:
            await cancel_shielded_checkpoint()
            return
        if self._ended and exc is None:
            if not self._producer_ended:
                group.cancel_scope.deadline = anyio.current_time() + LINGER_SECONDS
        else:
            group.cancel_scope.cancel()
        foreign: BaseException | None = None
        try:
            if _is_the_callers_own(exc):
                # Kept out of the task group, which would put it into an ExceptionGroup; it leaves as itself.
                await group.__aexit__(None, None, None)  # noqa: ASYNC102 - a task group waits for its tasks
            else:
                await group.__aexit__(exc_type, exc, tb)  # noqa: ASYNC102 - a task group waits for its tasks
        except BaseExceptionGroup as errors:
            foreign = bare_error(errors)
        if self._exit is not None:
            raise self._exit
        if foreign is not None and foreign is not exc:
            raise foreign

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._buffer and self._burst < _BUFFERED_EVENTS and not self._waiting:
            self._burst += 1
            return self._take()
        return await self._next_after_checkpoint()

    async def _next_after_checkpoint(self) -> StreamEvent:
        """The next event where the buffer is empty, or enough was read from it without a checkpoint."""
        self._refuse_misuse()
        self._burst = 1
        self._waiting = True
        try:
            if self._writable is not None:
                self._writable.set()
                self._writable = None
            if self._buffer or self._ended:
                await checkpoint()
            while not self._buffer:
                if self._ended:
                    raise StopAsyncIteration
                self._refuse_closed()
                await self._wait_readable()
        finally:
            self._waiting = False
        return self._take()

    def _refuse_misuse(self) -> None:
        if self._waiting:
            raise StreamMisuse("two tasks iterate over one stream; it has a single consumer")
        if self._produce is not None and not self._entered:
            raise StreamMisuse("enter the stream before iterating: 'async with stream:' starts its producer")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StreamMisuse("the stream was left before its end, and has nothing more to give")

    async def _wait_readable(self) -> None:
        if self._producer_ended and self._terminal is None:
            # An end without an outcome: the producer was cancelled, and on asyncio this task may not have
            # been told yet that it is, too. If it is not, it is shielded.
            await checkpoint()
            self.fail(IncompleteStream("the provider was cancelled before its message was complete"))
            return
        self._readable = anyio.Event()
        await self._readable.wait()

    def _take(self) -> StreamEvent:
        self._last = event = self._buffer.popleft()
        if event is self._terminal:
            self._ended = True
        return event

    async def result(self) -> AssistantMessage:
        """Read to the end and return the finished message; events not yet read are passed over.

        A failure is a message with ``stop_reason="error"`` that keeps what had arrived, not an exception; its typed
        error is ``stream.error``. A stream that was left before its end gives what was read, with
        ``stop_reason="aborted"``. A stream that was not entered is run to its end in a scope of its own. A checkpoint.
        """
        if self._produce is not None and not self._entered:
            async with self:
                return await self.result()
        if self._closed and not self._ended:
            await checkpoint()
            return self.broken_message().model_copy(update={"stop_reason": "aborted"})
        if not self._ended:
            async for _ in self:
                pass
        await checkpoint()
        if self._result is None and not self._outcome_is_final():
            await self._wait_for_result()
        self._settle_result()
        return self.message

    async def _wait_for_result(self) -> None:
        with anyio.move_on_after(_RESULT_SECONDS):
            while self._result is None and not self._outcome_is_final():
                if self._settled is None:
                    self._settled = anyio.Event()
                await self._settled.wait()

    def result_nowait(self) -> AssistantMessage:
        """The finished message of a stream that has been read to its end.

        Raises ``WouldBlock`` if it was not, or if its producer may still set another result: then await ``result()``.
        """
        if not self._ended or (self._result is None and not self._outcome_is_final()):
            raise anyio.WouldBlock
        self._settle_result()
        return self.message

    def _outcome_is_final(self) -> bool:
        """Whether nobody will set a result any more.

        Our own events are complete in themselves; a provider that puts whole messages into its events may still
        set the result after ``done``.
        """
        return self._produce is None or self._producer_ended or self._closed or not self._gives_messages

    def _settle_result(self) -> None:
        """Fix what the result is, from the provider's word or from the message the stream kept."""
        if self._result is None:
            self._result = self._kept_message()
            return
        said = self._result
        update: dict[str, Any] = {}
        if said.stop_reason not in ("error", "aborted"):
            if self._terminal is None or self._terminal.type == "done":
                return
            update = self._failure(self._terminal)  # it failed after it had set a result: no success
        kept = self.broken_message()
        content = [b for b in said.content if is_sendable(b) and (b.type != "tool_call" or b in kept.content)]
        self._result = said.model_copy(update={**update, "content": content or kept.content})

    def _kept_message(self) -> AssistantMessage:
        """The message the stream kept, closed by what its terminal event says."""
        terminal = self._terminal
        assert terminal is not None
        closed: dict[str, Any] = {}
        if terminal.usage is not None:
            closed["usage"] = terminal.usage
        if terminal.type == "error":
            message = self.broken_message()
            closed.update(self._failure(terminal))
        elif self._given is not None:
            message = self._given
            closed["stop_reason"] = terminal.stop_reason or stop_reason_of(message.stop_reason, message.content)
        else:
            message = (self._builder or MessageBuilder()).finished(stop_reason=terminal.stop_reason)
        return message.model_copy(update=closed) if closed else message

    def _failure(self, terminal: StreamEvent) -> dict[str, Any]:
        """What a message says of the ``error`` event that ended it."""
        return {
            "stop_reason": terminal.stop_reason or "error",
            "error_message": terminal.error_message or "the provider gave no reason",
            "error_type": type(terminal.error).__name__ if terminal.error is not None else None,
        }

    # --- running the producer ----------------------------------------------------------------

    async def _run_producer(self, produce: Produce) -> None:
        try:
            with OwnCancelCount():
                await self._produce_to_the_end(produce)
        except (KeyboardInterrupt, SystemExit) as exit_request:
            # Carried over to the consumer's task: raised by a task of its own, it would stop asyncio's event loop.
            self._exit = exit_request
            if self._task_group is not None:
                self._task_group.cancel_scope.cancel()

    async def _produce_to_the_end(self, produce: Produce) -> None:
        try:
            if not self._closed:  # left before it was begun: then nothing of it happens
                await call_with(produce, self)
        except Exception as error:
            self.fail(error)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
            # The state of the enclosing scopes decides, not the type of the exception: raised again if one of them
            # is cancelled. Otherwise the producer cancelled itself, or somebody cancelled its task alone.
            await checkpoint_if_cancelled()  # noqa: ASYNC102 - a task group waits for its tasks
            self.fail(IncompleteStream("the provider was cancelled before its message was complete"))
        except BaseExceptionGroup as group:
            await self._fail_with_group(group)
        else:
            self._supply_terminal()
        finally:
            self._producer_ended = True
            for event in (self._readable, self._settled):
                if event is not None:
                    event.set()

    async def _fail_with_group(self, group: BaseExceptionGroup[BaseException]) -> None:
        """End with what is no cancellation in ``group``, which trio mixes with the errors of a producer's own tasks."""
        errors = group.split(anyio.get_cancelled_exc_class())[1]
        if errors is not None and not isinstance(errors, Exception):
            raise group
        await checkpoint_if_cancelled()
        self.fail(errors or IncompleteStream("the provider was cancelled before its message was complete"))

    def _supply_terminal(self) -> None:
        """End the stream for a producer that returned without saying so."""
        if self._terminal is not None:
            return
        if self._result is None:
            self.fail(IncompleteStream("the provider returned without a terminal event and without a result"))
        elif self._result.stop_reason in ("error", "aborted"):
            self.push(StreamEvent("error", error_message=self._result.error_message))
        else:
            self.push(StreamEvent("done"))


def _is_the_callers_own(exc: BaseException | None) -> bool:
    """Whether the error of the block has nothing to do with cancellation, so that the task group need not see it."""
    if isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[Any]", exc)
        return group.subgroup(anyio.get_cancelled_exc_class()) is None
    return isinstance(exc, Exception)
