"""What has happened and is not yet stored and announced: messages for the store, events for the listeners.

Everything that happens is put here synchronously, in one order, and handed on afterwards::

    record, calls --- say(), keep() --->  [ messages | events ]  --- one delivery --->  store, then listeners

So a cancellation can cut the handing on, never the record: settling hands on the rest. Two invariants hold:

* a message is stored before any event that was said after it is announced (what was announced is stored);
* one event goes to one listener after the other, and the next event waits until all have heard this one.

Plain functions are told on the spot (``_tell``), by ``say`` itself where nothing is waiting and nobody has to be waited
for. What is left is queued, and there is one delivery of that, the generator ``_deliveries``: it yields what has to be
awaited, and ``flush`` drives it to its end. Where it stands is kept in the outbox, not in the generator, so that it may
be dropped at any moment and begun anew. What happens to failures, and whether anybody is waited for, is the policy: a
run that goes on raises them and stops handing on (one bug is one error), one that settles logs them and goes on, one
that has given up waits for nobody.

What would break: events that are announced past the delivery overtake others; a listener that is told again after an
interruption hears an event twice; one that raises and keeps the others from hearing leaves them with a start without
its end.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Generator, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

import anyio

from ..concurrency import AbortSignal
from ..events.agent import AgentEvent
from ..types.messages import Message
from .listeners import ListenerList, Subscription

__all__ = ("MessageStore", "Outbox")

_log = logging.getLogger(__name__)


class MessageStore(Protocol):
    """Where the messages of a run are kept."""

    @property
    def notes_changed(self) -> bool:
        """Whether the thread's notes differ from what is stored of them."""
        ...

    async def append(self, messages: Sequence[Message]) -> None:
        """Store ``messages`` in order, and the notes that changed, in one step.

        A message whose id is stored already is passed over.
        """
        ...


class _Policy(Enum):
    """What a delivery does about failures and about waiting."""

    RAISE = "a failure is raised, and nothing more is handed on until the run is settled"
    LOG = "a failure is logged and passed over"
    GIVE_UP = "the same, and nobody is waited for: no store, no async listener"


_NO_EVENTS: deque[AgentEvent] = deque()
"""What an outbox has before it has anything: most of them never do, and a deque is large. Never appended to."""


class Outbox:
    """The outbox of one run.

    With plain functions as listeners and without a store, ``say`` hands an event on at once. Otherwise, or when a
    listener returns something to await, ``waiting`` is true and ``flush`` hands on: it stores first and announces
    then, and whoever calls it waits until all is through.
    """

    __slots__ = (
        "_awaiting",
        "_collects",
        "_events",
        "_is_broken",
        "_listeners",
        "_lock",
        "_notes_are_due",
        "_policy",
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
        self._notes_are_due = False
        self._events: deque[AgentEvent] = _NO_EVENTS
        self._to_hear: Iterator[Subscription] | None = None
        """Who has not been told of the first event yet, once telling it has begun."""
        self._awaiting: Awaitable[Any] | None = None
        """What a plain function returned to be waited for, before anybody else is told."""
        self._lock: anyio.Lock | None = None
        self._policy = _Policy.RAISE
        self._collects = store is not None
        """Whether everything said waits for ``flush``. What has failed, or is on its way, is ``waiting``."""
        self._is_broken = False
        """Whether one has failed: nothing more is handed on until the run is settled, so that one bug is one error."""
        self.waiting: bool = False
        """Whether something is to be handed on by ``flush``."""

    @property
    def is_slow(self) -> bool:
        """Whether handing on an event takes waiting, now or for any event."""
        return self.waiting or self._collects or self._listeners.has_async

    # --- putting in --------------------------------------------------------------------------

    def keep(self, message: Message) -> None:
        """Have a message stored before any event that is said after it."""
        if self._store is not None:
            self._unstored.append(message)
            self.waiting = True

    def keep_notes(self) -> None:
        """Have the thread's notes stored, if they changed, together with the messages that are still to be."""
        if self._store is not None and self._store.notes_changed:
            self._notes_are_due = self.waiting = True

    def say(self, event: AgentEvent) -> None:
        """Announce an event, at once if that needs no waiting. Raises what a listener raises; the rest stays here."""
        if self.waiting or self._collects or self._listeners.has_async:  # ``is_slow``, without a call for each delta
            self._queue((event,))
            self.waiting = True
            return
        self.waiting = True  # until all have heard: a listener may raise, or say something itself
        try:
            self._awaiting = self._tell(event)
        except (Exception, KeyboardInterrupt, SystemExit):
            self._is_broken = True
            self._queue((event,), first=True)
            raise
        if self._awaiting is not None:
            self._queue((event,), first=True)
        elif self._events:
            self._deliver_now()
        else:
            self.waiting = False

    def say_all(self, events: Sequence[AgentEvent]) -> None:
        """``say`` for events that belong together: all of them are said, also if a listener raises at one."""
        for position, event in enumerate(events):
            try:
                self.say(event)
            except BaseException:
                self._queue(events[position + 1 :])
                raise

    def _queue(self, events: Sequence[AgentEvent], *, first: bool = False) -> None:
        if self._events is _NO_EVENTS:
            self._events = deque()
        if first:
            self._events.extendleft(reversed(events))
        else:
            self._events.extend(events)

    # --- handing on --------------------------------------------------------------------------

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
                for awaitable in self._deliveries():
                    await awaitable
            except (Exception, KeyboardInterrupt, SystemExit):
                self._is_broken = True
                raise
            self.waiting = False

    def _deliver_now(self) -> None:
        """Hand on as far as that takes no waiting; the rest is left to ``flush``."""
        self.waiting = True  # until all is through: a listener may raise
        try:
            for awaitable in self._deliveries():
                if self._policy is not _Policy.GIVE_UP:
                    self._awaiting = awaitable
                    return
                if inspect.iscoroutine(awaitable):
                    awaitable.close()  # one that is never awaited would warn of that
        except (Exception, KeyboardInterrupt, SystemExit):
            self._is_broken = True
            raise
        self.waiting = False

    def _deliveries(self) -> Generator[Awaitable[Any], None, None]:
        """Hand on what is there, in order; yields what has to be awaited before the next step."""
        while True:
            if self._awaiting is not None:
                awaitable, self._awaiting = self._awaiting, None
                yield awaitable
            elif self._unstored or self._notes_are_due:
                yield self._store_all()
            elif self._events:
                while (awaitable := self._tell(self._events[0])) is not None:
                    yield awaitable
                self._events.popleft()
            else:
                return

    def _tell(self, event: AgentEvent) -> Awaitable[Any] | None:
        """Tell of the first event those who have not heard of it, until one returns something to be awaited.

        Returns that, or ``None`` when all have heard. Whoever raises or is interrupted has heard of the event: the
        iterator goes on with the others.
        """
        to_hear = self._to_hear
        if to_hear is None:
            to_hear = self._to_hear = iter(self._listeners.subscriptions)
        for subscription in to_hear:
            if subscription.is_async and self._policy is _Policy.GIVE_UP:
                continue
            listener = subscription.listener
            outcome = listener(event, self._signal) if subscription.wants_signal else listener(event)
            if outcome is not None and inspect.isawaitable(outcome):
                if inspect.iscoroutine(outcome) and not subscription.is_async:
                    self._listeners.found_async(subscription)
                return outcome
        self._to_hear = None
        return None

    async def _store_all(self) -> None:
        assert self._store is not None
        batch = tuple(self._unstored)
        await self._store.append(batch)
        del self._unstored[: len(batch)]
        self._notes_are_due = False

    # --- for settling ------------------------------------------------------------------------

    def hold(self) -> None:
        """From now on only collect what is said, so that closing the record cannot be interrupted by a listener."""
        self._collects = True

    def drain_now(self) -> bool:
        """``drain``, if that takes no waiting; whether it did."""
        if self.waiting and self._store is None and not self._listeners.has_async and self._awaiting is None:
            self._pass_over_failures(_Policy.LOG)
        return not self.waiting

    async def drain(self) -> None:
        """Hand on everything that is left, whatever fails on the way: what a listener or the store raises is logged.

        The first failure of a run has already reached its caller; here the rest of the record is at stake.
        """
        self._policy = _Policy.LOG
        while self.waiting:
            self._is_broken = False
            try:
                await self.flush()
            except Exception:
                self._note_failure()

    def give_up(self) -> None:
        """Wait for nobody any more: plain functions hear what is left, and nothing more is stored."""
        self._forget_unstored()
        self._pass_over_failures(_Policy.GIVE_UP)

    def _pass_over_failures(self, policy: _Policy) -> None:
        """Hand on without waiting, until nothing is left or something has to be awaited."""
        self._policy = policy
        while self.waiting and (self._awaiting is None or policy is _Policy.GIVE_UP):
            self._is_broken = False
            try:
                self._deliver_now()
            except Exception:
                self._note_failure()

    def _note_failure(self) -> None:
        _log.exception("while a run was being settled, a listener failed, or the store; it is passed over")
        # The store failed if its batch is still there; it would fail at each further attempt.
        self._forget_unstored()

    def _forget_unstored(self) -> None:
        self._unstored.clear()
        self._notes_are_due = False
