"""The channel that lives in memory: whoever asks waits in place, and a user interface answers by id."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from anyio.lowlevel import checkpoint

from ..errors import AlreadyAnswered, PersonError, RequestTimedOut, RequestWithdrawn, UnknownRequest
from ..types.hitl import PersonAnswer, PersonRequest
from ..types.person_answers import check_answer
from .channel import Channel

__all__ = ("MemoryChannel", "RequestEnding", "Requests")

_log = logging.getLogger(__name__)

RequestEnding = Literal["answered", "withdrawn", "timed_out", "cancelled"]
"""How a question came to its end; ``cancelled`` together with whoever asked."""

_OnAsked = Callable[[PersonRequest], object]
_OnClosed = Callable[[PersonRequest, RequestEnding], object]

_ANSWERED_KEPT = 1000
"""How many answered questions are told from unknown ones; ids are all that is kept of them."""


class _Waiting:
    """A question while somebody waits for its answer."""

    __slots__ = ("answer", "error", "heard", "request")

    def __init__(self, request: PersonRequest) -> None:
        self.request = request
        self.heard = anyio.Event()
        self.answer: PersonAnswer = False
        self.error: PersonError | None = None


class MemoryChannel(Channel):
    """A ``Channel`` for one process: the call waits in place while its siblings go on, and other code answers.

    ``answer`` and ``withdraw`` are plain functions for the event loop's thread; from another thread call them through
    ``anyio.from_thread.run_sync``. One channel serves any number of agents, runs and, one after the other, event loops.
    """

    def __init__(self, default_timeout: float | None = None) -> None:
        super().__init__(default_timeout)
        self._waiting: dict[str, _Waiting] = {}
        self._answered: deque[str] = deque(maxlen=_ANSWERED_KEPT)
        self._listeners: list[tuple[_OnAsked, _OnClosed | None]] = []

    def __repr__(self) -> str:
        return f"<MemoryChannel with {len(self._waiting)} questions>"

    @property
    def pending(self) -> list[PersonRequest]:
        """The questions that wait for an answer, oldest first."""
        return [waiting.request for waiting in self._waiting.values()]

    def answer(self, request_id: str, value: Any) -> None:
        """Answer a question; whoever asked goes on. ``check_answer`` says what the forms of an answer are.

        Raises ``UnknownRequest``, ``AlreadyAnswered``, or ``InvalidAnswer``, after which the question still stands.
        """
        waiting = self._standing(request_id)
        waiting.answer = check_answer(waiting.request, value)
        self._answered.append(request_id)
        self._hand_over(waiting)

    def withdraw(self, request_id: str, reason: str = "") -> None:
        """Take a question back: ``RequestWithdrawn`` is raised where it was asked.

        Raises ``UnknownRequest`` or ``AlreadyAnswered``.
        """
        waiting = self._standing(request_id)
        waiting.error = RequestWithdrawn(request_id, reason)
        self._hand_over(waiting)

    def _standing(self, request_id: str) -> _Waiting:
        waiting = self._waiting.get(request_id)
        if waiting is None:
            raise AlreadyAnswered(request_id) if request_id in self._answered else UnknownRequest(request_id)
        return waiting

    def _hand_over(self, waiting: _Waiting) -> None:
        del self._waiting[waiting.request.id]
        waiting.heard.set()

    # --- for user interfaces -----------------------------------------------------------------

    def listen(
        self,
        on_asked: _OnAsked,
        on_closed: _OnClosed | None = None,
    ) -> Callable[[], None]:
        """Have ``on_asked`` called with each question, and ``on_closed`` when it needs no answer any more.

        Both are plain functions and may answer at once. What ``on_asked`` raises is raised where the question is
        asked; what ``on_closed`` raises is logged. Returns the function that unsubscribes.
        """
        entry = (on_asked, on_closed)
        self._listeners.append(entry)

        def unsubscribe() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return unsubscribe

    def requests(self) -> Requests:
        """The questions one after the other, those that wait already first.

        ::

            async with channel.requests() as requests:
                async for request in requests:
                    channel.answer(request.id, await show(request))
        """
        return Requests(self)

    # --- asking ------------------------------------------------------------------------------

    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        waiting = self._waiting[request.id] = _Waiting(request)
        ending: RequestEnding = "cancelled"
        try:
            for on_asked, _ in tuple(self._listeners):
                on_asked(request)
            with anyio.move_on_after(request.timeout_seconds):
                await waiting.heard.wait()
            # An answer that came in the very moment in which the time was over counts.
            ending = "timed_out" if not waiting.heard.is_set() else "withdrawn" if waiting.error else "answered"
        finally:
            self._waiting.pop(request.id, None)
            self._tell_closed(request, ending)
        if ending == "timed_out":
            raise RequestTimedOut(request.id, request.timeout_seconds or 0)
        if waiting.error is not None:
            raise waiting.error
        return waiting.answer

    def _tell_closed(self, request: PersonRequest, ending: RequestEnding) -> None:
        for _, on_closed in tuple(self._listeners):
            if on_closed is None:
                continue
            try:
                on_closed(request, ending)
            except Exception:
                # The question is over, and a cancellation may be on its way through here.
                _log.exception("a listener failed to hear that the question %s is %s", request.id, ending)


class Requests:
    """The questions of a ``MemoryChannel``, for a user interface that takes one after the other.

    An async context manager and iterator; it ends when its block is left. Questions that came to their end before they
    were taken are passed over.
    """

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel
        self._fresh: dict[str, PersonRequest] = {}
        self._news: anyio.Event | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        await checkpoint()
        self._fresh = {request.id: request for request in self._channel.pending}
        self._unsubscribe = self._channel.listen(self._asked, self._closed)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._fresh.clear()
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PersonRequest:
        """The next question; waits for one. A checkpoint; cancelled, it has taken none."""
        await checkpoint()
        while self._unsubscribe is not None:
            for request_id in self._fresh:
                return self._fresh.pop(request_id)
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()
        raise StopAsyncIteration

    def _asked(self, request: PersonRequest) -> None:
        self._fresh[request.id] = request
        self._wake()

    def _closed(self, request: PersonRequest, ending: RequestEnding) -> None:
        self._fresh.pop(request.id, None)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None
