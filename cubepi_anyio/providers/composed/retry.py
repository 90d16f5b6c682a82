"""A model that is asked again when it could not answer.

Only while nothing of an answer has been delivered: what a consumer has seen cannot be taken back. An abort is never a
reason to ask again, and ends a wait at once.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import anyio

from ...errors import IncompleteStream, ProviderTimeout, ProviderUnavailable, RateLimited, error_text
from ...stream.message_stream import MessageStream
from ...types.model import Model
from ..model_call import ModelCall, Provider, StreamingModel
from .relay import ComposedModel, Failure, note, relay_within, tell

__all__ = ("RETRYABLE_ERRORS", "OnRetry", "RetryModel", "RetryNotice", "RetryPolicy")

RETRYABLE_ERRORS: tuple[type[Exception], ...] = (RateLimited, ProviderUnavailable, ProviderTimeout, IncompleteStream)
"""Errors after which the same request may succeed; subclasses (``ProviderOverloaded``) count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNotice:
    """A model failed and will be asked again."""

    model: StreamingModel
    error: Exception
    attempt: int
    """The attempt that failed, counted from 1."""
    wait_seconds: float
    """How long until the next one."""


OnRetry = Callable[[RetryNotice], Awaitable[None] | None]
"""Hears of each retry before its wait, sync or async; what it raises is logged and passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to ask again, and after how long. Raises ``ValueError`` for numbers that make no sense.

    The wait before attempt ``n + 1`` is ``initial_delay_seconds * multiplier ** (n - 1)``, at most
    ``max_delay_seconds``, less a random part. A vendor that says how long to wait is obeyed instead, to the letter,
    unless it asks for more than ``max_retry_after_seconds``: to ask sooner would be in vain, so there is no retry.
    """

    max_attempts: int = 3
    """How often the model is asked at most, the first time included."""
    initial_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0
    multiplier: float = 2.0
    jitter: float = 0.5
    """The largest part of a wait that is left out at random (0 to 1), so that many callers do not return together."""
    max_retry_after_seconds: float = 60.0
    total_deadline_seconds: float | None = 120.0
    """For all attempts and waits together, until an answer begins; ``None`` for no end. An answer has no deadline."""
    retry_on: tuple[type[Exception], ...] = RETRYABLE_ERRORS
    random: Random = field(default_factory=Random, repr=False, compare=False)
    """Where the jitter comes from; give ``Random(seed)`` for waits that can be repeated."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is at least 1, not {self.max_attempts}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a part of the wait, from 0 to 1, not {self.jitter}")
        if not self.multiplier >= 1:
            raise ValueError(f"multiplier is at least 1, not {self.multiplier}")
        for name in ("initial_delay_seconds", "max_delay_seconds", "max_retry_after_seconds", "total_deadline_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds >= 0:
                raise ValueError(f"{name} is not negative, and not {seconds}")

    def wait_seconds(self, attempt: int, error: Exception) -> float | None:
        """How long to wait after attempt number ``attempt`` (from 1) failed with ``error``; ``None`` to give up."""
        if attempt >= self.max_attempts or not isinstance(error, self.retry_on):
            return None
        asked: float | None = getattr(error, "retry_after_seconds", None)
        if asked is not None:
            return max(asked, 0.0) if asked <= self.max_retry_after_seconds else None
        try:
            grown = self.initial_delay_seconds * self.multiplier ** (attempt - 1)
        except OverflowError:
            grown = math.inf
        return min(grown, self.max_delay_seconds) * (1 - self.jitter * self.random.random())

    def wrap(self, model: StreamingModel, *, on_retry: OnRetry | None = None) -> RetryModel:
        """``model``, asked by this policy."""
        return RetryModel(model, self, on_retry=on_retry)


class RetryModel(ComposedModel):
    """A model that is asked again by a ``RetryPolicy``; goes wherever the model itself does.

    What is not retried, or fails for the last time, ends the stream with its own error, whose notes (``__notes__``)
    list the attempts before it. Tokens that failed attempts have cost are in nobody's ``usage``.
    """

    def __init__(
        self, model: StreamingModel, policy: RetryPolicy | None = None, *, on_retry: OnRetry | None = None
    ) -> None:
        self.model = model
        self.policy: RetryPolicy = policy if policy is not None else RetryPolicy()
        self._on_retry = on_retry

    def __repr__(self) -> str:
        return f"RetryModel({self.model!r}, {self.policy!r})"

    @property
    def spec(self) -> Model:
        """What the model is."""
        return self.model.spec

    @property
    def provider(self) -> Provider:
        """Who serves it."""
        return self.model.provider

    @property
    def takes_response_schema(self) -> bool:
        """Whether the model keeps to ``StreamOptions.response_schema``."""
        return bool(getattr(self.model, "takes_response_schema", False))

    async def _produce(self, call: ModelCall, outer: MessageStream) -> None:
        total = self.policy.total_deadline_seconds
        deadline = anyio.current_time() + (total if total is not None else math.inf)
        failures: list[Failure] = []

        def late() -> ProviderTimeout:
            spec, count = self.spec, len(failures) + 1
            asked = f"asked {count} times" if count > 1 else "asked once"
            text = f"no token within {total:g} seconds, {asked}; raise total_deadline_seconds, or use another model"
            return ProviderTimeout(text, provider=spec.provider, model=spec.id)

        while True:
            failure = await relay_within(call, self.model, outer, deadline=deadline, late=late)
            if failure is None:
                return
            failures.append(failure)
            wait = None if call.is_aborted or failure.was_aborted else self._wait_after(failures, deadline)
            if wait is None:
                _note_attempts(failures)
                await failure.pass_on(outer)
                return
            notice = RetryNotice(model=self.model, error=failure.error, attempt=len(failures), wait_seconds=wait)
            await tell(self._on_retry, notice)
            await anyio.sleep(wait)

    def _wait_after(self, failures: Sequence[Failure], deadline: float) -> float | None:
        wait = self.policy.wait_seconds(len(failures), failures[-1].error)
        return wait if wait is not None and anyio.current_time() + wait < deadline else None


def _note_attempts(failures: Sequence[Failure]) -> None:
    """Say in the last error what the attempts before it ended with."""
    for attempt, failure in enumerate(failures[:-1], 1):
        error = failure.error
        note(failures[-1].error, f"attempt {attempt} of {len(failures)}: {type(error).__name__}: {error_text(error)}")
