"""One model's answer inside another stream: held back until it says something, then passed on event by event.

What asks several models, or one several times, may go on to the next only while nothing of an answer has been
delivered. So the head of an answer and the beginning of a block, which say nothing yet, wait for the first token. An
answer that fails before it is a ``Failure``, a value; after it, its failure is the outer stream's as well.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ...errors import IncompleteStream, ProviderError, ProviderTimeout, ProviderUnavailable, error_text
from ...events.stream import StreamEvent
from ...stream.message_stream import MessageStream
from ...types.messages import AssistantMessage
from ..model_call import AskedModel, ModelCall, StreamingModel

__all__ = (
    "ComposedModel",
    "End",
    "Failure",
    "end_alike",
    "error_of",
    "exhausted",
    "name_of",
    "note",
    "relay",
    "relay_within",
    "tell",
)

_log = logging.getLogger(__name__)


class ComposedModel(AskedModel):
    """A model that asks others: its stream's producer is ``_produce``."""

    async def _produce(self, call: ModelCall, outer: MessageStream) -> None:
        raise NotImplementedError

    async def open(self, call: ModelCall) -> MessageStream:
        """Return the stream of one answer; enter it to start asking. A checkpoint."""
        await checkpoint()
        return MessageStream(partial(self._produce, call))


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """How an answer failed before anything of it was delivered."""

    model: StreamingModel
    error: Exception
    held: Sequence[StreamEvent] = ()
    terminal: StreamEvent | None = field(default=None, repr=False)
    message: AssistantMessage | None = field(default=None, repr=False)

    @property
    def was_aborted(self) -> bool:
        """Whether the provider says that it was told to stop, which is no reason to ask again."""
        return self.terminal is not None and self.terminal.stop_reason == "aborted"

    async def pass_on(self, outer: MessageStream) -> None:
        """End ``outer`` as this answer ended."""
        for event in self.held:
            outer.push(event)
        if self.terminal is None:
            outer.fail(self.error)
            return
        if self.message is not None:
            outer.set_result(self.message)
        await outer.send(self.terminal)


End = Callable[[MessageStream, MessageStream, StreamEvent], Awaitable[None]]
"""Ends the outer stream (the first) as the inner one (the second) ended, whose terminal event is the third."""


async def end_alike(outer: MessageStream, stream: MessageStream, terminal: StreamEvent) -> None:
    """End ``outer`` with the result and the terminal event of ``stream``. A checkpoint."""
    outer.set_result(await stream.result())
    await outer.send(terminal)


async def relay(
    call: ModelCall,
    model: StreamingModel,
    outer: MessageStream,
    *,
    begin: Callable[[], Awaitable[None]],
    end: End = end_alike,
) -> Failure | None:
    """Ask ``model`` and write its answer into ``outer``; how it failed, if nothing has been delivered then.

    ``begin`` is awaited when the first token is there and before anything is passed on, ``end`` when all but the
    terminal event has been. The connection is closed when this returns or raises. A checkpoint; waits while the
    consumer of ``outer`` is behind.
    """
    try:
        stream = await call.ask(model)
    except Exception as error:
        return Failure(model, error)
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
        await checkpoint_if_cancelled()  # noqa: ASYNC102 - it only asks
        return Failure(model, IncompleteStream("the provider cancelled itself"))  # noqa: ASYNC104 - it was not ours
    held: list[StreamEvent] = []
    has_begun = False
    async with stream:
        async for event in stream:
            if not has_begun:
                if event.type == "error":
                    return Failure(model, error_of(event, model), held, event, await stream.result())
                if event.type == "start" or event.type.endswith("_start"):
                    held.append(event)  # only the head of an answer, or of a block
                    continue
                has_begun = True
                await begin()
                for waiting in held:
                    outer.push(waiting)
            if event.is_terminal:
                await end(outer, stream, event)
                return None
            await outer.send(event)
    raise AssertionError("a stream ends with a terminal event")


async def relay_within(
    call: ModelCall,
    model: StreamingModel,
    outer: MessageStream,
    *,
    deadline: float = math.inf,
    late: Callable[[], ProviderTimeout],
    begin: Callable[[], None] | None = None,
) -> Failure | None:
    """``relay``, giving up with the error that ``late`` makes if no token is there at ``deadline`` (the loop's clock).

    ``begin`` is called when the first token is there in time.
    """
    with anyio.CancelScope(deadline=deadline) as scope:

        async def on_time() -> None:
            await checkpoint_if_cancelled()  # a deadline that has passed goes before a token that came with it
            scope.deadline = math.inf
            if begin is not None:
                begin()

        return await relay(call, model, outer, begin=on_time)
    return Failure(model, late())


def exhausted(failures: Sequence[Failure]) -> ProviderUnavailable:
    """The error of a call that none of several models answered; its cause is the last one's."""
    waits = [getattr(failure.error, "retry_after_seconds", None) for failure in failures]
    known = [wait for wait in waits if wait is not None]
    reasons = "; ".join(
        # A provider's error says in its whole text what stands before it here.
        f"{name_of(f.model)}: {type(f.error).__name__}: "
        f"{f.error.message if isinstance(f.error, ProviderError) else error_text(f.error)}"
        for f in failures
    )
    error = ProviderUnavailable(
        f"none of {len(failures)} models answered: {reasons}",
        errors=[failure.error for failure in failures],
        # Only if each of them says when: one that does not may be back sooner.
        retry_after_seconds=min(known) if len(known) == len(waits) else None,
    )
    error.__cause__ = failures[-1].error
    return error


def name_of(model: StreamingModel) -> str:
    """A model in a word, for messages."""
    spec = model.spec
    return f"{spec.provider}/{spec.id}" if spec.provider else spec.id


def note(error: Exception, text: str) -> None:
    """Add a note to an error, once: a provider may give one error to several calls."""
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


async def tell(callback: Callable[[Any], object] | None, news: object) -> None:
    """Tell a callback, sync or async; one that fails is logged and passed over. Cancellation leaves as itself."""
    if callback is None:
        return
    try:
        outcome = callback(news)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        _log.exception("a callback of a model that asks others failed and was passed over")


def error_of(event: StreamEvent, model: StreamingModel) -> Exception:
    """The typed error of an ``error`` event; a ``ProviderError`` where the provider gave only a text."""
    if event.error is not None:
        return event.error
    spec = model.spec
    text = event.error_message or "the provider gave no reason"
    return ProviderError(text, provider=spec.provider, model=spec.id)
