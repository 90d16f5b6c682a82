"""A stored thread while an agent works on it: claim it, load and mend it, append to it, give it back."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import anyio

from ..checkpointers.base import Checkpointer, RunClaim, StoredRequest
from ..errors import ClaimLost, RequestsPending, UnknownRequest
from ..types.json import JsonObject
from ..types.messages import Message, ToolResultMessage
from ..types.run import RunOutcome
from ..types.transcript import open_batch, repaired

if TYPE_CHECKING:
    from ..types.hitl import PersonAnswer, PersonRequest

__all__ = ("LEASE_SECONDS", "StoredThread", "ThreadChannel")

_log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""How long a claim outlives a process that died; a living one renews it three times in that time."""


class ThreadChannel(Protocol):
    """A channel that keeps its questions in the thread of its agent; ``hitl.DurableChannel`` is one."""

    def bind(self, journal: StoredThread) -> None:
        """Keep the questions in ``journal`` from now on."""
        ...


class StoredThread:
    """One thread in one store, across the runs of an agent.

    It is the ``MessageStore`` of its runs, and the journal of their durable channel. What it holds in memory is loaded
    again when somebody else has written to the thread since.
    """

    def __init__(self, checkpointer: Checkpointer, thread_id: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.checkpointer = checkpointer
        self.thread_id = thread_id
        self.requests: dict[str, StoredRequest] = {}
        """The questions that wait for a person, or whose answer was not used yet, by id."""
        self._in_use: dict[str, list[StoredRequest]] = {}
        """What was taken for calls that have no result yet, by call."""
        self._stale: list[str] = []
        """Questions about calls that have their result: asked by a run that had lost its claim, or died on the way."""
        self.extra: JsonObject = {}
        """The thread's notes. What changed is stored with the next messages, or when the run ends."""
        self._saved_extra: JsonObject = {}
        """A copy of the notes as they are stored, as far as is known."""
        self._lease_seconds = lease_seconds
        self._claim: RunClaim | None = None
        self._version: int | None = None

    # --- around a run ------------------------------------------------------------------------

    async def open(self, run_id: str, transcript: list[Message]) -> None:
        """Claim the thread for a run and bring ``transcript`` up to date. A checkpoint; cancelled, nothing is claimed.

        Raises ``ThreadBusy`` while another run holds the thread, and what else the store raises.
        """
        self._claim = await self.checkpointer.claim_run(self.thread_id, run_id, lease_seconds=self._lease_seconds)
        # The version tells of messages; questions may have been answered and used without one.
        if self._claim.version != self._version or self.requests:
            await self.load(transcript)
        if self._stale:
            await self.clear(self._stale)
            self._stale = []

    async def load(self, transcript: list[Message]) -> None:
        """Bring ``transcript`` and the questions up to date, mending what a dead process left. A checkpoint."""
        record = await self.checkpointer.load(self.thread_id)
        if record is None:
            self._version = 0
            return
        waiting = [stored.request.tool_call_id for stored in record.requests]
        messages, notes = repaired(record.messages, waiting=waiting)
        batch = open_batch(messages)
        unanswered = {call.id for call in batch.unanswered} if batch is not None else set[str]()
        self.requests = {one.request.id: one for one in record.requests if one.request.tool_call_id in unanswered}
        self._stale = [one.request.id for one in record.requests if one.request.id not in self.requests]
        for note in notes:
            _log.warning("thread %s was mended while it was loaded: %s", self.thread_id, note)
        transcript[:] = messages
        self.extra.clear()
        self.extra.update(record.extra)
        self._saved_extra = copy.deepcopy(record.extra)
        self._version = record.version

    @property
    def notes_changed(self) -> bool:
        """Whether ``append`` would store notes. O(notes), as are all that ask it."""
        return bool(self._changed_notes())

    def _changed_notes(self) -> JsonObject:
        """What is to be stored of the notes. A store forgets no key, so one that was deleted is stored as null."""
        saved = self._saved_extra
        changed = {key: value for key, value in self.extra.items() if key not in saved or saved[key] != value}
        gone = {key: None for key in saved if key not in self.extra and saved[key] is not None}
        return {**changed, **gone}

    async def append(self, messages: Sequence[Message]) -> None:
        """Store messages, and with them the notes that have changed, under the claim and in one transaction.

        Where there is nothing of either, the store is asked nothing. Raises ``ClaimLost``, and what else the store
        raises; then, and when it is cancelled, the notes are stored next time.
        """
        # What hooks change while this waits is in the next append.
        changed = copy.deepcopy(self._changed_notes())
        if not messages and not changed:
            return
        try:
            await self.checkpointer.append(self.thread_id, messages, claim=self._claim, extra=changed or None)
        except ClaimLost:
            # Memory holds what the store refused, also if nobody else has written yet: it is to be loaded anew.
            self._version = None
            raise
        self._saved_extra.update(changed)
        if self._version is not None:
            self._version += len(messages)
        await self._close_questions({m.tool_call_id for m in messages if isinstance(m, ToolResultMessage)})

    async def _close_questions(self, tool_call_ids: set[str]) -> None:
        """Calls with a result ask nothing any more, also if they were cancelled before their answer was used."""
        for tool_call_id in tool_call_ids:
            self._in_use.pop(tool_call_id, None)
        over = [key for key, stored in self.requests.items() if stored.request.tool_call_id in tool_call_ids]
        if over:
            await self.clear(over)

    async def keep_claim(self) -> None:
        """Renew the claim three times in a lease, for as long as the run goes on. Raises ``ClaimLost`` if it is late.

        A store that fails is asked again as long as the claim lasts; then what it raised leaves.
        """
        interval_seconds = self._lease_seconds / 3
        ends_at = anyio.current_time() + self._lease_seconds
        while self._claim is not None:
            await anyio.sleep(interval_seconds)
            asked_at = anyio.current_time()
            try:
                await self.checkpointer.renew_claim(self._claim, lease_seconds=self._lease_seconds)
            except ClaimLost:
                raise
            except Exception:
                if anyio.current_time() + interval_seconds >= ends_at:
                    raise
                _log.warning("the claim on thread %s was not renewed; trying again", self.thread_id, exc_info=True)
            else:
                ends_at = asked_at + self._lease_seconds

    async def close(self, outcome: RunOutcome) -> None:
        """Store the notes that changed after the last append, under the claim, and give the claim back.

        Notes of a run that has lost its claim are refused, as its messages were; that is logged.
        """
        self._in_use.clear()
        claim = self._claim
        if claim is None:
            return
        try:
            await self.append(())
        except ClaimLost:
            _log.warning("run %s lost its claim on thread %s; its last notes are dropped", claim.run_id, self.thread_id)
        finally:
            self._claim = None
            await self.checkpointer.release_claim(claim, outcome)  # noqa: ASYNC102 - called shielded, by settling

    # --- questions to a person ---------------------------------------------------------------

    @property
    def waiting(self) -> list[PersonRequest]:
        """The questions nobody has answered, oldest first."""
        return [stored.request for stored in self.requests.values() if not stored.answered]

    def refuse_waiting(self, attempted: str) -> None:
        """Raise ``RequestsPending`` if calls wait for a person, answered or not: they come before anything else."""
        if self.requests:
            raise RequestsPending(attempted, list(self.requests))

    def request(self, request_id: str) -> StoredRequest:
        """The question of that id. Raises ``UnknownRequest``."""
        stored = self.requests.get(request_id)
        if stored is None:
            raise UnknownRequest(request_id)
        return stored

    @property
    def run_id(self) -> str | None:
        """The run that holds the thread."""
        return self._claim.run_id if self._claim is not None else None

    def questions_of(self, tool_call_id: str) -> list[StoredRequest]:
        """The stored questions of a call, answered or not, oldest first."""
        return [stored for stored in self.requests.values() if stored.request.tool_call_id == tool_call_id]

    async def save(self, request: PersonRequest) -> None:
        """Store a question that suspends its call, before anybody is asked.

        What was taken for the call is put back, because the call will ask it again.
        """
        put_back = self._in_use.pop(request.tool_call_id, [])
        questions = [*(stored.request for stored in put_back), request]
        await self.checkpointer.save_requests(self.thread_id, questions)
        for question in questions:
            self.requests.setdefault(question.id, StoredRequest(question))
        for stored in put_back:
            if stored.answered and stored.answer is not None:
                await self.save_answer(stored.request.id, stored.answer)

    async def save_answer(self, request_id: str, answer: PersonAnswer) -> None:
        """Store the answer to a question."""
        await self.checkpointer.save_answer(self.thread_id, request_id, answer)
        self.requests[request_id] = StoredRequest(self.requests[request_id].request, answer, True)

    async def take(self, request_id: str) -> StoredRequest | None:
        """Take a question out of the store, with its answer if it has one; durable before this returns.

        A process that dies later finds neither question nor result, so the call's outcome is unknown and its body is
        not run a second time. Raises ``ClaimLost`` if somebody else goes on with the thread.
        """
        stored = self.requests.get(request_id)
        if stored is None:
            return None
        await self.clear([request_id])
        if self._claim is not None:
            # In this order: whoever takes the thread over from now on finds the question gone, and if somebody had
            # before, the call is theirs.
            await self.checkpointer.renew_claim(self._claim, lease_seconds=self._lease_seconds)
        self._in_use.setdefault(stored.request.tool_call_id, []).append(stored)
        return stored

    async def clear(self, request_ids: Sequence[str]) -> None:
        """Forget questions."""
        await self.checkpointer.clear_requests(self.thread_id, request_ids)
        for request_id in request_ids:
            self.requests.pop(request_id, None)
