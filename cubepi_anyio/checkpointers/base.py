"""``Checkpointer``: what a store of threads must do, and the records it keeps.

A store is append-only and knows nothing of agents. What it promises, for every method:

* a call is whole or absent, also when it is cancelled or fails in the middle, and the store can be used afterwards;
* nothing live is handed out or taken in: later changes of what was given or returned do not reach the store;
* a message is stored once, by its id: appending it again changes nothing;
* it works on asyncio and on trio and from several tasks at once; stores that outlive a process, from several processes.

``cubepi_anyio.testing`` has the suite that proves all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ..types.json import JsonObject
from ..types.messages import Message
from ..types.run import RunOutcome

if TYPE_CHECKING:
    from ..types.hitl import PersonAnswer, PersonRequest

__all__ = ("Checkpointer", "RunClaim", "RunEnd", "StoredRequest", "ThreadRecord")

RunEnd = RunOutcome
"""How a run ended, as the store remembers it."""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A question to a person, and the answer if there is one."""

    request: PersonRequest
    answer: PersonAnswer | None = None
    answered: bool = False


@dataclass(slots=True)
class ThreadRecord:
    """A thread as it is stored."""

    thread_id: str
    messages: list[Message] = field(default_factory=list[Message])
    """In the order in which they were appended; results of a batch in the order in which the calls ended."""
    extra: JsonObject = field(default_factory=dict[str, Any])
    requests: list[StoredRequest] = field(default_factory=list[StoredRequest])
    """Questions that have not been cleared, oldest first."""
    parent_thread_id: str | None = None
    version: int = 0
    """How many messages were ever appended; it grows with each append that stored something."""


@dataclass(frozen=True, slots=True)
class RunClaim:
    """The right to run on a thread. Only its holder may append while it lasts."""

    thread_id: str
    run_id: str
    token: str
    """Unique to this claim, so that a holder whose lease ran out cannot act on its successor's."""
    version: int
    """The thread's version when the claim was granted."""


@runtime_checkable
class Checkpointer(Protocol):
    """Keeps threads. All methods are checkpoints and raise ``StoreError`` or one of its subclasses.

    Use a store as an async context manager where it holds connections; it may be opened again after it was closed.
    """

    async def __aenter__(self) -> Self:
        """Open the store. Raises ``StoreSchemaError`` if its tables are missing or of another version."""
        ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it; waits for what is being written, also when cancelled."""
        ...

    async def load(self, thread_id: str) -> ThreadRecord | None:
        """The thread, or ``None`` if there is none. Raises ``StoreCorrupt``, with the row, for what it cannot read."""
        ...

    async def append(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        claim: RunClaim | None = None,
        extra: JsonObject | None = None,
    ) -> None:
        """Store ``messages`` in order, making the thread if there is none. Those whose id is stored are passed over.

        ``extra`` are notes, stored with the messages or not at all: each replaces the thread's note of its key (nothing
        is merged deeper), and keys that are not given stay as they are. A key is never removed: an agent stores a note
        that was deleted as null, so that it is loaded as ``None``. There may be notes without messages; the version
        counts messages only.

        O(new messages and notes), one transaction. With a ``claim``: raises ``ClaimLost`` and stores nothing if
        somebody has taken it over or it was given back; a lease that ran out is no reason by itself. Without: raises
        ``ThreadBusy`` and stores nothing while somebody's claim lasts. Raises ``UsageError`` for a message without an
        id.
        """
        ...

    async def save_extra(self, thread_id: str, extra: JsonObject) -> None:
        """Merge ``extra`` into the thread's, key by key, making the thread if there is none.

        For notes from outside of any run: it asks for no claim. What a run notes is stored by ``append``.
        """
        ...

    async def claim_run(self, thread_id: str, run_id: str, *, lease_seconds: float) -> RunClaim:
        """Take the right to run on the thread, making it if there is none.

        Raises ``ThreadBusy`` while another claim holds; a claim whose lease ran out is taken over. Raises
        ``RunIdTaken`` if a run of that id has been claimed on this thread before and ended other than suspended.
        Cancelled, it leaves no claim behind.
        """
        ...

    async def renew_claim(self, claim: RunClaim, *, lease_seconds: float) -> None:
        """Let the claim last ``lease_seconds`` from now. Raises ``ClaimLost`` if somebody has taken it over."""
        ...

    async def release_claim(self, claim: RunClaim, end: RunOutcome) -> None:
        """Give the right back and note how the run ended. Does nothing if the claim is held no more."""
        ...

    async def save_requests(self, thread_id: str, requests: Sequence[PersonRequest]) -> None:
        """Store questions to a person; one whose id is stored is passed over."""
        ...

    async def save_answer(self, thread_id: str, request_id: str, answer: PersonAnswer) -> None:
        """Store the answer to a question. The first answer stands: raises ``AlreadyAnswered`` for a second one, and
        ``UnknownRequest`` if there is no such question."""
        ...

    async def clear_requests(self, thread_id: str, request_ids: Sequence[str]) -> None:
        """Forget questions, answered or not. Unknown ids are passed over."""
        ...

    async def fork(self, thread_id: str, new_thread_id: str, *, after_run_id: str | None = None) -> None:
        """Copy the thread as it was after ``after_run_id`` ended, or as it is; the copy's parent is the original.

        With ``after_run_id`` the messages of runs that ended later or not at all are left out (those without a run are
        kept). Questions and claims are never copied, what is in ``extra`` always is. Raises ``ThreadNotFound``,
        ``ThreadExists``, or ``RunNotEnded`` if there is no such run or it goes on; a suspended one goes on.
        """
        ...

    async def delete(self, thread_id: str) -> None:
        """Forget the thread and all that belongs to it. Nothing happens if there is none."""
        ...

    async def list_threads(self) -> list[str]:
        """The ids of all threads, oldest first."""
        ...
