"""Listeners on what passes between us and a model: the request, each chunk, the finished message.

Watching must not change what is watched: an observer that raises is logged and passed over.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..events.stream import StreamEvent
from ..types.messages import AssistantMessage
from ..types.model import Model

__all__ = ("Observers", "OnChunk", "OnRequest", "OnResponseMessage")

OnRequest = Callable[[dict[str, Any], Model], Awaitable[None] | None]
"""Sees the payload of each request before it is sent, sync or async."""
OnChunk = Callable[[StreamEvent, Model], None]
"""Sees each stream event; a plain function."""
OnResponseMessage = Callable[[AssistantMessage | None, Model, Exception | None], Awaitable[None] | None]
"""Hears how each request ended, sync or async: with the message, or with the error, or with neither."""

_log = logging.getLogger(__name__)


class Observers:
    """The observers of one provider, called in the order they subscribed."""

    def __init__(self) -> None:
        self._observers: dict[str, tuple[Any, ...]] = {}
        """By what they observe. Most providers have none, and there may be one provider for each of many agents."""

    def subscribe_request(self, observer: OnRequest) -> Callable[[], None]:
        """Call ``observer(payload, model)`` with a copy of each request before it is sent."""
        return self._subscribe("request", observer)

    def subscribe_chunk(self, observer: OnChunk) -> Callable[[], None]:
        """Call ``observer(event, model)``, a plain function, with each stream event: a chunk waits for nobody."""
        return self._subscribe("chunk", observer)

    def subscribe_response(self, observer: OnResponseMessage) -> Callable[[], None]:
        """Call ``observer(message, model, error)`` once for each request: with what was said, or why it failed."""
        return self._subscribe("response", observer)

    def _subscribe(self, kind: str, observer: Any) -> Callable[[], None]:
        self._observers[kind] = (*self._observers.get(kind, ()), observer)

        def unsubscribe() -> None:
            left = list(self._observers[kind])
            if observer in left:
                left.remove(observer)
                self._observers[kind] = tuple(left)

        return unsubscribe

    async def request(self, payload: dict[str, Any], model: Model) -> None:
        """Tell of a request."""
        for observer in self._observers.get("request", ()):
            await _tell(observer, dict(payload), model)

    async def response(self, message: AssistantMessage | None, model: Model, error: Exception | None) -> None:
        """Tell how a request ended."""
        for observer in self._observers.get("response", ()):
            await _tell(observer, message, model, error)

    def watch(self, emit: Callable[[StreamEvent], None], model: Model) -> Callable[[StreamEvent], None]:
        """``emit``, with the chunk observers called before it; ``emit`` itself where there are none."""
        if "chunk" not in self._observers:
            return emit

        def emit_watched(event: StreamEvent) -> None:
            emit(event)
            for observer in self._observers["chunk"]:
                try:
                    observer(event, model)
                except Exception:
                    _log.exception("a chunk observer failed and was passed over")

        return emit_watched


async def _tell(observer: Callable[..., Any], *arguments: object) -> None:
    try:
        outcome = observer(*arguments)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        _log.exception("an observer failed and was passed over")
