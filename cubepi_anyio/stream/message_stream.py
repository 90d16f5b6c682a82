"""``MessageStream``: one message as it is written, then its result.

::

      producer, a task                                     consumer, whose block it is
      push / send ──▶ builder ──▶ [ buffer, 64 events ] ──▶ anext / result
                      the message as it is written          the message as it was read

A memory object stream with one producer, one consumer and a result. What holds:

* **There is one terminal event, and it is the last.** Whoever ends first, the producer with its last word, an error of
  its, or a consumer that leaves, ends the buffer; what is pushed afterwards is dropped. A producer that ends without a
  last word is given one.
* **The producer lives inside the block** (``TaskBlock``). Before it is entered nothing has begun, after it is left
  nothing goes on. An iterator is an object, never an async generator: trio leaves a generator that is not exhausted to
  the garbage collector, and the connection with it.
* **The consumer knows what it has read, and no more.** Its message is that of the last event it took, however far the
  builder is by then; so an answer that is cut holds what was heard of it.
* **An event belongs to one stream.** It can tell how the message of *its* stream was at this event. An event that
  another stream has is copied when it is pushed, so reading it, before or afterwards, changes nothing in either.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..errors import IncompleteStream, StreamMisuse, error_text
from ..events.stream import StreamEvent
from ..types.content import ToolCall
from ..types.messages import AssistantMessage
from ..types.usage import Usage
from .block import TaskBlock, Worker
from .buffer import EventBuffer, StreamStatistics
from .builder import MessageBuilder, is_sendable, stop_reason_of
from .produce import call_with

__all__ = ("MessageStream", "Produce")

Produce = Callable[["MessageStream"], Awaitable[object]] | Callable[[], Awaitable[object]]
"""The producer of a stream: an async function, called with the stream if it takes a parameter."""

_LINGER_SECONDS = 0.05
"""How long a producer that has said its last word may take to put its connection away."""

_RESULT_SECONDS = 1.0
"""How long ``result`` waits, after ``done``, for a provider that builds messages itself to set its own."""


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
        self._producer_ended = False
        self._builder: MessageBuilder | None = None
        self._given: AssistantMessage | None = None
        """The provider's own message, where that is what the message is now."""
        self._gives_messages = False
        self._open_blocks: frozenset[int] = frozenset()
        self._terminal: StreamEvent | None = None
        """The terminal event, from the moment it is pushed."""
        self._buffer: EventBuffer[StreamEvent] = EventBuffer()
        """Ended by the terminal event, by a producer that has gone, and by a consumer that has left."""
        self.next_nowait: Callable[[], StreamEvent | None] = self._buffer.take_nowait
        """Return the next event without a checkpoint; ``None`` if there is none, and where ``anext`` has to pass one.

        For a consumer that does something else before it waits. After ``None``, await ``anext``.
        """
        self._block = TaskBlock("a message stream")
        self._worker: Worker | None = None
        self._entered = False
        self._closed = False
        """Whether the block was left."""
        self._result: AssistantMessage | None = None
        self._settled: anyio.Event | None = None
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

    def use_worker(self, worker: Worker) -> None:
        """Let the producer run in the task of ``worker`` when the stream is entered, instead of in one of its own.

        For whoever enters many streams one after the other, as a run does. Nothing else changes.
        """
        self._worker = worker
        self._buffer.new_event = worker.new_event

    def push(self, event: StreamEvent) -> None:
        """Hand over one event without waiting. What follows a terminal event is dropped.

        An event that was pushed before, into this stream or another one, is copied; it stays as it is.
        """
        buffer = self._buffer
        if buffer.ended:
            return
        if event.source is not None:
            event = event.unbound()
        given = event.given
        if given is not None:
            if self._given is None:
                self._open_blocks = self._builder.open_blocks() if self._builder is not None else frozenset()
            self._given = given
            _, _, step = event.type.partition("_")
            if step:
                self._gives_messages = True
                index = event.content_index if event.content_index is not None else len(given.content) - 1
                if (index in self._open_blocks) is (step == "end"):
                    self._open_blocks = self._open_blocks ^ {index}
            event.source = _Given(given, self._open_blocks)
        else:
            builder = self._builder
            if builder is None or self._given is not None:
                # The provider's own message is authoritative, so later deltas go on from it.
                self._builder = builder = MessageBuilder(self._given, open_blocks=self._open_blocks)
                self._given = None
            builder.apply(event)
        buffer.put(event)
        if event.type == "done" or event.type == "error":
            self._terminal = event
            buffer.end()

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
        return self._buffer.is_writable

    async def wait_writable(self) -> None:
        """Return when the consumer has read enough for more to be sent, or will read no more.

        A checkpoint if it has to wait, and if no more is read: a producer that goes on all the same can be cancelled.
        """
        await self._buffer.wait_writable()

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
        if self.is_over and self._result is not None:
            return self._result
        last = self._buffer.last
        partial = last.partial if last is not None else None
        return partial if partial is not None else AssistantMessage()

    @property
    def is_over(self) -> bool:
        """Whether the terminal event has been read."""
        return self._terminal is not None and self._buffer.last is self._terminal

    def statistics(self) -> StreamStatistics:
        """What fills the stream and who waits for it, at this moment."""
        return self._buffer.statistics(is_entered=self._entered)

    @property
    def error(self) -> Exception | None:
        """The typed error the stream ended with, if it did."""
        return self._terminal.error if self._terminal is not None else None

    def broken_message(self) -> AssistantMessage:
        """What the consumer has read, as far as it may stay in a transcript although it is unfinished."""
        last = self._buffer.last
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
        produce = partial(self._run_producer, self._produce) if self._produce is not None else None
        await self._block.enter(produce, self._worker)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Cancel the producer and wait until it has gone; events not yet read are dropped. A checkpoint."""
        self._closed = True
        self._buffer.drop()
        if self._settled is not None:
            self._settled.set()
        if not self.is_over or exc is not None:
            self._block.cancel()
        await self._block.leave(exc, linger_seconds=_LINGER_SECONDS)  # noqa: ASYNC102 - a block waits for its task

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        event = self.next_nowait()
        if event is not None:
            return event
        if self._produce is not None and not self._entered:
            raise StreamMisuse("enter the stream before iterating: 'async with stream:' starts its producer")
        try:
            return await self._buffer.take()
        except StopAsyncIteration:
            if self.is_over:
                raise
            if self._closed:
                raise StreamMisuse("the stream was left before its end, and has nothing more to give") from None
            # The producer was cancelled before its last word, and this task was not: it is shielded.
            self._buffer.ended = False
            self.fail(_incomplete())
            return await anext(self)

    async def result(self) -> AssistantMessage:
        """Read to the end and return the finished message; events not yet read are passed over.

        A failure is a message with ``stop_reason="error"`` that keeps what had arrived, not an exception; its typed
        error is ``stream.error``. A stream that was left before its end gives what was read, with
        ``stop_reason="aborted"``. A stream that was not entered is run to its end in a scope of its own. A checkpoint.
        """
        if self._produce is not None and not self._entered:
            async with self:
                return await self.result()
        if self._closed and not self.is_over:
            await checkpoint()
            return self.broken_message().model_copy(update={"stop_reason": "aborted"})
        if not self.is_over:
            async for _ in self:
                pass
        await checkpoint()
        if self._result is None and not self._outcome_is_final():
            with anyio.move_on_after(_RESULT_SECONDS):
                while self._result is None and not self._outcome_is_final():
                    if self._settled is None:
                        self._settled = anyio.Event()
                    await self._settled.wait()
        self._settle_result()
        return self.message

    def result_nowait(self) -> AssistantMessage:
        """The finished message of a stream that has been read to its end.

        Raises ``WouldBlock`` if it was not, or if its producer may still set another result: then await ``result()``.
        """
        if not self.is_over or (self._result is None and not self._outcome_is_final()):
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
            if not self._closed:  # left before it was begun: then nothing of it happens
                await call_with(produce, self)
        except Exception as error:
            self.fail(error)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
            # The state of the enclosing scopes decides, not the type of the exception: raised again if one of them
            # is cancelled. Otherwise the producer cancelled itself, or somebody cancelled its task alone.
            await checkpoint_if_cancelled()  # noqa: ASYNC102 - a task group waits for its tasks
            self.fail(_incomplete())
        except BaseExceptionGroup as group:
            # trio mixes cancellations with the errors of a producer's own tasks. Only the errors count.
            errors = group.split(anyio.get_cancelled_exc_class())[1]
            if errors is not None and not isinstance(errors, Exception):
                raise
            await checkpoint_if_cancelled()  # noqa: ASYNC102 - a task group waits for its tasks
            self.fail(errors or _incomplete())
        else:
            self._supply_terminal()
        finally:
            self._producer_ended = True
            self._buffer.end()
            if self._settled is not None:
                self._settled.set()

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


def _incomplete() -> IncompleteStream:
    return IncompleteStream("the provider was cancelled before its message was complete")
