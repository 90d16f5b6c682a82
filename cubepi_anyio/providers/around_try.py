"""A hook around one try that asks a provider.

The try's answer passes through as it comes, all but its last event: that waits until the hook has returned. A consumer
leaves a stream when it has read the end, so a hook that was still closing would be cancelled with it; and an answer
whose end was delivered could no longer become an error. The head of an answer waits for the first token, as with
models that ask others (``composed/relay.py``): until then the hook may answer in its place.

``BoundModel.open`` is the one place where a hook is called. So a model that asks several, or one several times, opens
and closes it once for each try, whatever becomes of the try: answered, failed, cut off, cancelled.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic_core import to_json

from ..errors import IncompleteStream, UsageError, error_text
from ..events.stream import StreamEvent
from ..stream.draft import DraftWriter
from ..stream.message_stream import MessageStream
from ..types.content import AssistantContent, TextContent, ThinkingContent, ToolCall
from ..types.messages import AssistantMessage
from .composed.relay import Failure, end_alike, error_of, relay
from .model_call import AroundTry, ModelCall, ModelOutcome, StreamingModel

__all__ = ("stream_of_try",)


def stream_of_try(model: StreamingModel, call: ModelCall, around: AroundTry) -> MessageStream:
    """The stream of one try: ``around`` is called when it is entered; ``call`` must not name it any more."""
    return MessageStream(partial(_produce, model, call, around))


async def _produce(model: StreamingModel, call: ModelCall, around: AroundTry, outer: MessageStream) -> None:
    body = _Body(model, call, outer)
    given: Any = await around(model, body)
    if given is not None and not isinstance(given, AssistantMessage):
        raise TypeError(f"around_try returns an AssistantMessage or None, not {type(given).__name__}")
    outcome = body.outcome
    if given is not None and not (outcome is not None and outcome.said):
        await _replay(given, outer)
    elif outcome is None:
        raise UsageError("around_try gave no answer and asked for none; await body(), or return a message")
    else:
        await body.end()


class _Body:
    """The try itself, and how it ended."""

    def __init__(self, model: StreamingModel, call: ModelCall, outer: MessageStream) -> None:
        self.outcome: ModelOutcome | None = None
        self._model, self._call, self._outer = model, call, outer
        self._was_called = False
        self._said = False
        self._failure: Failure | None = None
        self._terminal: StreamEvent | None = None
        self._inner: MessageStream | None = None

    async def __call__(self) -> ModelOutcome:
        if self._was_called:
            raise UsageError("around_try asks once; a RetryModel asks again, with a try for each time")
        self._was_called = True
        try:
            self._failure = await relay(
                self._call, self._model, self._outer, begin=self._note_the_beginning, end=self._keep_the_end
            )
        except BaseException:
            cut = self._outer.broken_message().model_copy(update={"stop_reason": "aborted"})
            self.outcome = ModelOutcome(message=cut, said=self._said)
            raise
        if self._failure is not None:
            self.outcome = ModelOutcome(message=self._message_of(self._failure), error=self._failure.error)
        assert self.outcome is not None
        return self.outcome

    async def _note_the_beginning(self) -> None:
        self._said = True

    async def _keep_the_end(self, outer: MessageStream, inner: MessageStream, terminal: StreamEvent) -> None:
        self._inner, self._terminal = inner, terminal
        error = error_of(terminal, self._model) if terminal.type == "error" else None
        self.outcome = ModelOutcome(message=await inner.result(), error=error, said=True)

    def _message_of(self, failure: Failure) -> AssistantMessage:
        spec = self._model.spec
        return failure.message or AssistantMessage(
            provider_id=spec.provider,
            model_id=spec.id,
            api=spec.api,
            stop_reason="error",
            error_message=error_text(failure.error),
            error_type=type(failure.error).__name__,
        )

    async def end(self) -> None:
        """End the outer stream as the try ended."""
        if self._failure is not None:
            await self._failure.pass_on(self._outer)
        elif self._inner is not None and self._terminal is not None:
            await end_alike(self._outer, self._inner, self._terminal)
        else:
            self._outer.fail(IncompleteStream("the try was cut off by what stood around it"))


async def _replay(message: AssistantMessage, outer: MessageStream) -> None:
    """Write ``message`` as the stream of its own coming."""
    blank = AssistantMessage()
    head: dict[str, Any] = {"content": [], "stop_reason": blank.stop_reason, "error_message": None, "error_type": None}
    writer = DraftWriter(outer.push)
    writer.started = True
    outer.set_result(message)
    outer.push(StreamEvent("start", partial=message.model_copy(update=head)))
    for block in message.content:
        _write(writer, block)
        await outer.wait_writable()
    if message.stop_reason in ("error", "aborted"):
        text = message.error_message
        await outer.send(StreamEvent("error", error_message=text, stop_reason=message.stop_reason, usage=message.usage))
    else:
        writer.done(message.stop_reason, usage=message.usage)


def _write(writer: DraftWriter, block: AssistantContent) -> None:
    match block:
        case TextContent():
            opened, text = TextContent(vendor=block.vendor), block.text
        case ThinkingContent(redacted=None):
            opened, text = ThinkingContent(), block.thinking
        case ToolCall():
            opened, text = ToolCall(id=block.id, name=block.name), block.invalid_arguments
            text = to_json(block.arguments).decode() if text is None else text
        case _:
            writer.block(block)
            return
    index = writer.open(opened)
    if text:
        writer.append(index, text)
    writer.close(index, block)
