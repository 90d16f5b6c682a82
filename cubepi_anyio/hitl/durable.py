"""The channel that survives a restart: a question is stored, its call suspended, and asked again when it goes on.

A call that waits for a person ends as ``suspended``. When it is run again, in whatever process, it asks the same
questions in the same order: what has been answered is answered from the store, the rest suspends it once more. A
question is the same if it belongs to the same call and has the same content; for an approval that is the tool and
the arguments, so that nothing runs but what was approved. The answer is taken out of the store before the call goes
on, so that a process that dies in the body of a tool leaves nothing behind that would run it twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from ..checkpointers.base import StoredRequest
from ..checkpointers.codec import encode_value
from ..errors import RequestTimedOut, UsageError
from ..tools.run.suspend import SuspendCall
from ..types.hitl import PersonAnswer, PersonRequest, RequestPayload
from .channel import Channel, is_overdue

__all__ = ("DurableChannel", "Journal")


class Journal(Protocol):
    """Where a durable channel keeps its questions: the stored thread of the agent it belongs to."""

    @property
    def thread_id(self) -> str:
        """The thread."""
        ...

    @property
    def run_id(self) -> str | None:
        """The run that holds the thread now; ``None`` if none does."""
        ...

    def questions_of(self, tool_call_id: str) -> list[StoredRequest]:
        """The stored questions of a call, answered or not, oldest first."""
        ...

    async def save(self, request: PersonRequest) -> None:
        """Store a question that suspends its call; one that is stored already is left as it is.

        Questions that the call has taken before are put back, with their answers: it will ask them again.
        """
        ...

    async def take(self, request_id: str) -> StoredRequest | None:
        """Take a question out of the store, with its answer if it has one; durable before this returns.

        ``None`` if it is not there.
        """
        ...

    async def clear(self, request_ids: Sequence[str]) -> None:
        """Forget questions, and their answers with them."""
        ...


class DurableChannel(Channel):
    """A ``Channel`` whose questions are kept in a stored thread; the run is suspended while they wait.

    ::

        channel = DurableChannel()
        agent = Agent(..., checkpointer=store, thread_id="t", channel=channel,
                      middleware=[ApprovalPolicy(channel, policy)])

    It belongs to one agent. A question needs a call that may be run again: ask before a tool runs (``ApprovalPolicy``,
    or ``before_tool_call`` with the call's id), or in a tool that does nothing else (``AgentTool(asks=True)``). What
    is asked must not change from one time to the next, or it is another question.
    """

    def __init__(self, default_timeout: float | None = None) -> None:
        super().__init__(default_timeout)
        self._journal: Journal | None = None

    def bind(self, journal: Journal) -> None:
        """Keep the questions in ``journal``. The agent does this.

        Raises ``UsageError`` for a second journal: questions of one agent would end up with another.
        """
        if self._journal is not None and self._journal is not journal:
            raise UsageError("a durable channel belongs to one agent; make another for each agent")
        self._journal = journal

    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        journal = self._open_journal(request)
        standing = await _same_question(journal, request)
        if standing is not None and (standing.answered or is_overdue(standing.request)):
            used = await journal.take(standing.request.id)
            if used is not None:
                if not used.answered or used.answer is None:
                    raise RequestTimedOut(used.request.id, used.request.timeout_seconds or 0)
                return used.answer
        waiting = request if standing is None else standing.request
        waiting = waiting.model_copy(update={"thread_id": journal.thread_id, "run_id": journal.run_id or ""})
        await journal.save(waiting)
        raise SuspendCall(waiting)

    def _open_journal(self, request: PersonRequest) -> Journal:
        journal = self._journal
        if journal is None or journal.run_id is None:
            raise UsageError(
                "a durable channel asks within a run of its agent: "
                "give the agent checkpointer=, thread_id= and channel="
            )
        if not request.tool_call_id:
            raise UsageError("a durable channel asks on behalf of a call: pass tool_call_id=")
        if request.run_id not in ("", journal.run_id):
            raise UsageError(
                "a durable channel asks for its own agent only: the call belongs to a run of another, perhaps a nested "
                "one, that could not be continued; give that agent no tools and middleware that ask through it"
            )
        return journal


async def _same_question(journal: Journal, request: PersonRequest) -> StoredRequest | None:
    """The oldest stored question that is this one.

    If there is none, those of its kind are of a call that has changed since: they are forgotten, so that their answers
    can do nothing any more.
    """
    kind = request.payload.kind
    stored = [one for one in journal.questions_of(request.tool_call_id) if one.request.payload.kind == kind]
    content = _content(request.payload)
    for one in stored:
        if _content(one.request.payload) == content:
            return one
    if stored:
        await journal.clear([one.request.id for one in stored])
    return None


def _content(payload: RequestPayload) -> str:
    """What makes a question this one and no other, as canonical JSON; numbers and truth values are told apart."""
    if payload.kind == "approve":
        content: Any = [payload.tool_name, payload.args]
    else:
        content = payload.model_dump(mode="python")
    return json.dumps(json.loads(encode_value(content)), sort_keys=True)
