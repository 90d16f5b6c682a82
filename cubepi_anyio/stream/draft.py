"""Bookkeeping for a provider: say what arrives, and the events come out well-formed.

``DraftWriter`` is pure and hands each event to a function; ``MessageDraft`` writes into a stream and waits while
the consumer is behind. A custom provider needs ten lines::

    async def produce(stream: MessageStream) -> None:
        draft = MessageDraft(stream, model)
        async for token in my_backend(messages):
            await draft.text(token)
        await draft.done()
"""

from __future__ import annotations

from collections.abc import Callable

from anyio.lowlevel import checkpoint_if_cancelled

from ..errors import StreamMisuse, error_text
from ..events.stream import StreamEvent, StreamEventType
from ..types.content import AssistantContent, ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage
from ..types.model import Model
from ..types.usage import Usage
from .message_stream import MessageStream

__all__ = ("DraftWriter", "MessageDraft")

_DELTA: dict[type, StreamEventType] = {
    TextContent: "text_delta",
    ThinkingContent: "thinking_delta",
    ToolCall: "toolcall_delta",
}
_START: dict[type, StreamEventType] = {
    TextContent: "text_start",
    ThinkingContent: "thinking_start",
    ToolCall: "toolcall_start",
    ImageContent: "image_start",
    OpaqueContent: "opaque_start",
}
_END: dict[type, StreamEventType] = {
    TextContent: "text_end",
    ThinkingContent: "thinking_end",
    ToolCall: "toolcall_end",
    ImageContent: "image_end",
    OpaqueContent: "opaque_end",
}


def _drop(event: StreamEvent) -> None:
    """Where the events of an ended draft go."""


class DraftWriter:
    """Turns "this arrived" into events: starts, ends, indices and the terminal event are its business. Pure.

    Blocks are named by the index that ``open`` returned, and several may be open at once. ``text`` and ``thinking``
    need no index: they go on with the last block if it is of that kind and still open, and open one otherwise.
    """

    def __init__(self, emit: Callable[[StreamEvent], None], model: Model | None = None, *, api: str = "") -> None:
        self._emit = emit
        self._model = model
        self._api = api
        self._open: dict[int, type[AssistantContent]] = {}
        self._delta_types: dict[int, StreamEventType] = {}
        """Of the blocks that are open and can grow."""
        self._count = 0
        self._last = -1
        self._last_kind: type[AssistantContent] | None = None
        self.started: bool = False
        self.ended: bool = False

    def start(
        self,
        *,
        response_id: str | None = None,
        request_id: str | None = None,
        model_id: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Emit ``start`` with what is known of the message; the first call counts. Other methods call it if need be."""
        if self.started:
            return
        self.started = True
        header = AssistantMessage(
            usage=usage if usage is not None else Usage(),
            provider_id=self._model.provider if self._model is not None else "",
            model_id=model_id or (self._model.id if self._model is not None else ""),
            api=self._api or (self._model.api if self._model is not None else ""),
            response_id=response_id,
            request_id=request_id,
        )
        self._emit(StreamEvent("start", partial=header))

    def open(self, block: AssistantContent) -> int:
        """Begin a block, of which ``block`` says what is known so far, and return its index."""
        if not self.started:
            self.start()
        index = self._count
        self._count += 1
        kind = type(block)
        self._open[index] = kind
        if kind in _DELTA:
            self._delta_types[index] = _DELTA[kind]
        self._last, self._last_kind = index, kind
        self._emit(StreamEvent(_START[kind], index, block=block))
        return index

    def append(self, index: int, delta: str) -> None:
        """Let an open block grow by ``delta``: text, thinking, or the JSON text of a call's arguments."""
        delta_type = self._delta_types.get(index) or _DELTA[self._kind_of(index)]
        self._emit(StreamEvent(delta_type, index, delta))

    def close(self, index: int, block: AssistantContent | None = None) -> None:
        """End a block. ``block`` gives what its start did not; for text or arguments it lacks, the deltas do."""
        kind = self._kind_of(index)
        del self._open[index]
        self._delta_types.pop(index, None)
        if index == self._last:
            self._last_kind = None
        self._emit(StreamEvent(_END[kind], index, block=block))

    def _kind_of(self, index: int) -> type[AssistantContent]:
        try:
            return self._open[index]
        except KeyError:
            raise StreamMisuse(
                f"block {index} of the draft is not open; give the index that opening it returned"
            ) from None

    def is_open(self, index: int) -> bool:
        """Whether the block at ``index`` has begun and not ended."""
        return index in self._open

    def block(self, block: AssistantContent) -> int:
        """Add a whole block at once and return its index: redacted thinking, an image, a vendor's own block."""
        index = self.open(block)
        self.close(index)
        return index

    def text(self, delta: str, *, vendor: JsonObject | None = None) -> None:
        """Add to the text, opening a block and ending the one before it where needed; nothing opens no block."""
        if self._last_kind is not TextContent:
            if not delta:
                return
            self._close_running_text()
            self.open(TextContent(vendor=vendor))
        self._emit(StreamEvent("text_delta", self._last, delta))

    def thinking(self, delta: str) -> None:
        """Add to the thinking, opening a block and ending the one before it where needed; nothing opens no block."""
        if self._last_kind is not ThinkingContent:
            if not delta:
                return
            self._close_running_text()
            self.open(ThinkingContent())
        self._emit(StreamEvent("thinking_delta", self._last, delta))

    def tool_call(
        self, id: str, name: str, arguments: JsonObject | None = None, *, vendor: JsonObject | None = None
    ) -> int:
        """Begin a call and return its index; ``append`` its arguments, then ``close`` it.

        A call that is given its ``arguments`` is complete at once.
        """
        self._close_running_text()
        if arguments is not None:
            return self.block(ToolCall(id=id, name=name, arguments=arguments, vendor=vendor))
        return self.open(ToolCall(id=id, name=name, vendor=vendor))

    def _close_running_text(self) -> None:
        if self._last_kind is TextContent or self._last_kind is ThinkingContent:
            self.close(self._last)

    def done(self, stop_reason: str | None = None, *, usage: Usage | None = None) -> None:
        """End the blocks that are open, then the message."""
        if self.ended:
            return
        if not self.started:
            self.start()
        for index in list(self._open):
            self.close(index)
        self._end(StreamEvent("done", stop_reason=stop_reason, usage=usage))

    def fail(self, error: Exception, *, usage: Usage | None = None) -> None:
        """End the message with an error. Blocks that are open stay open: they are not complete."""
        if not self.ended:
            self._end(StreamEvent("error", error_message=error_text(error), error=error, usage=usage))

    def _end(self, terminal: StreamEvent) -> None:
        self.ended = True
        self._emit(terminal)
        self._emit = _drop  # nothing follows a terminal event


class MessageDraft:
    """A ``DraftWriter`` into a stream, waiting whenever the consumer is 64 events behind.

    Every method is a checkpoint when it has to wait; a cancelled wait loses nothing, the event has been handed over.
    """

    def __init__(self, stream: MessageStream, model: Model | None = None, *, api: str = "") -> None:
        self._stream = stream
        self.writer: DraftWriter = DraftWriter(stream.push, model, api=api)
        """The same draft without waiting, for code that parses a chunk at a time and then awaits ``flush()``."""

    async def flush(self) -> None:
        """Wait while the consumer is behind."""
        await self._stream.wait_writable()

    async def text(self, delta: str) -> None:
        """Add to the text."""
        self.writer.text(delta)
        if not self._stream.is_writable:
            await self._stream.wait_writable()

    async def thinking(self, delta: str) -> None:
        """Add to the thinking."""
        self.writer.thinking(delta)
        if not self._stream.is_writable:
            await self._stream.wait_writable()

    async def tool_call(self, id: str, name: str, arguments: JsonObject | None = None) -> int:
        """Begin a call; with ``arguments`` it is complete, else go on with ``arguments()`` and ``end_block()``."""
        index = self.writer.tool_call(id, name, arguments)
        if not self._stream.is_writable:
            await self._stream.wait_writable()
        return index

    async def arguments(self, index: int, delta: str) -> None:
        """Add to the JSON text of the arguments of the call at ``index``."""
        self.writer.append(index, delta)
        if not self._stream.is_writable:
            await self._stream.wait_writable()

    async def end_block(self, index: int, block: AssistantContent | None = None) -> None:
        """End the block at ``index``."""
        self.writer.close(index, block)
        await self._stream.wait_writable()

    async def done(self, stop_reason: str | None = None, *, usage: Usage | None = None) -> None:
        """End the message. Hears of a cancellation, but waits for nobody: after its last word a producer may go."""
        try:
            await checkpoint_if_cancelled()
        finally:
            self.writer.done(stop_reason, usage=usage)

    async def fail(self, error: Exception, *, usage: Usage | None = None) -> None:
        """End the message with an error, as ``done`` does without one."""
        try:
            await checkpoint_if_cancelled()
        finally:
            self.writer.fail(error, usage=usage)
