"""Read the model's answer as it comes, announce each event, and notice when the model is silent for too long.

Where handing an event on takes no waiting, the producer runs in place, in the run's own task, and nothing is buffered.
Where it does, the producer runs beside, as for any other consumer: a listener that is waited for must not stand in the
scopes of a provider.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..events.stream import StreamEvent
from ..stream.message_stream import LINGER_SECONDS, MessageStream
from ..types.messages import AssistantMessage
from .run import Run

__all__ = ("read_answer",)


_LATE_SECONDS = 0.05
"""How late a silence may be noticed where the deadline would have to be moved for every event."""


async def read_answer(run: Run, open_stream: Callable[[], Awaitable[MessageStream]]) -> AssistantMessage | None:
    """Ask for the stream of an answer and read it to its end; ``None`` if a limit ended it.

    A checkpoint if anything has to be waited for. Cancelled, it leaves the answer open, and the producer has gone.
    """
    silence = _Silence(run)
    ear: _Ear | None = None
    with anyio.CancelScope(deadline=silence.deadline) as scope:
        stream = await open_stream()
        run.open_answer(stream)
        if stream.has_producer and run.hears_at_once:
            ear = _Ear(run, stream, silence, scope)
            await stream.run_in_place(ear)
    if run.stream is None:
        run.open_answer(MessageStream())
        silence.reach_limit()
    elif ear is None:
        return await _read_beside(run, run.stream, silence)
    elif scope.cancelled_caught and not ear.lets_it_linger:
        silence.reach_limit()  # whatever the producer makes of its cancellation
    return run.stream.result_nowait() if run.stream is not None and run.limit is None else None


class _Silence:
    """How long the model may say nothing.

    First from the moment it is asked to its first token, then between two events. What the listeners take is not the
    model's time: a silence begins when there is nothing to read.
    """

    __slots__ = ("_bound", "_limit", "_run", "counts_waits", "is_on", "since", "waits_for_token")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._limit = "first_token_timeout"
        self._bound = run.config.limits.first_token_timeout
        self.since = anyio.current_time() if self._bound is not None else 0.0
        self.counts_waits = False
        """Whether a wait begins a new silence. The head of an answer is no token, so at first none does."""
        self.is_on = False
        """Whether a silence has begun and no event has ended it."""
        self.waits_for_token = True
        """Whether the deadline that a scope was given may still be the one for the first token."""

    @property
    def deadline(self) -> float:
        """When the silence is too long, by the event loop's clock."""
        return math.inf if self._bound is None else self.since + self._bound

    @property
    def may_be_late_seconds(self) -> float:
        """How much later a silence may be noticed, so that the deadline need not be moved at each wait."""
        return 0.0 if self._bound is None else min(_LATE_SECONDS, self._bound / 10)

    def end(self, event: StreamEvent) -> None:
        """The model has said something."""
        self.is_on = False
        if not self.counts_waits and event.type != "start":
            self._limit, self._bound = "idle_timeout", self._run.config.limits.idle_timeout
            self.counts_waits = True
            self._run.phase = "streaming"

    def begin(self) -> None:
        """There is nothing to read now."""
        self.is_on = True
        if self._bound is not None:
            self.since = anyio.current_time()

    def is_too_long(self) -> bool:
        """Whether the time is over."""
        if self.counts_waits and not self.is_on:
            # It ran out while events lay ready: what took so long were those who hear of them.
            self.since = anyio.current_time()
        return anyio.current_time() >= self.deadline

    def reach_limit(self) -> None:
        """End the run because of this silence."""
        self._run.reach_limit(self._limit, self._bound or 0)


# --- in place --------------------------------------------------------------------------------


class _Ear:
    """Hears a producer that runs in the run's own task, inside ``scope``, whose deadline is that of the silence."""

    __slots__ = ("_deadline", "_run", "_scope", "_silence", "_stream", "lets_it_linger")

    def __init__(self, run: Run, stream: MessageStream, silence: _Silence, scope: anyio.CancelScope) -> None:
        self._run, self._stream, self._silence, self._scope = run, stream, silence, scope
        self._deadline = -math.inf
        """What the scope's deadline was set to when the producer last waited."""
        self.lets_it_linger: bool = False
        """Whether the producer has said its last word in time, and the deadline is for what it does afterwards."""

    def hear(self, event: StreamEvent) -> bool:
        silence, run = self._silence, self._run
        if silence.is_on or not silence.counts_waits:
            silence.end(event)
        if event.is_terminal or not run.listeners.subscriptions:
            return run.outbox.waiting
        try:
            run.relay(event)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            # A listener's bug is not the provider's: it ends the run, and the producer is cancelled.
            self._stream.ignore_rest()
            run.fail(error)
        return run.outbox.waiting

    def before_wait(self) -> None:
        silence = self._silence
        if silence.is_on:
            return
        if self._stream.is_over:
            silence.is_on = True
            if not self._scope.cancel_called:
                self.lets_it_linger = True
                self._scope.deadline = anyio.current_time() + LINGER_SECONDS
        elif silence.counts_waits:
            silence.begin()
            if not silence.deadline <= self._deadline <= silence.deadline + _LATE_SECONDS:
                self._deadline = silence.deadline + silence.may_be_late_seconds
                self._scope.deadline = self._deadline

    async def pause(self) -> None:
        await checkpoint()
        if self._run.outbox.waiting:
            # Somebody has come to listen in the meantime who has to be waited for. It is not the model's time.
            self._scope.deadline = self._deadline = math.inf
            self._silence.is_on = True
            await self._run.hand_on()
            self._silence.is_on = False


# --- beside ----------------------------------------------------------------------------------


async def _read_beside(run: Run, stream: MessageStream, silence: _Silence) -> AssistantMessage | None:
    async with stream:
        await _relay(run, stream, silence)
        # What lies ready is read without a checkpoint: a run that a listener has ended hears of it here.
        await checkpoint_if_cancelled()
        return await _result_of(stream) if run.limit is None else None


async def _result_of(stream: MessageStream) -> AssistantMessage:
    try:
        return stream.result_nowait()
    except anyio.WouldBlock:
        return await stream.result()


async def _relay(run: Run, stream: MessageStream, silence: _Silence) -> None:
    """Read the stream to its terminal event, announcing each; stop when it is silent for too long.

    A scope with the deadline stands around the reading of many events. It is set anew only when it has run out and
    there was something in the meantime, because setting it for each wait costs more than the wait. What lies ready
    after listeners were waited for needs none.
    """
    while True:
        with anyio.CancelScope(deadline=silence.deadline) as scope:
            if await _read_on(run, stream, silence, scope):
                return
        if not scope.cancelled_caught:
            await run.outbox.flush()
            if await _read_what_lies_ready(run, stream, silence):
                return
        elif silence.is_too_long():
            silence.reach_limit()
            return


async def _read_on(run: Run, stream: MessageStream, silence: _Silence, scope: anyio.CancelScope) -> bool:
    """Read until the terminal event (true), or until listeners have to be waited for, which is no silence (false)."""
    while True:
        if silence.counts_waits and not silence.is_on and not stream.is_readable:
            silence.begin()
            if silence.waits_for_token:
                silence.waits_for_token = False
                scope.deadline = silence.deadline
        if await _read_one(run, stream, silence):
            return True
        if run.outbox.waiting:
            return False


async def _read_what_lies_ready(run: Run, stream: MessageStream, silence: _Silence) -> bool:
    """Read until the terminal event (true), or until the model has to be waited for (false)."""
    while stream.is_readable:
        if await _read_one(run, stream, silence):
            return True
        await run.outbox.flush()
    return False


async def _read_one(run: Run, stream: MessageStream, silence: _Silence) -> bool:
    """Read and announce an event; whether it was the terminal one."""
    event = await anext(stream)
    silence.end(event)
    if event.is_terminal:
        return True
    run.relay(event)
    return False
