"""Why a run ends, and how it ended: decided here, and nowhere else.

A run ends by itself, or because somebody or something ends it: the *cause*. There is at most one, and the strongest
that was given counts; of two equal ones the first::

    failed   a bug of a hook or a listener, a failing store, Ctrl-C    leaves prompt() as an exception
      >  aborted   agent.abort()                                      outcome "aborted"
      >  limit     a field of RunLimits                               outcome "limit"
      >  error     the model failed                                   outcome "error"

Whoever ends a run says so here. The cause stands, the signal is set, and where the run may be waiting its scope is
cancelled, in this order: whatever wakes up finds the reason. Others ask ``is_called`` before they begin something,
and never decide an outcome. Nothing here knows of calls, messages or events: who has to hear of the end follows the
signal.

What would break: a second place that looks at flags decides otherwise in the one step in which two causes meet, and
the caller reads "completed" of a run whose transcript says that it was cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import anyio
from anyio import CancelScope

from ..concurrency import AbortSource
from ..types.run import RunOutcome

__all__ = ("Cause", "CauseKind", "Ending", "outcome_by")


class CauseKind(IntEnum):
    """What ends a run, the weakest first."""

    ERROR = 1
    LIMIT = 2
    ABORTED = 3
    FAILED = 4


_OUTCOMES: dict[CauseKind, RunOutcome] = {
    CauseKind.ERROR: "error",
    CauseKind.LIMIT: "limit",
    CauseKind.ABORTED: "aborted",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason to end a run."""

    kind: CauseKind
    reason: str | None = None
    """What ``abort()`` was given."""
    limit: str | None = None
    """The field of ``RunLimits`` that was reached."""
    bound: float | None = None
    error: BaseException | None = None
    """The model's error, or the exception that is to leave the run."""

    @property
    def text(self) -> str | None:
        """Why calls of the run did not come to their end, for the model to read; ``None`` for a bug."""
        if self.kind is CauseKind.LIMIT:
            return f"the run reached its limit {self.limit}"
        if self.kind is CauseKind.ABORTED:
            return f"the run was aborted{f' ({self.reason})' if self.reason else ''}"
        return None


class Ending:
    """The ending of one run."""

    __slots__ = ("_cause", "around", "deadlines", "is_settling", "scope", "signal")

    def __init__(self) -> None:
        self.signal: AbortSource = AbortSource()
        self.scope: CancelScope = CancelScope()
        """The scope of the run: the work of it stands inside, settling outside."""
        self.around: CancelScope | None = None
        """The scope of what stands around the whole run, while that is at work: before the run has begun, and after."""
        self.is_settling: bool = False
        """Whether the record is being completed, or is complete: too late for an abort."""
        self._cause: Cause | None = None
        self.deadlines: tuple[tuple[str, CancelScope, float], ...] = ()
        """The limits that are deadlines: of each its name, the scope that keeps it, and its seconds. Read only."""

    # --- ending it ---------------------------------------------------------------------------

    def abort(self, reason: str | None) -> None:
        """End the run from outside: whatever it waits for is cancelled.

        Once it settles its outcome stands; what stands around the run and is still at work then is cancelled.
        """
        if not self.is_settling and self._take(Cause(CauseKind.ABORTED, reason=reason)):
            self._set_signal(reason)
            self.scope.cancel()
        if self.around is not None:
            self.around.cancel()

    def fail(self, error: BaseException, *, at_once: bool = True) -> None:
        """End the run because of an error that cannot be raised where it was noticed.

        Not ``at_once``: what the run is at comes to its end first, and nothing new begins.
        """
        self._take(Cause(CauseKind.FAILED, error=error))
        self._set_signal("the run failed")
        if at_once:
            self.scope.cancel()

    def reach_limit(self, name: str, bound: float) -> None:
        """End the run because of a limit. Nothing is cancelled: what was cut has been, the rest comes to its end."""
        if self._take(Cause(CauseKind.LIMIT, limit=name, bound=bound)):
            self._set_signal(f"the run reached {name}={bound:g}")

    def model_failed(self, error: Exception) -> None:
        """End the run because the model could not answer."""
        self._take(Cause(CauseKind.ERROR, error=error))

    def surroundings_cancelled(self) -> None:
        """Tell those who follow the signal that the run is cancelled from outside."""
        self._set_signal("the run was cancelled")

    def _take(self, cause: Cause) -> bool:
        """Keep ``cause`` if it is stronger than what is known; whether it is."""
        known = self.cause
        if known is not None and known.kind >= cause.kind:
            return False
        self._cause = cause
        return True

    def _set_signal(self, reason: str | None) -> None:
        if not self.signal.is_set():
            self.signal.set(reason)

    # --- deadlines ---------------------------------------------------------------------------

    def bound_run(self, seconds: float) -> None:
        """Give the run's own scope its deadline."""
        self.scope.deadline = anyio.current_time() + seconds
        self.bound_by("run_timeout", self.scope, seconds)

    def bound_by(self, name: str, scope: CancelScope, seconds: float) -> None:
        """Take the deadline of ``scope`` for the limit ``name``: where it has passed, that is why the run ends."""
        self.deadlines = (*(entry for entry in self.deadlines if entry[0] != name), (name, scope, seconds))

    # --- what came of it ---------------------------------------------------------------------

    @property
    def cause(self) -> Cause | None:
        """Why the run ends; ``None`` while nothing ends it."""
        if self._cause is None:
            for name, scope, seconds in self.deadlines:
                if scope.cancel_called:
                    # Set at once, so that a deadline that passes a moment later changes nothing any more.
                    self._cause = Cause(CauseKind.LIMIT, limit=name, bound=seconds)
                    self._set_signal(f"the run reached {name}={seconds:g}")
                    break
        return self._cause

    @property
    def is_called(self) -> bool:
        """Whether the run is being ended, so that nothing new is to begin."""
        return self.cause is not None

    @property
    def may_end_in_peace(self) -> bool:
        """Whether nobody has ended the run: its work is over, or the model has failed, which is an end like others."""
        cause = self.cause
        return cause is None or cause.kind is CauseKind.ERROR

    @property
    def limit(self) -> str | None:
        """The limit that ends the run, where it is one that does."""
        cause = self.cause
        return cause.limit if cause is not None else None

    def why(self) -> str | None:
        """Why calls of this run were cancelled, for the model to read."""
        cause = self.cause
        return cause.text if cause is not None else None

    def outcome(self, *, is_suspended: bool) -> RunOutcome:
        """How a run ended whose work is over without an exception; ``is_suspended``: calls of it wait for a person."""
        cause = self.cause
        if cause is None:
            return "suspended" if is_suspended else "completed"
        if cause.kind is CauseKind.FAILED:
            assert cause.error is not None
            return outcome_by(cause.error)
        return _OUTCOMES[cause.kind]

    @property
    def to_raise(self) -> BaseException | None:
        """What is to leave the run when it has settled, because it could not be raised where it was noticed."""
        cause = self.cause
        return cause.error if cause is not None and cause.kind is CauseKind.FAILED else None

    @property
    def model_error(self) -> Exception | None:
        """The model's error, where that ended the run."""
        cause = self.cause
        if cause is None or cause.kind is not CauseKind.ERROR or not isinstance(cause.error, Exception):
            return None
        return cause.error


def outcome_by(error: BaseException) -> RunOutcome:
    """How a run ended that an exception ended: a cancellation and Ctrl-C are no errors."""
    return "error" if isinstance(error, Exception) else "aborted"
