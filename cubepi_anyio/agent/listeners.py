"""Who hears what an agent says: its listeners, in the order in which they subscribed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ("Listener", "ListenerList", "Subscription")

Listener = Callable[..., Any]
"""Called with ``(event, signal)`` or ``(event)``; may be async."""


class Subscription:
    """One listener, and what is known of how it is called."""

    __slots__ = ("is_async", "listener", "wants_signal")

    def __init__(self, listener: Listener) -> None:
        self.listener: Listener = listener
        """What it returns may have to be awaited."""
        self.wants_signal: bool = _wants_signal(listener)
        self.is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - asks for a coroutine function, not for callability
        )


def _wants_signal(listener: Listener) -> bool:
    try:
        parameters = inspect.signature(listener).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    second = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    # A parameter with a default and another name is the listener's own: ``lambda event, log=log: …``.
    return any(p.default is p.empty or p.name == "signal" for p in second)


class ListenerList:
    """The listeners of one agent, in the order they subscribed."""

    def __init__(self) -> None:
        self.subscriptions: tuple[Subscription, ...] = ()
        self.has_async: bool = False
        """Whether one of them is known to be async."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns the function that takes it away again, which may be called twice."""
        if not callable(listener):
            raise TypeError(f"a listener is a function of (event) or (event, signal), not {type(listener).__name__}")
        subscription = Subscription(listener)
        self._set((*self.subscriptions, subscription))

        def unsubscribe() -> None:
            self._set(tuple(other for other in self.subscriptions if other is not subscription))

        return unsubscribe

    def found_async(self, subscription: Subscription) -> None:
        """A plain function turned out to return a coroutine: from now on there is something to await."""
        subscription.is_async = True
        self._set(self.subscriptions)

    def _set(self, subscriptions: tuple[Subscription, ...]) -> None:
        self.subscriptions = subscriptions
        self.has_async = any(subscription.is_async for subscription in subscriptions)
