"""What has happened and is not yet stored and announced: messages for the store, events for the listeners.

Everything that happens is put here synchronously, in one order, and handed on afterwards. So a cancellation can
cut the handing on, never the record: settling hands on the rest.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

import anyio

from ..concurrency import AbortSignal
from ..events.agent import AgentEvent
from ..types.messages import Message

__all__ = ("Listener", "ListenerList", "MessageStore", "Outbox")

_log = logging.getLogger(__name__)

Listener = Callable[..., Any]
"""Called with ``(event, signal)`` or ``(event)``; may be async."""


class MessageStore(Protocol):
    """Where the messages of a run are kept."""

    async def append(self, messages: Sequence[Message]) -> None:
        """Store ``messages`` in order. A message whose id is stored already is passed over."""
        ...


class _Subscription:
    __slots__ = ("call", "is_async", "may_wait")

    def __init__(self, listener: Listener, *, may_wait: bool) -> None:
        self.call: Callable[[AgentEvent, AbortSignal], Any] = (
            listener if _wants_signal(listener) else lambda event, signal: listener(event)
        )
        """Hands an event on; what the listener returns may have to be awaited."""
        self.may_wait: bool = may_wait
        self.is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - asks for a coroutine function, not for callability
        )


def _wants_signal(listener: Listener) -> bool:
    try:
        parameters = inspect.signature(listener).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    second = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    # A parameter with a default and another name is the listener's own: ``lambda event, log=log: …``.
    return any(p.default is p.empty or p.name == "signal" for p in second)


class ListenerList:
    """The listeners of one agent, in the order they subscribed."""

    def __init__(self) -> None:
        self.subscriptions: tuple[_Subscription, ...] = ()
        self.has_async: bool = False
        """Whether one of them is known to be async."""
        self.may_wait: bool = False
        """Whether one of them now and then returns something to wait for."""

    def subscribe(self, listener: Listener, *, may_wait: bool = False) -> Callable[[], None]:
        """Add a listener; returns the function that takes it away again, which may be called twice.

        ``may_wait`` is said of a plain function that returns something to wait for only when it is behind.
        """
        if not callable(listener):
            raise TypeError(f"a listener is a function of (event) or (event, signal), not {type(listener).__name__}")
        subscription = _Subscription(listener, may_wait=may_wait)
        self._set((*self.subscriptions, subscription))

        def unsubscribe() -> None:
            self._set(tuple(other for other in self.subscriptions if other is not subscription))

        return unsubscribe

    def found_async(self, subscription: _Subscription) -> None:
        """A plain function turned out to return a coroutine: from now on there is something to await."""
        subscription.is_async = True
        self._set(self.subscriptions)

    def _set(self, subscriptions: tuple[_Subscription, ...]) -> None:
        self.subscriptions = subscriptions
        self.has_async = any(subscription.is_async for subscription in subscriptions)
        self.may_wait = any(subscription.may_wait for subscription in subscriptions)


_NO_EVENTS: deque[AgentEvent] = deque()
"""What an outbox has before it has anything: most of them never do, and a deque is large. Never appended to."""


class Outbox:
    """The outbox of one run.

    With plain functions as listeners and without a store, ``say`` hands an event on at once. Otherwise, or when a
    listener returns something to await, ``waiting`` is true and ``flush`` hands on: it stores first and announces
    then, one event at a time to one listener after the other, and whoever calls it waits until all is through.
    """

    __slots__ = (
        "_awaiting",
        "_events",
        "_held",
        "_is_broken",
        "_listeners",
        "_lock",
        "_signal",
        "_store",
        "_to_hear",
        "_unstored",
        "waiting",
    )

    def __init__(self, listeners: ListenerList, signal: AbortSignal, store: MessageStore | None = None) -> None:
        self._listeners = listeners
        self._signal = signal
        self._store = store
        self._unstored: list[Message] = []
        self._events: deque[AgentEvent] = _NO_EVENTS
        self._to_hear: Iterator[_Subscription] | None = None
        """Who has not been told of the first event yet, once telling it has begun."""
        self._awaiting: tuple[Awaitable[Any], ...] = ()
        """What plain functions returned to be waited for."""
        self._lock: anyio.Lock | None = None
        self._held = False
        self._is_broken = False
        """Whether one has failed: nothing more is handed on until the run is settled, so that one bug is one error."""
        self.waiting: bool = False
        """Whether something is to be handed on by ``flush``."""

    @property
    def is_slow(self) -> bool:
        """Whether handing on an event takes waiting, now or for any event."""
        return self._is_broken or self._held or self.waiting or self._store is not None or self._listeners.has_async

    def keep(self, message: Message) -> None:
        """Have a message stored before any event that is said after it."""
        if self._store is not None:
            self._unstored.append(message)
            self.waiting = True

    def say(self, *events: AgentEvent) -> None:
        """Announce events, at once if that needs no waiting. Raises what a listener raises; the rest stays here."""
        self._queue(events)
        if self.is_slow:
            self.waiting = True
        else:
            self._announce_now()

    def say_one(self, event: AgentEvent) -> None:
        """``say`` for what comes with every delta: an event that can be handed on at once is never queued."""
        if self.is_slow:
            self._queue((event,))
            self.waiting = True
            return
        to_hear = iter(self._listeners.subscriptions)
        try:
            for subscription in to_hear:
                outcome = subscription.call(event, self._signal)
                if outcome is not None:
                    self._await_later(outcome, subscription)
        except (Exception, KeyboardInterrupt, SystemExit):
            self._queue((event,))
            self._to_hear = to_hear
            self.waiting = self._is_broken = True
            raise

    def _queue(self, events: Sequence[AgentEvent]) -> None:
        if self._events is _NO_EVENTS:
            self._events = deque()
        self._events.extend(events)

    def _announce_now(self) -> None:
        """Hand events on to plain functions, until one gives something to await, which is left to ``flush``."""
        self.waiting = True  # until all is through: a listener may raise
        try:
            while self._events and not self._awaiting:
                for subscription in self._listening():
                    self._await_later(subscription.call(self._events[0], self._signal), subscription)
                self._next_event()
        except (Exception, KeyboardInterrupt, SystemExit):
            self._is_broken = True
            raise
        self.waiting = bool(self._events or self._awaiting)

    def _await_later(self, outcome: Any, subscription: _Subscription) -> None:
        """Leave what a plain function returned to ``flush``, if it is something to wait for."""
        if inspect.isawaitable(outcome):
            self._awaiting += (outcome,)
            self.waiting = True
            if inspect.iscoroutine(outcome):
                self._listeners.found_async(subscription)

    def _listening(self) -> Iterator[_Subscription]:
        """Who is still to hear the first event. Whoever raised or was interrupted has heard it, the others go on."""
        if self._to_hear is None:
            self._to_hear = iter(self._listeners.subscriptions)
        return self._to_hear

    def _next_event(self) -> None:
        self._events.popleft()
        self._to_hear = None

    async def flush(self) -> None:
        """Store and announce what is waiting. A checkpoint if there is something to wait for.

        Cancelled, it leaves the rest in the outbox; a listener that was interrupted is not called again for its event.
        """
        if not self.waiting:
            return
        if self._lock is None:
            self._lock = anyio.Lock(fast_acquire=True)
        async with self._lock:
            if self._is_broken:
                return
            try:
                await self._flush()
            except (Exception, KeyboardInterrupt, SystemExit):
                self._is_broken = True
                raise

    async def _flush(self) -> None:
        while self._awaiting or self._events or self._unstored:
            while self._awaiting:
                first, *rest = self._awaiting
                self._awaiting = tuple(rest)
                await first
            if self._unstored:
                await self._store_all()
            if self._events:
                await self._announce()
        self.waiting = False

    async def _store_all(self) -> None:
        while self._unstored:
            assert self._store is not None
            batch = tuple(self._unstored)
            await self._store.append(batch)
            del self._unstored[: len(batch)]

    async def _announce(self) -> None:
        for subscription in self._listening():
            outcome = subscription.call(self._events[0], self._signal)
            if outcome is not None and inspect.isawaitable(outcome):
                await outcome
        self._next_event()

    # --- for settling ------------------------------------------------------------------------

    def hold(self) -> None:
        """From now on only collect what is said, so that closing the record cannot be interrupted by a listener."""
        self._held = True

    async def drain(self) -> None:
        """Hand on everything that is left, whatever fails on the way: what a listener or the store raises is logged.

        The first failure of a run has already reached its caller; here the rest of the record is at stake.
        """
        while self.waiting:
            try:
                self._is_broken = False
                await self.flush()
            except Exception:
                _log.exception("while a run was being settled, a listener or the store failed; it is passed over")
                # The store failed if its batch is still there; it would fail at each further attempt.
                self._unstored.clear()

    def give_up(self) -> None:
        """Wait for nobody any more: plain functions hear what is left, and nothing more is stored."""
        self._unstored.clear()
        while self._awaiting or self._events:
            awaiting, self._awaiting = self._awaiting, ()
            for outcome in awaiting:
                _leave(outcome)
            if self._events:
                self._tell_plain_listeners()
        self.waiting = False

    def _tell_plain_listeners(self) -> None:
        for subscription in self._listening():
            if not subscription.is_async:
                try:
                    _leave(subscription.call(self._events[0], self._signal))
                except Exception:
                    _log.exception("while a run was being settled, a listener failed; it is passed over")
        self._next_event()

    def drain_now(self) -> bool:
        """``drain``, if that takes no waiting; whether it did."""
        if not self.waiting:
            return True
        if self._store is not None or self._listeners.has_async or self._awaiting:
            return False
        while self._events and not self._awaiting:
            try:
                self._announce_now()
            except Exception:
                _log.exception("while a run was being settled, a listener failed; it is passed over")
        self.waiting = bool(self._events or self._awaiting)
        return not self.waiting


def _leave(outcome: Any) -> None:
    """Await nothing of it; a coroutine that is never awaited would warn of that."""
    if inspect.iscoroutine(outcome):
        outcome.close()
