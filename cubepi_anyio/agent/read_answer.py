"""Read the model's answer as it comes and announce each event.

::

    the producer, a task          the run
    push / send ──▶ [ buffer ] ──▶ announce ──▶ listeners
                                   │
                                   nothing to read: wait, no longer than the model may be silent

The provider writes in a task of its own and the run reads, whatever the listeners are. So a listener that is awaited
never stands in a cancel scope of the provider, and a bug of a listener never runs through the provider's ``except``.

Two rules make the reading cheap and right:

* What lies ready is read without a scope and without a step of the scheduler; listeners may take their time there.
* Where the model has to be waited for, a scope with the deadline of its silence stands around the waits, and around
  nothing that another waits for: it is left as soon as a listener has to be awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..events.stream import StreamEvent
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
    stream: MessageStream | None = None
    with anyio.CancelScope(deadline=silence.deadline):
        stream = await open_stream()
    if stream is None:
        run.open_answer(MessageStream())
        run.reach_limit(silence.limit, silence.bound_seconds or 0)
        return None
    run.open_answer(stream)
    async with stream:
        while not stream.is_over:
            if not await _read_on(run, stream, silence):
                run.reach_limit(silence.limit, silence.bound_seconds or 0)
                return None
        # What lies ready is read without a checkpoint: a run that a listener has ended hears of it here.
        await checkpoint_if_cancelled()
        try:
            return stream.result_nowait()
        except anyio.WouldBlock:
            return await stream.result()


async def _read_on(run: Run, stream: MessageStream, silence: Silence) -> bool:
    """Read what lies ready, then wait for the model, until the end or until a listener has to be awaited.

    False if the model is silent for too long.
    """
    outbox = run.outbox
    while (event := stream.next_nowait()) is not None:
        _announce(run, event, silence)
        if outbox.waiting:
            await outbox.flush()
    silence.begin()
    with anyio.CancelScope(deadline=silence.deadline) as scope:
        while not (outbox.waiting or stream.is_over):
            event = stream.next_nowait()
            if event is None:
                silence.begin()
                event = await anext(stream)
            _announce(run, event, silence)
    if scope.cancelled_caught:
        return not silence.is_too_long()
    if outbox.waiting:
        await outbox.flush()
    return True


def _announce(run: Run, event: StreamEvent, silence: Silence) -> None:
    if silence.waits_for_token and event.type != "start":
        silence.end_first()
        run.phase = "streaming"
    if not event.is_terminal:
        run.relay(event)
