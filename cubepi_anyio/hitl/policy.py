"""What a policy may decide about a call: ``Approve``, ``Deny``, ``Edit`` or ``AskPerson``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..hooks.middleware import BeforeToolCallContext
from ..types.json import JsonObject
from .channel import DEFAULT_TIMEOUT, UseDefault

__all__ = ("Approve", "AskPerson", "Deny", "Edit", "Policy", "PolicyDecision")


@dataclass(frozen=True, slots=True)
class Approve:
    """The call runs as it is."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not run."""

    reason: str = ""
    """Why, for the model to read."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The call runs with other arguments, which are validated like those of the model."""

    args: JsonObject


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A person decides."""

    prompt: str = ""
    details: JsonObject | None = None
    """What the person should know besides the arguments."""
    timeout: float | UseDefault | None = DEFAULT_TIMEOUT
    """Seconds until the call is refused; ``None`` for ever."""


PolicyDecision = Approve | Deny | Edit | AskPerson
"""What a policy may decide."""
Policy = Callable[[BeforeToolCallContext], PolicyDecision | Awaitable[PolicyDecision]]
"""Decides about one call; plain or async. It may be asked again about a call that was suspended."""
