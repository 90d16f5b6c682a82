"""Every exception of the package, in one tree with one base.

    CubepiError
    ├── UsageError                  the calling program did something the API does not allow
    │   ├── AgentBusy               a second run was started on an agent that has one
    │   ├── EmptyPrompt             a prompt without anything to say (also a ValueError)
    │   ├── NothingToResume         resume() found nothing the model could go on from
    │   ├── RequestsPending         the thread waits for a person, and must not go on without the answers
    │   ├── StreamMisuse            two consumers, or a consumer after the stream was closed
    │   ├── FauxQueueEmpty          the faux model was asked more often than it was given answers
    │   ├── UnsupportedSetting      a setting that the wire format of the model has no field for
    │   └── ToolDefinitionError     a tool no model could call (also a TypeError)
    │       └── DuplicateToolName   two tools of one agent share a name
    ├── RunEnded                    raised by RunResult.raise_for_error(), never by a run itself
    │   ├── RunAborted              abort() ended the run
    │   ├── RunSuspended            the run waits for a person
    │   └── RunLimitReached         a limit of RunLimits ended the run
    ├── ProviderError               the model, its vendor or the way there
    │   ├── RateLimited             too many requests; ``retry_after_seconds`` says how long to wait
    │   ├── ProviderUnavailable     the vendor cannot answer now
    │   │   └── ProviderOverloaded  the vendor says it has too much to do
    │   ├── ProviderTimeout         nothing came in time (also a TimeoutError)
    │   ├── ProviderAuthFailed      the key is missing, wrong or expired
    │   ├── ProviderPermissionDenied  the key is fine but may not do this
    │   ├── ProviderBadRequest      the vendor refuses the request as it is
    │   │   ├── ModelNotFound       there is no such model (or endpoint)
    │   │   ├── ContextLengthExceeded  the conversation is longer than the model's window
    │   │   └── ContentFiltered     the vendor's safety system refused
    │   ├── MalformedResponse       the answer is not what the wire format says
    │   │   └── IncompleteStream    the answer ended before it was complete
    │   └── StructuredOutputError   the answer is not the object it was asked to be
    ├── PersonError                 a question to a person could not be asked or answered
    │   ├── RequestTimedOut         nobody answered in time (also a TimeoutError)
    │   ├── RequestWithdrawn        the question was taken back before anybody answered
    │   ├── InvalidAnswer           the answer does not fit the question, which still stands (also a ValueError)
    │   ├── UnknownRequest          there is no such question (any more)
    │   └── AlreadyAnswered         the question has an answer, and the first one stands
    └── StoreError                  a checkpointer could not keep or find a thread
        ├── StoreUnavailable        the database cannot be reached or written; the same call may work later
        ├── StoreSchemaError        the database has no tables, or those of another version
        ├── StoreCorrupt            a row cannot be read
        ├── ThreadNotFound          there is no such thread
        ├── ThreadExists            there is one already
        ├── ThreadBusy              another run holds the thread
        ├── ClaimLost               the right to run on the thread ran out and was taken over
        ├── RunIdTaken              a run of that id has ended on this thread
        └── RunNotEnded             there is no run of that id that has ended

Catch by whose doing it was: ``UsageError`` is a bug in the calling program, ``ProviderError`` is the
world's, ``StoreError`` is the database's. Each message says what is wrong and the way out. Keys and
tokens never stand in a message: provider errors are built from the vendor's answer, never from the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

__all__ = (
    "AgentBusy",
    "AlreadyAnswered",
    "ClaimLost",
    "ContentFiltered",
    "ContextLengthExceeded",
    "CubepiError",
    "DuplicateToolName",
    "EmptyPrompt",
    "FauxQueueEmpty",
    "IncompleteStream",
    "InvalidAnswer",
    "MalformedResponse",
    "ModelNotFound",
    "NothingToResume",
    "PersonError",
    "ProviderAuthFailed",
    "ProviderBadRequest",
    "ProviderError",
    "ProviderOverloaded",
    "ProviderPermissionDenied",
    "ProviderTimeout",
    "ProviderUnavailable",
    "RateLimited",
    "RequestTimedOut",
    "RequestWithdrawn",
    "RequestsPending",
    "RunAborted",
    "RunEnded",
    "RunIdTaken",
    "RunLimitReached",
    "RunNotEnded",
    "RunSuspended",
    "StoreCorrupt",
    "StoreError",
    "StoreSchemaError",
    "StoreUnavailable",
    "StreamMisuse",
    "StructuredOutputError",
    "ThreadBusy",
    "ThreadExists",
    "ThreadNotFound",
    "ToolDefinitionError",
    "UnknownRequest",
    "UnsupportedSetting",
    "UsageError",
    "error_text",
)


def error_text(error: BaseException) -> str:
    """What ``error`` says: its text, or its class where it has none or fails to say it; of a group, its leaves'."""
    if isinstance(error, BaseExceptionGroup):
        leaves = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        return "; ".join(error_text(leaf) for leaf in leaves)
    try:
        text = str(error)
    except Exception:  # a __str__ that fails must not hide the error it is of
        text = ""
    return text or type(error).__name__


class CubepiError(Exception):
    """The base of every exception this package defines."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors build the sentence from other arguments than `args`, which holds the sentence itself.
        return _revive, (type(self), self.args), vars(self)


def _revive(kind: type[CubepiError], args: tuple[Any, ...]) -> CubepiError:
    """Make a copied or unpickled error without building its sentence anew."""
    return kind.__new__(kind, *args)


# --- the calling program ---------------------------------------------------------------------


class UsageError(CubepiError):
    """The calling program did something the API does not allow. Fix the program."""


class AgentBusy(UsageError):
    """An agent does one run at a time, and this one has not ended yet.

    Wait for it (``await agent.wait_for_idle()``), end it (``agent.abort()``), or speak into it
    (``agent.steer(...)``, ``agent.follow_up(...)``).
    """

    def __init__(self, attempted: str) -> None:
        self.attempted: str = attempted
        super().__init__(
            f"{attempted}: this agent is in the middle of a run; wait for it with wait_for_idle(), "
            "end it with abort(), or speak into it with steer() or follow_up()"
        )


class EmptyPrompt(UsageError, ValueError):
    """A prompt holds nothing a model could answer: no message, no block, or only white space."""

    def __init__(self) -> None:
        super().__init__("the prompt is empty; give a text, a message with content, or a list of messages")


class NothingToResume(UsageError):
    """``resume()`` needs a transcript whose last word is not the model's, or a queued message."""

    def __init__(self, why: str) -> None:
        self.why: str = why
        super().__init__(f"nothing to resume: {why}; use prompt() to say something new")


class RequestsPending(UsageError):
    """The thread waits for a person; it goes on with ``respond()``, or with ``withdraw_requests()``."""

    def __init__(self, attempted: str, request_ids: Sequence[str]) -> None:
        self.attempted: str = attempted
        self.request_ids: tuple[str, ...] = tuple(request_ids)
        super().__init__(
            f"{attempted}: the thread waits for a person's answer to {', '.join(map(repr, request_ids))}; "
            "give it with respond(), or give the questions up with withdraw_requests()"
        )


class StreamMisuse(UsageError):
    """A ``MessageStream`` has one consumer, and only until it is closed."""


class FauxQueueEmpty(UsageError):
    """The faux model was called once more than it has responses for."""

    def __init__(self, call_count: int) -> None:
        self.call_count: int = call_count
        super().__init__(
            f"call {call_count} of the faux model finds no response in its queue; "
            "queue one for each model call with set_responses() or append_responses()"
        )


class UnsupportedSetting(UsageError):
    """A setting was given that the model's wire format cannot say. Nothing was sent."""

    def __init__(self, setting: str, api: str, way_out: str = "") -> None:
        self.setting: str = setting
        self.api: str = api
        way_out = way_out or "leave it out, say it in the vendor's own words in extra_body, or ask another model"
        super().__init__(f"{api} has no field for the setting {setting!r}; {way_out}")


class ToolDefinitionError(UsageError, TypeError):
    """A tool cannot be offered to a model as it is defined; raised when it is constructed."""

    def __init__(self, tool_name: str, problem: str) -> None:
        self.tool_name: str = tool_name
        self.problem: str = problem
        super().__init__(f"tool {tool_name!r}: {problem}")


class DuplicateToolName(ToolDefinitionError):
    """Two tools of one agent share a name, so a model could not say which one it means."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(tool_name, "an agent's tools need different names, and two have this one")


# --- how a run ended -------------------------------------------------------------------------


class RunEnded(CubepiError):
    """A run ended otherwise than by completing; raised only by ``RunResult.raise_for_error()``."""


class RunAborted(RunEnded):
    """``abort()`` ended the run; ``reason`` is what it was given."""

    def __init__(self, reason: str | None) -> None:
        self.reason: str | None = reason
        super().__init__("the run was aborted" + (f": {reason}" if reason else ""))


class RunSuspended(RunEnded):
    """The run waits for a person; answer with ``agent.respond(...)``."""

    def __init__(self) -> None:
        super().__init__("the run waits for a person's answer; give it with respond()")


class RunLimitReached(RunEnded):
    """A limit of ``RunLimits`` ended the run; the work so far is kept and the agent can go on."""

    def __init__(self, limit: str, bound: float) -> None:
        self.limit: str = limit
        self.bound: float = bound
        super().__init__(f"the run reached {limit}={bound:g}; raise the limit and resume(), or leave it at that")


# --- the model, its vendor, and the way there ------------------------------------------------


class ProviderError(CubepiError):
    """A model could not be asked, or its answer could not be used.

    ``provider`` and ``model`` say whom we asked; ``status_code``, ``error_code`` and ``request_id``
    are what the vendor sent, ``None`` where it sent nothing; ``retry_after_seconds`` is how long the
    vendor asks to wait. The cause, if the error came from below, is ``__cause__``.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status_code: int | None = None,
        error_code: str | None = None,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.message: str = message
        self.provider: str = provider
        self.model: str = model
        self.status_code: int | None = status_code
        self.error_code: str | None = error_code
        self.request_id: str | None = request_id
        self.retry_after_seconds: float | None = retry_after_seconds
        super().__init__(message)

    def __str__(self) -> str:
        whom = "/".join(part for part in (self.provider, self.model) if part)
        facts = [
            f"HTTP {self.status_code}" if self.status_code is not None else "",
            self.error_code or "",
            f"request {self.request_id}" if self.request_id else "",
            f"retry after {self.retry_after_seconds:g} s" if self.retry_after_seconds is not None else "",
        ]
        noted = ", ".join(fact for fact in facts if fact)
        return f"{f'[{whom}] ' if whom else ''}{self.message}{f' ({noted})' if noted else ''}"


class RateLimited(ProviderError):
    """Too many requests or tokens for this key. Wait ``retry_after_seconds``, or ask less at once."""


class ProviderUnavailable(ProviderError):
    """The vendor cannot answer now (5xx, or no connection). The same request may work later."""

    def __init__(self, message: str, *, errors: Sequence[Exception] = (), **fields: object) -> None:
        self.errors: tuple[Exception, ...] = tuple(errors)
        """What each attempt ended with, where several models or attempts were tried."""
        super().__init__(message, **fields)  # type: ignore[arg-type]


class ProviderOverloaded(ProviderUnavailable):
    """The vendor says it has too much to do. Retry later, or ask another model."""


class ProviderTimeout(ProviderError, TimeoutError):
    """Nothing came within the time given for connecting, the first token, or the next one."""


class ProviderAuthFailed(ProviderError):
    """The key is missing, wrong or expired. Check the environment variable the message names."""


class ProviderPermissionDenied(ProviderError):
    """The key is valid, and may not use this model or feature."""


class ProviderBadRequest(ProviderError):
    """The vendor refuses the request as it is; sending it again changes nothing."""


class ModelNotFound(ProviderBadRequest):
    """There is no such model, or this endpoint does not serve it. Check the model's id."""


class ContextLengthExceeded(ProviderBadRequest):
    """The conversation is longer than the model's window. Shorten it, or choose a larger model."""


class ContentFiltered(ProviderBadRequest):
    """The vendor's safety system refused the prompt or stopped the answer."""


class MalformedResponse(ProviderError):
    """The answer is not what the wire format says. What had arrived before is kept."""


class IncompleteStream(MalformedResponse):
    """The answer ended before the model said it was done. What had arrived is kept; no tool of it runs."""


class StructuredOutputError(ProviderError):
    """The model's answer is not the object it was asked to be, also after it was told so.

    ``problem`` says in what, a line for each field; ``answer`` is the last text or the arguments it gave, as JSON.
    """

    def __init__(self, message: str, *, problem: str = "", answer: str = "", **fields: Any) -> None:
        self.problem: str = problem
        self.answer: str = answer
        super().__init__(message, **fields)


# --- a person in the loop --------------------------------------------------------------------


class PersonError(CubepiError):
    """A question to a person could not be asked or answered."""


class RequestTimedOut(PersonError, TimeoutError):
    """Nobody answered within the time the question was given. Ask again, or give it longer."""

    def __init__(self, request_id: str, seconds: float) -> None:
        self.request_id: str = request_id
        self.seconds: float = seconds
        super().__init__(f"nobody answered the question {request_id!r} within {seconds:g} seconds")


class RequestWithdrawn(PersonError):
    """The question was taken back before anybody answered it; ``reason`` says why, where a reason was given."""

    def __init__(self, request_id: str, reason: str = "") -> None:
        self.request_id: str = request_id
        self.reason: str = reason
        super().__init__(f"the question {request_id!r} was withdrawn{f': {reason}' if reason else ''}")


class InvalidAnswer(PersonError, ValueError):
    """An answer does not fit its question. Nothing was decided by it, and the question still stands."""

    def __init__(self, request_id: str, problem: str) -> None:
        self.request_id: str = request_id
        self.problem: str = problem
        super().__init__(f"this does not answer the question {request_id!r}: {problem}")


class UnknownRequest(PersonError):
    """There is no question of that id: it never was, it was withdrawn, or its time is over."""

    def __init__(self, request_id: str) -> None:
        self.request_id: str = request_id
        super().__init__(f"no question {request_id!r} waits for an answer; ask for those that do and use their ids")


class AlreadyAnswered(PersonError):
    """The question has an answer; the first one stands."""

    def __init__(self, request_id: str) -> None:
        self.request_id: str = request_id
        super().__init__(f"the question {request_id!r} has been answered already, and the first answer stands")


# --- stores ----------------------------------------------------------------------------------


class StoreError(CubepiError):
    """A checkpointer could not keep or find a thread."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, is locked, full or read-only. Nothing was written; try the call again later."""


class StoreSchemaError(StoreError):
    """The database has no tables of ours, or those of another version. The message says how to make or migrate them."""


class StoreCorrupt(StoreError):
    """A row cannot be read. Nothing is loaded of its thread, so that nothing is lost by writing over it.

    Where the database itself is damaged, ``thread_id`` is empty and ``row`` names the file.
    """

    def __init__(self, thread_id: str, row: str, problem: str) -> None:
        self.thread_id: str = thread_id
        self.row: str = row
        self.problem: str = problem
        where = f"thread {thread_id!r}, {row}" if thread_id else row
        way_out = "; mend or delete the row, or fork before it" if thread_id else ""
        super().__init__(f"{where}: {problem}{way_out}")


class _ThreadError(StoreError):
    _sentence = ""

    def __init__(self, thread_id: str) -> None:
        self.thread_id: str = thread_id
        super().__init__(self._sentence.format(thread=repr(thread_id)))


class ThreadNotFound(_ThreadError):
    """There is no such thread."""

    _sentence = "there is no thread {thread}"


class ThreadExists(_ThreadError):
    """There is a thread of that id already."""

    _sentence = "there is a thread {thread} already; choose another id, or delete it first"


class ThreadBusy(_ThreadError):
    """Another run holds the thread; wait until it has ended, or until its lease is over if its process died."""

    _sentence = "another run holds thread {thread}; wait for it to end, or for its lease to run out"


class ClaimLost(_ThreadError):
    """The run's lease on its thread ran out and another run took over; this one has stored nothing since."""

    _sentence = "the lease on thread {thread} ran out and another run took it over; load the thread anew"


class RunIdTaken(StoreError):
    """A run of that id has ended on this thread; an id names one run."""

    def __init__(self, thread_id: str, run_id: str) -> None:
        self.thread_id: str = thread_id
        self.run_id: str = run_id
        super().__init__(f"thread {thread_id!r} has had a run {run_id!r}; give each run an id of its own")


class RunNotEnded(StoreError):
    """There is no run of that id on the thread, or it has not ended."""

    def __init__(self, thread_id: str, run_id: str) -> None:
        self.thread_id: str = thread_id
        self.run_id: str = run_id
        super().__init__(f"thread {thread_id!r} has no ended run {run_id!r} to copy up to")
