"""The seams around one call, and the values they return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..concurrency import AbortSignal
from ..types.content import Content, ToolCall
from ..types.json import JsonObject
from .context import RunContext
from .define.definition import AgentToolResult
from .run.outcome import CallOutcome

__all__ = ("NO_TOOL_HOOKS", "AfterToolCallResult", "BeforeToolCallResult", "ToolHooks")


@dataclass(frozen=True, slots=True)
class BeforeToolCallResult:
    """What a hook decided about a call that is about to run."""

    block: bool = False
    """Refuse the call; the model reads ``reason``."""
    reason: str = ""
    edited_args: JsonObject | None = None
    """Run the call with these arguments, which are validated again."""


@dataclass(frozen=True, slots=True)
class AfterToolCallResult:
    """What a hook changes in a result; fields that are ``None`` stay as they are."""

    content: list[Content] | None = None
    details: Any = None
    is_error: bool | None = None
    terminate: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHooks:
    """The hooks around calls, composed: each seam is one function, or ``None`` where nobody listens.

    A hook that raises ends the run with its exception; a hook is cancelled with its call.
    """

    resolve: Callable[[ToolCall, RunContext[Any], AbortSignal], Awaitable[ToolCall | None]] | None = None
    """May answer another call (name, arguments) to run in place of this one; the id stays."""
    before: (
        Callable[
            [ToolCall, Any, Callable[[JsonObject], Any], RunContext[Any], AbortSignal],
            Awaitable[BeforeToolCallResult | None],
        ]
        | None
    ) = None
    """Sees the call and its validated parameters before the tool runs; the function validates edited arguments."""
    after: (
        Callable[[ToolCall, AgentToolResult, bool, RunContext[Any], AbortSignal], Awaitable[AfterToolCallResult | None]]
        | None
    ) = None
    """Sees the result, and whether it is an error, before anybody else does."""
    around: (
        Callable[
            [
                ToolCall,
                Callable[[], Awaitable[CallOutcome]],
                Callable[[], CallOutcome | None],
                RunContext[Any],
                AbortSignal,
            ],
            Awaitable[CallOutcome],
        ]
        | None
    ) = None
    """Stands around all of it: is given the call, what brings it to its end, and what is known of its end when that
    raised; returns the outcome."""


NO_TOOL_HOOKS = ToolHooks()
"""Nobody listens around calls."""
