"""Models asked at the same time; the first that says something is heard, and the others are cut off.

All of them live in the task group of the stream: those that lose are cancelled and their connections closed while the
first token is delivered, and when the stream has been left nothing of any of them is alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from ...concurrency import run_in_tasks
from ...errors import IncompleteStream, UsageError
from ...stream.message_stream import MessageStream
from ...types.model import Model
from ..model_call import ModelCall, Provider, StreamingModel
from .relay import ComposedModel, Failure, exhausted, relay

__all__ = ("RaceModel",)


class RaceModel(ComposedModel):
    """Several models asked together, for the sake of the first token; goes wherever one of them does.

    The first that produces a token (text, thinking, a call, or the end of an empty answer) wins; of several that do in
    the same step of the event loop, the one that stands first in ``models``. An answer that has begun is not taken
    back: if it fails later, the call fails. A model that fails before its first token is out of the race, whatever its
    error is. If all fail, the error is ``ProviderUnavailable`` whose ``errors`` has one for each, in their order.

    Each call is billed by all the vendors, for the prompt at least; ``usage`` is the winner's. ``spec`` and
    ``provider`` are those of the first model. Raises ``UsageError`` without any model.
    """

    def __init__(self, models: Sequence[StreamingModel]) -> None:
        if not models:
            raise UsageError("a RaceModel needs at least one model to ask")
        self.models: tuple[StreamingModel, ...] = tuple(models)

    def __repr__(self) -> str:
        return f"RaceModel({', '.join(map(repr, self.models))})"

    @property
    def spec(self) -> Model:
        """What the first model is."""
        return self.models[0].spec

    @property
    def provider(self) -> Provider:
        """Who serves it."""
        return self.models[0].provider

    @property
    def takes_response_schema(self) -> bool:
        """Whether all the models keep to ``StreamOptions.response_schema``."""
        return all(getattr(model, "takes_response_schema", False) for model in self.models)

    async def _produce(self, call: ModelCall, outer: MessageStream) -> None:
        race = _Race(call, self.models, outer)
        failures = await race.run()
        if not failures:
            return
        told_to_stop = next((failure for failure in failures if call.is_aborted or failure.was_aborted), None)
        if told_to_stop is not None or len(failures) == 1:
            await (told_to_stop or failures[0]).pass_on(outer)
        else:
            outer.fail(exhausted(failures))


class _Entrant:
    """One model in a race."""

    def __init__(self, model: StreamingModel) -> None:
        self.model = model
        self.scope = anyio.CancelScope()
        self.has_token = False
        self.won = anyio.Event()
        self.is_over = False
        self.failure = Failure(model, IncompleteStream("the model was cancelled before it said anything"))
        """How it failed, if it is over and has no token; at first what holds for a task cancelled on its own."""


class _Race:
    """One call while its models run."""

    def __init__(self, call: ModelCall, models: Sequence[StreamingModel], outer: MessageStream) -> None:
        self._call, self._outer = call, outer
        self._entrants = [_Entrant(model) for model in models]
        self._news = anyio.Event()
        self._winner: _Entrant | None = None

    async def run(self) -> list[Failure]:
        """Run to the end of the winner's answer; how all of them failed, in their order, if nobody won."""
        await run_in_tasks([*(partial(self._enter, entrant) for entrant in self._entrants), self._judge])
        if self._winner is not None:
            return []
        return [entrant.failure for entrant in self._entrants if not entrant.scope.cancelled_caught]

    async def _enter(self, entrant: _Entrant) -> None:
        async def begin() -> None:
            entrant.has_token = True
            self._news.set()
            await entrant.won.wait()

        try:
            with entrant.scope:
                failure = await relay(self._call, entrant.model, self._outer, begin=begin)
                entrant.failure = failure or entrant.failure
        finally:
            entrant.is_over = True
            self._news.set()

    async def _judge(self) -> None:
        """Wait for the first token, let whose it is go on, and cut the others off."""
        while self._winner is None:
            # A step after the first token: whoever got one in the same step has said so by then.
            await self._news.wait()
            self._news = anyio.Event()
            waiting = (entrant for entrant in self._entrants if entrant.has_token and not entrant.is_over)
            self._winner = next(waiting, None)
            if self._winner is None and self._is_lost():
                break
        if self._winner is not None:
            self._winner.won.set()
        for entrant in self._entrants:
            if entrant is not self._winner:
                entrant.scope.cancel()

    def _is_lost(self) -> bool:
        """Whether nobody can win any more, or nobody is wanted to."""
        over = [entrant for entrant in self._entrants if entrant.is_over]
        if len(over) == len(self._entrants):
            return True
        return any(self._call.is_aborted or entrant.failure.was_aborted for entrant in over)
