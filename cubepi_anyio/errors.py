"""Every exception of the package, in one tree with one base.

    CubepiError
    ├── UsageError                  the calling program did something the API does not allow
    │   ├── AgentBusy               a second run was started on an agent that has one
    │   ├── EmptyPrompt             a prompt without anything to say (also a ValueError)
    │   ├── NothingToResume         resume() found no open question in the transcript
    │   ├── StreamMisuse            two consumers, or a consumer after the stream was closed
    │   ├── FauxQueueEmpty          the faux model was asked more often than it was given answers
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
    │   └── MalformedResponse       the answer is not what the wire format says
    │       └── IncompleteStream    the answer ended before it was complete
    └── StoreError                  a checkpointer could not keep or find a thread

Catch by whose doing it was: ``UsageError`` is a bug in the calling program, ``ProviderError`` is the
world's, ``StoreError`` is the database's. Each message says what is wrong and the way out. Keys and
tokens never stand in a message: provider errors are built from the vendor's answer, never from the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = (
    "AgentBusy",
    "ContentFiltered",
    "ContextLengthExceeded",
    "CubepiError",
    "DuplicateToolName",
    "EmptyPrompt",
    "FauxQueueEmpty",
    "IncompleteStream",
    "MalformedResponse",
    "ModelNotFound",
    "NothingToResume",
    "ProviderAuthFailed",
    "ProviderBadRequest",
    "ProviderError",
    "ProviderOverloaded",
    "ProviderPermissionDenied",
    "ProviderTimeout",
    "ProviderUnavailable",
    "RateLimited",
    "RunAborted",
    "RunEnded",
    "RunLimitReached",
    "RunSuspended",
    "StoreError",
    "StreamMisuse",
    "ToolDefinitionError",
    "UsageError",
)


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
        self.attempted = attempted
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
        self.why = why
        super().__init__(f"nothing to resume: {why}; use prompt() to say something new")


class StreamMisuse(UsageError):
    """A ``MessageStream`` has one consumer, and only until it is closed."""


class FauxQueueEmpty(UsageError):
    """The faux model was called once more than it has responses for."""

    def __init__(self, call_count: int) -> None:
        self.call_count = call_count
        super().__init__(
            f"call {call_count} of the faux model finds no response in its queue; "
            "queue one for each model call with set_responses() or append_responses()"
        )


class ToolDefinitionError(UsageError, TypeError):
    """A tool cannot be offered to a model as it is defined; raised when it is constructed."""

    def __init__(self, tool_name: str, problem: str) -> None:
        self.tool_name, self.problem = tool_name, problem
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
        self.reason = reason
        super().__init__("the run was aborted" + (f": {reason}" if reason else ""))


class RunSuspended(RunEnded):
    """The run waits for a person; answer with ``agent.respond(...)``."""

    def __init__(self) -> None:
        super().__init__("the run waits for a person's answer; give it with respond()")


class RunLimitReached(RunEnded):
    """A limit of ``RunLimits`` ended the run; the work so far is kept and the agent can go on."""

    def __init__(self, limit: str, bound: float) -> None:
        self.limit, self.bound = limit, bound
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
        self.message = message
        self.provider, self.model = provider, model
        self.status_code, self.error_code, self.request_id = status_code, error_code, request_id
        self.retry_after_seconds = retry_after_seconds
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
        self.errors = tuple(errors)
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


# --- stores ----------------------------------------------------------------------------------


class StoreError(CubepiError):
    """A checkpointer could not keep or find a thread."""
