"""What a provider says while it writes one message.

A well-formed stream: ``start``; for each block ``X_start``, ``X_delta``\\*, ``X_end`` with the block's
``content_index``, where X is ``text``, ``thinking``, ``toolcall``, ``image`` or ``opaque``; then exactly one
``done`` or ``error``. Nothing follows a terminal event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..types.content import AssistantContent
from ..types.messages import AssistantMessage
from ..types.usage import Usage

__all__ = ("SnapshotSource", "StreamEvent", "StreamEventType")

StreamEventType = Literal[
    "start",
    "text_start",
    "text_delta",
    "text_end",
    "thinking_start",
    "thinking_delta",
    "thinking_end",
    "toolcall_start",
    "toolcall_delta",
    "toolcall_end",
    "image_start",
    "image_end",
    "opaque_start",
    "opaque_end",
    "done",
    "error",
]
"""What an event is: ``X_start``, ``X_delta`` or ``X_end`` of a block, or ``start``, ``done`` and ``error``."""


class SnapshotSource(Protocol):
    """Whatever keeps the message that events are applied to and can say how it looked before."""

    def snapshot(self, mark: int, length: int) -> AssistantMessage:
        """The message as it stood at event number ``mark``, whose block was then ``length`` long."""
        ...

    def preview_arguments(self, content_index: int, mark: int, length: int) -> dict[str, object]:
        """The best reading of a call's arguments as they stood at event number ``mark``."""
        ...


@dataclass(slots=True, init=False)
class StreamEvent:
    """One step of a message as it is written.

    ``block`` is what a ``X_start`` or ``X_end`` event knows of its block besides what the deltas say: the id and
    name of a call, the signature of a thinking block, or the whole of a block that has no deltas.
    ``stop_reason`` and ``usage`` belong to terminal events, ``error_message`` and ``error`` to ``error``.
    """

    type: StreamEventType
    content_index: int | None
    delta: str | None
    block: AssistantContent | None
    error_message: str | None
    error: Exception | None
    stop_reason: str | None
    usage: Usage | None
    given: AssistantMessage | None = field(repr=False, compare=False)
    """What the provider said the message is: its word, never what somebody has read."""
    source: SnapshotSource | None = field(repr=False, compare=False)
    """The message of the stream the event was pushed into; ``None`` before."""
    mark: int = field(repr=False, compare=False)
    length: int = field(repr=False, compare=False)

    def __init__(
        self,
        type: StreamEventType,
        content_index: int | None = None,
        delta: str | None = None,
        partial: AssistantMessage | None = None,
        *,
        block: AssistantContent | None = None,
        error_message: str | None = None,
        error: Exception | None = None,
        stop_reason: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.type = type
        self.content_index = content_index
        self.delta = delta
        self.block = block
        self.error_message = error_message
        self.error = error
        self.stop_reason = stop_reason
        self.usage = usage
        self.given = partial
        self.source = None
        self.mark = self.length = 0

    @property
    def partial(self) -> AssistantMessage | None:
        """The message as it stood at this event; later deltas do not change it.

        An event made with a ``partial`` gives that one. Otherwise it is built when it is read, in time proportional to
        the message; the one that was read last is kept by the stream, so several readers of one event share it.
        Reading it changes nothing. ``None`` for an event that never went through a stream.
        """
        if self.given is not None or self.source is None:
            return self.given
        return self.source.snapshot(self.mark, self.length)

    def unbound(self) -> StreamEvent:
        """A copy with all that the provider said, which no stream knows yet."""
        return StreamEvent(
            self.type,
            self.content_index,
            self.delta,
            self.given,
            block=self.block,
            error_message=self.error_message,
            error=self.error,
            stop_reason=self.stop_reason,
            usage=self.usage,
        )

    def preview_arguments(self) -> dict[str, object]:
        """The arguments of a call that is still being written, as far as they can be read; ``{}`` if not at all.

        Costs a parse when the text has grown by a tenth since the last one, so reading it at each delta, in their
        order, is linear in the text; going back to an earlier event costs a parse each time. Never run a tool with
        a preview: numbers and texts may be cut.
        """
        if self.source is None or self.content_index is None:
            return {}
        return self.source.preview_arguments(self.content_index, self.mark, self.length)

    @property
    def is_terminal(self) -> bool:
        """Whether this is the last event of its stream."""
        return self.type == "done" or self.type == "error"
