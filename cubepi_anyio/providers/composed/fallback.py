"""Models asked one after the other until one answers.

Only while nothing of an answer has been delivered; then the answer, and its failure, is that model's. An abort is never
a reason to ask the next one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio
from anyio.lowlevel import checkpoint

from ...errors import (
    ContextLengthExceeded,
    MalformedResponse,
    ModelNotFound,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    UsageError,
    error_text,
)
from ...stream.message_stream import MessageStream
from ...types.model import Model
from ..model_call import ModelCall, Provider, StreamingModel
from .relay import ComposedModel, Failure, exhausted, name_of, note, relay_within, tell

__all__ = ("FALLBACK_ERRORS", "FailoverNotice", "FallbackModel", "OnFailover")

FALLBACK_ERRORS: tuple[type[Exception], ...] = (
    RateLimited,
    ProviderUnavailable,
    ProviderTimeout,
    MalformedResponse,
    ContextLengthExceeded,
    ModelNotFound,
)
"""Errors that another model may not have. A wrong key, a filtered prompt and a malformed request are the caller's to
hear of: list ``ProviderAuthFailed``, ``ContentFiltered`` or ``ProviderBadRequest`` to pass them over as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverNotice:
    """A model failed, and another is asked."""

    failed: StreamingModel
    next: StreamingModel
    error: Exception


OnFailover = Callable[[FailoverNotice], Awaitable[None] | None]
"""Hears of each change of model before the next one is asked, sync or async; what it raises is logged and passed
over."""


class FallbackModel(ComposedModel):
    """Several models of which the first that answers is heard; goes wherever one of them does.

    Each model is asked once for a call; to ask one several times, put a ``RetryModel`` in its place.
    ``first_token_timeout_seconds`` is how long each may take until it says something, the last one too.

    With ``sticky`` the model that answered is asked first from then on, so that a conversation does not wait for a
    broken model at each turn and its prompt cache is of use; when it fails the others follow, from the one after it
    and around. ``reset()`` goes back to the first. Without it each call begins with the first. What sticks belongs to
    this object: agents that share it share it.

    An error that is not among ``errors`` ends the call as it is. If all have failed, the error is
    ``ProviderUnavailable`` whose ``errors`` has one for each. Raises ``UsageError`` without any model.
    """

    def __init__(
        self,
        models: Sequence[StreamingModel],
        *,
        errors: tuple[type[Exception], ...] = FALLBACK_ERRORS,
        on_failover: OnFailover | None = None,
        first_token_timeout_seconds: float | None = None,
        sticky: bool = True,
    ) -> None:
        if not models:
            raise UsageError("a FallbackModel needs at least one model to ask")
        self.models: tuple[StreamingModel, ...] = tuple(models)
        self.errors: tuple[type[Exception], ...] = tuple(errors)
        self.first_token_timeout_seconds = first_token_timeout_seconds
        self.sticky = sticky
        self._on_failover = on_failover
        self._current = 0

    def __repr__(self) -> str:
        return f"FallbackModel({', '.join(map(repr, self.models))})"

    @property
    def current(self) -> StreamingModel:
        """The model that is asked first."""
        return self.models[self._current]

    def reset(self) -> None:
        """Ask the first model first again."""
        self._current = 0

    @property
    def spec(self) -> Model:
        """What the model is that is asked first."""
        return self.current.spec

    @property
    def provider(self) -> Provider:
        """Who serves it."""
        return self.current.provider

    @property
    def takes_response_schema(self) -> bool:
        """Whether all the models keep to ``StreamOptions.response_schema``."""
        return all(getattr(model, "takes_response_schema", False) for model in self.models)

    async def _produce(self, call: ModelCall, outer: MessageStream) -> None:
        order = [*range(self._current, len(self.models)), *range(self._current)]
        failures: list[Failure] = []
        for position, index in enumerate(order):
            failure = await self._ask(index, call, outer)
            if failure is None:
                return
            failures.append(failure)
            if call.is_aborted or failure.was_aborted or not isinstance(failure.error, self.errors):
                _note_models(failures)
                await failure.pass_on(outer)
                return
            if position + 1 < len(order):
                following = self.models[order[position + 1]]
                notice = FailoverNotice(failed=failure.model, next=following, error=failure.error)
                await tell(self._on_failover, notice)
                await checkpoint()
        if len(failures) == 1:
            await failures[0].pass_on(outer)
        else:
            outer.fail(exhausted(failures))

    async def _ask(self, index: int, call: ModelCall, outer: MessageStream) -> Failure | None:
        model, seconds = self.models[index], self.first_token_timeout_seconds

        def late() -> ProviderTimeout:
            text = f"no token within first_token_timeout_seconds={seconds:g}"
            return ProviderTimeout(text, provider=model.spec.provider, model=model.spec.id)

        def begin() -> None:
            if self.sticky:
                self._current = index

        deadline = anyio.current_time() + (seconds if seconds is not None else math.inf)
        return await relay_within(call, model, outer, deadline=deadline, late=late, begin=begin)


def _note_models(failures: Sequence[Failure]) -> None:
    """Say in the last error which models had failed before."""
    for failure in failures[:-1]:
        said = f"{type(failure.error).__name__}: {error_text(failure.error)}"
        note(failures[-1].error, f"before, {name_of(failure.model)} failed: {said}")
