"""Read the model's answer as it comes and announce each event.

::

    the task of the producer      the run
    push / send ──▶ [ buffer ] ──▶ announce ──▶ listeners
                                   │
                                   nothing to read: wait, no longer than the model may be silent

The provider writes in the task that the run has for all its answers, and the run reads, whatever the listeners are. So
a listener that is awaited never stands in a cancel scope of the provider, and a bug of a listener never runs through
the provider's ``except``.

Two rules make the reading cheap and right:

* What lies ready is read without a deadline and without a step of the scheduler; listeners may take their time there.
* Where the model has to be waited for, a scope with the deadline of its silence stands around the waits, and around
  nothing that another waits for: it is left, or its deadline is taken off, before a listener is awaited.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..stream.message_stream import MessageStream
from ..types.messages import AssistantMessage
from .run import Run
from .silence import Silence

__all__ = ("read_answer",)


async def read_answer(run: Run, open_stream: Callable[[], Awaitable[MessageStream]]) -> AssistantMessage | None:
    """Ask for the stream of an answer and read it to its end; ``None`` if a limit ended it.

    A checkpoint if anything has to be waited for. Cancelled, it leaves the answer open, and the producer has gone.
    """
    silence = Silence(run.config.limits)
    record, stream = run.record, None
    with anyio.CancelScope(deadline=silence.deadline) as first:
        stream = await open_stream()
        record.open_answer(stream)
        if run.producer is not None:
            stream.use_worker(run.producer)
        async with stream:
            await _read_to_first_token(run, stream, silence, first)
            while not stream.is_over:
                await _read_what_lies_ready(run, stream, silence)
                if not (stream.is_over or await _wait_for_the_model(run, stream, silence)):
                    run.ending.reach_limit(silence.limit, silence.bound_seconds or 0)
                    return None
            # What lies ready is read without a checkpoint: a run that was ended meanwhile hears of it here.
            if run.ending.is_called:
                await checkpoint_if_cancelled()
            try:
                return stream.result_nowait()
            except anyio.WouldBlock:
                return await stream.result()
    # The first silence was too long, whatever the provider made of its cancellation.
    if stream is None:
        record.open_answer(MessageStream())
    run.ending.reach_limit(silence.limit, silence.bound_seconds or 0)
    return None


async def _read_to_first_token(run: Run, stream: MessageStream, silence: Silence, scope: anyio.CancelScope) -> None:
    """Announce the head of the answer and its first token; ``scope`` has the deadline while the model is waited for.

    Most answers that lie ready at once are read with this one scope.
    """
    outbox = run.record.outbox
    while silence.waits_for_token and not stream.is_over:
        event = stream.next_nowait()
        if event is None:
            if scope.deadline != silence.deadline:
                scope.deadline = silence.deadline
            event = await anext(stream)
        silence.end(event)
        if not silence.waits_for_token:
            run.phase = "streaming"
        if not event.is_terminal:
            run.record.relay(event)
        if outbox.waiting:
            scope.deadline = math.inf
            await outbox.flush()
    scope.deadline = math.inf


async def _read_what_lies_ready(run: Run, stream: MessageStream, silence: Silence) -> None:
    """Announce what can be read without waiting for the model, and wait for the listeners."""
    while (event := stream.next_nowait()) is not None:
        if silence.goes_on:
            silence.end(event)
        if not event.is_terminal:
            run.record.relay(event)
        if run.record.outbox.waiting:
            await run.record.outbox.flush()


async def _wait_for_the_model(run: Run, stream: MessageStream, silence: Silence) -> bool:
    """Announce what comes, until the end or until a listener has to be awaited; false after too long a silence."""
    record, next_nowait = run.record, stream.next_nowait
    outbox = record.outbox
    silence.begin()
    with anyio.CancelScope(deadline=silence.deadline) as scope:
        while not outbox.waiting:
            event = next_nowait()
            if event is None:
                silence.begin()
                event = await anext(stream)
            if silence.goes_on:
                silence.end(event)
            if event.type == "done" or event.type == "error":
                return True
            record.relay(event)
    if scope.cancelled_caught:
        return not silence.is_too_long()
    await outbox.flush()
    return True
