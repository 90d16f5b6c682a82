"""``MemoryCheckpointer``: threads in dictionaries, for tests and for programs that need nothing to outlive them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Self

from anyio.lowlevel import checkpoint

from ..errors import (
    AlreadyAnswered,
    ClaimLost,
    RunIdTaken,
    RunNotEnded,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
    UnknownRequest,
)
from ..types.hitl import PersonAnswer, PersonRequest
from ..types.json import JsonObject
from ..types.messages import Message
from ..types.run import RunOutcome
from .base import RunClaim, StoredRequest, ThreadRecord
from .codec import (
    decode_answer,
    decode_messages,
    decode_request,
    decode_value,
    encode_answer,
    encode_message,
    encode_request,
    encode_value,
)

__all__ = ("MemoryCheckpointer",)


# Plain classes: to import the package is to make them, and dataclasses take ten times as long to make.


class _Claim:
    __slots__ = ("expires_at", "token")

    def __init__(self, token: str, expires_at: float) -> None:
        self.token = token
        self.expires_at = expires_at
        """Seconds of ``time.monotonic``."""


class _Run:
    __slots__ = ("end", "ended_as")

    def __init__(self, end: RunOutcome | None = None, ended_as: int = 0) -> None:
        self.end = end
        """``None`` until the run was released."""
        self.ended_as = ended_as
        """The place of its end among those of all runs."""

    @property
    def is_over(self) -> bool:
        """A suspended run goes on some day."""
        return self.end is not None and self.end != "suspended"


class _Thread:
    __slots__ = ("answers", "claim", "extra", "messages", "parent_thread_id", "requests", "runs")

    def __init__(self, parent_thread_id: str | None = None) -> None:
        self.messages: dict[str, tuple[bytes, str | None]] = {}
        """JSON and run, by id."""
        self.extra: dict[str, bytes] = {}
        self.requests: dict[str, bytes] = {}
        self.answers: dict[str, bytes] = {}
        self.runs: dict[str, _Run] = {}
        self.claim: _Claim | None = None
        self.parent_thread_id = parent_thread_id

    def check_claim(self, thread_id: str, claim: RunClaim | None) -> None:
        """Raise unless ``claim``, or whoever has none, may append."""
        held = self.claim
        if claim is not None:
            if held is None or held.token != claim.token:
                raise ClaimLost(thread_id)
        elif held is not None and held.expires_at > time.monotonic():
            raise ThreadBusy(thread_id)


class MemoryCheckpointer:
    """A ``Checkpointer`` in memory. Its threads are gone with it, not with its ``async with``.

    Messages are kept as JSON, so that what was given or returned shares nothing with the store, and a program behaves
    as it will with a database. A cancelled call has changed nothing: each passes its checkpoint first. For one thread
    of the operating system.
    """

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._ends = count(1)

    def __repr__(self) -> str:
        return f"<MemoryCheckpointer of {len(self._threads)} threads>"

    async def __aenter__(self) -> Self:
        await checkpoint()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # Nothing is being written, and a checkpoint here could put a cancellation in the place of an exception.
        return

    async def load(self, thread_id: str) -> ThreadRecord | None:
        """See ``Checkpointer.load``."""
        await checkpoint()
        thread = self._threads.get(thread_id)
        if thread is None:
            return None
        rows = [(data, f"message {message_id!r}") for message_id, (data, _) in thread.messages.items()]
        return ThreadRecord(
            thread_id,
            messages=decode_messages(rows, thread_id),
            extra={key: decode_value(data, thread_id, f"extra {key!r}") for key, data in thread.extra.items()},
            requests=[_stored_request(thread, thread_id, request_id) for request_id in thread.requests],
            parent_thread_id=thread.parent_thread_id,
            version=len(thread.messages),
        )

    async def append(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        claim: RunClaim | None = None,
        extra: JsonObject | None = None,
    ) -> None:
        """See ``Checkpointer.append``."""
        new = [(message.id, (encode_message(message), message.run_id)) for message in messages]
        notes = _encoded(extra or {})
        await checkpoint()
        thread = self._threads.get(thread_id, _Thread())
        thread.check_claim(thread_id, claim)
        self._threads[thread_id] = thread
        for message_id, message in new:
            thread.messages.setdefault(message_id, message)
        thread.extra.update(notes)

    async def save_extra(self, thread_id: str, extra: JsonObject) -> None:
        """See ``Checkpointer.save_extra``."""
        notes = _encoded(extra)
        await checkpoint()
        self._made(thread_id).extra.update(notes)

    # --- claims ------------------------------------------------------------------------------

    async def claim_run(self, thread_id: str, run_id: str, *, lease_seconds: float) -> RunClaim:
        """See ``Checkpointer.claim_run``."""
        await checkpoint()
        thread, now = self._threads.get(thread_id, _Thread()), time.monotonic()
        run = thread.runs.get(run_id)
        if run is not None and run.is_over:
            raise RunIdTaken(thread_id, run_id)
        if thread.claim is not None and thread.claim.expires_at > now:
            raise ThreadBusy(thread_id)
        self._threads[thread_id] = thread
        thread.claim = _Claim(os.urandom(16).hex(), now + lease_seconds)
        thread.runs[run_id] = _Run()
        return RunClaim(thread_id, run_id, thread.claim.token, len(thread.messages))

    async def renew_claim(self, claim: RunClaim, *, lease_seconds: float) -> None:
        """See ``Checkpointer.renew_claim``."""
        await checkpoint()
        held = self._held(claim)
        if held is None:
            raise ClaimLost(claim.thread_id)
        held.expires_at = time.monotonic() + lease_seconds

    async def release_claim(self, claim: RunClaim, end: RunOutcome) -> None:
        """See ``Checkpointer.release_claim``."""
        await checkpoint()
        if self._held(claim) is not None:
            thread = self._threads[claim.thread_id]
            thread.claim = None
            thread.runs[claim.run_id] = _Run(end, next(self._ends))

    def _held(self, claim: RunClaim) -> _Claim | None:
        thread = self._threads.get(claim.thread_id)
        held = thread.claim if thread is not None else None
        return held if held is not None and held.token == claim.token else None

    # --- questions ---------------------------------------------------------------------------

    async def save_requests(self, thread_id: str, requests: Sequence[PersonRequest]) -> None:
        """See ``Checkpointer.save_requests``."""
        encoded = [(request.id, encode_request(request)) for request in requests]
        await checkpoint()
        thread = self._made(thread_id)
        for request_id, data in encoded:
            thread.requests.setdefault(request_id, data)

    async def save_answer(self, thread_id: str, request_id: str, answer: PersonAnswer) -> None:
        """See ``Checkpointer.save_answer``."""
        encoded = encode_answer(answer)
        await checkpoint()
        thread = self._threads.get(thread_id)
        if thread is None or request_id not in thread.requests:
            raise UnknownRequest(request_id)
        if request_id in thread.answers:
            raise AlreadyAnswered(request_id)
        thread.answers[request_id] = encoded

    async def clear_requests(self, thread_id: str, request_ids: Sequence[str]) -> None:
        """See ``Checkpointer.clear_requests``."""
        await checkpoint()
        thread = self._threads.get(thread_id, _Thread())
        for request_id in request_ids:
            thread.requests.pop(request_id, None)
            thread.answers.pop(request_id, None)

    # --- whole threads -----------------------------------------------------------------------

    async def fork(self, thread_id: str, new_thread_id: str, *, after_run_id: str | None = None) -> None:
        """See ``Checkpointer.fork``."""
        await checkpoint()
        thread = self._threads.get(thread_id)
        if thread is None:
            raise ThreadNotFound(thread_id)
        if new_thread_id in self._threads:
            raise ThreadExists(new_thread_id)
        runs = {run_id: run for run_id, run in thread.runs.items() if run.is_over}
        messages = thread.messages
        if after_run_id is not None:
            if after_run_id not in runs:
                raise RunNotEnded(thread_id, after_run_id)
            last = runs[after_run_id].ended_as
            runs = {run_id: run for run_id, run in runs.items() if run.ended_as <= last}
            kept = {None, *runs}
            messages = {message_id: stored for message_id, stored in messages.items() if stored[1] in kept}
        copied = _Thread(thread_id)
        copied.messages, copied.extra, copied.runs = dict(messages), dict(thread.extra), runs
        self._threads[new_thread_id] = copied

    async def delete(self, thread_id: str) -> None:
        """See ``Checkpointer.delete``."""
        await checkpoint()
        self._threads.pop(thread_id, None)

    async def list_threads(self) -> list[str]:
        """See ``Checkpointer.list_threads``."""
        await checkpoint()
        return list(self._threads)

    def _made(self, thread_id: str) -> _Thread:
        return self._threads.setdefault(thread_id, _Thread())


def _encoded(extra: JsonObject) -> dict[str, bytes]:
    return {key: encode_value(value) for key, value in extra.items()}


def _stored_request(thread: _Thread, thread_id: str, request_id: str) -> StoredRequest:
    request = decode_request(thread.requests[request_id], thread_id, f"question {request_id!r}")
    answer = thread.answers.get(request_id)
    if answer is None:
        return StoredRequest(request)
    return StoredRequest(request, decode_answer(answer, thread_id, f"the answer to {request_id!r}"), answered=True)
