"""What a function declares: its parameters, whether it is async, and what it says of itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from ...errors import ToolDefinitionError

__all__ = (
    "INJECTED_KEYWORDS",
    "accepted_keywords",
    "bare_function",
    "declared_parameters",
    "docstring_of",
    "is_async_callable",
)

INJECTED_KEYWORDS = frozenset({"signal", "on_update", "ctx", "context"})
"""The keyword arguments that ``execute`` gets where it declares them."""

_CALL = "execute(tool_call_id, params)"


def bare_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under ``functools.partial``, or the ``__call__`` of a callable object."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` gives a coroutine."""
    # The object itself is asked too: inspect.markcoroutinefunction() marks functions and objects alike.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(bare_function(function))


def docstring_of(function: Callable[..., Any]) -> str:
    """The docstring, its indentation removed; empty if there is none."""
    return inspect.getdoc(bare_function(function)) or ""


def declared_parameters(tool_name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Read the parameters of ``function``, their annotations as they stand.

    Raises ``ToolDefinitionError`` for what is no function, for a generator function, and for a function
    without a readable signature.
    """
    if not callable(function):
        raise ToolDefinitionError(tool_name, f"a tool needs a function to run, not {type(function).__name__}")
    bare = bare_function(function)
    if inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        raise ToolDefinitionError(
            tool_name, "its function is a generator; return one result, and report progress with on_update()"
        )
    try:
        return list(_signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ToolDefinitionError(tool_name, "its function has no readable signature; wrap it in a def") from None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # From 3.14 on annotations are evaluated when they are read; names that exist for type checkers only must
        # not make a function unreadable.
        from annotationlib import Format  # noqa: PLC0415 - does not exist before 3.14

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def accepted_keywords(tool_name: str, execute: Callable[..., Any]) -> frozenset[str]:
    """Which of ``signal``, ``on_update``, ``ctx`` and ``context`` the function takes by keyword.

    Raises ``ToolDefinitionError`` if it cannot be called as ``execute(tool_call_id, params)``.
    """
    parameters = declared_parameters(tool_name, execute)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:2]
    if len(positional) < 2 and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ToolDefinitionError(
            tool_name, f"execute takes {len(positional)} positional argument(s), but is called as {_CALL}"
        )
    others = [p for p in parameters if p not in positional]
    taken = INJECTED_KEYWORDS & {p.name for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = [p for p in others if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unfilled = [p.name for p in required if p.name not in taken]
    if unfilled:
        raise ToolDefinitionError(
            tool_name,
            f"execute requires {', '.join(unfilled)}, but is called as {_CALL} with at most the keywords signal, "
            "on_update, ctx and context; give every other parameter a default",
        )
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return INJECTED_KEYWORDS - {p.name for p in positional}
    return taken
