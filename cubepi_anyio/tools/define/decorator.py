"""``@tool``: a typed function becomes a tool."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Literal, overload

from pydantic import BaseModel

from ...errors import ToolDefinitionError
from ..context import RunContext
from .definition import AgentTool
from .function_parameters import FunctionParameters, read_function
from .results import as_result
from .signature import bare_function, docstring_of, is_async_callable

__all__ = ("tool",)


@overload
def tool(function: Callable[..., Any], /) -> AgentTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    label: str = "",
    execution_mode: Literal["parallel", "sequential"] | None = None,
    timeout: float | None = None,
    cancellation: Literal["immediate", "cooperative"] = "immediate",
    grace: float = 5.0,
    read_only: bool | None = None,
    destructive: bool | None = None,
    open_world: bool | None = None,
    idempotent: bool | None = None,
    strict: bool | None = None,
) -> Callable[[Callable[..., Any]], AgentTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> AgentTool | Callable[[Callable[..., Any]], AgentTool]:
    """Make an ``AgentTool`` of a typed function; ``.function`` of the tool is the function itself.

    The model's parameters are the function's: their annotations and defaults, with descriptions from
    ``Field(description=...)``, from ``Annotated[int, "how many"]``, or from the docstring (Google, NumPy or Sphinx
    style). The docstring before its list of parameters says what the tool is for. A default of ``None`` allows
    ``null``. Arguments that the function does not have are refused.

    Not shown to the model, and given by the library where declared: ``tool_call_id``, ``signal`` and ``on_update``
    by name, and any parameter annotated ``RunContext``.

    The function may return

    * a string, a content block, or a list of blocks (strings among them are text);
    * an ``AgentToolResult``;
    * ``None`` or an empty string: the model reads ``(no output)``, because vendors refuse empty text;
    * a number, truth value, dict, list, tuple, dataclass or pydantic model: the model reads it as JSON, and
      ``details`` holds the same as plain JSON values.

    Anything else is a ``TypeError`` of the call. A plain ``def`` runs in a worker thread; ``async def`` does not.
    The options are those of ``AgentTool``; seconds for ``timeout`` and ``grace``. Raises ``ToolDefinitionError``
    for a function that cannot be offered to a model.
    """

    def made_of(function: Callable[..., Any]) -> AgentTool:
        if not callable(function):
            raise ToolDefinitionError(str(function), "@tool takes a function, and options by name: @tool(name=...)")
        tool_name = name if name is not None else getattr(bare_function(function), "__name__", "")
        read = read_function(tool_name, function, docstring_of(function), RunContext)
        return AgentTool(
            tool_name,
            read.purpose if description is None else description,
            read.model,
            _execute(tool_name, function, read),
            function=function,
            **options,
        )

    return made_of if function is None else made_of(function)


def _execute(tool_name: str, function: Callable[..., Any], read: FunctionParameters) -> Callable[..., Any]:
    """The function as ``AgentTool`` calls it."""
    fields, wanted = tuple(read.fields.items()), tuple(read.injected.items())

    def arguments(tool_call_id: str, params: BaseModel, injected: dict[str, Any]) -> dict[str, Any]:
        given = {name: getattr(params, field) for name, field in fields}
        if wanted:
            values = {**injected, "tool_call_id": tool_call_id}
            given.update((name, values[source]) for name, source in wanted if source in values)
        return given

    async def run_async(tool_call_id: str, params: BaseModel, **injected: Any) -> Any:
        return as_result(tool_name, await function(**arguments(tool_call_id, params, injected)))

    def run(tool_call_id: str, params: BaseModel, **injected: Any) -> Any:
        return as_result(tool_name, function(**arguments(tool_call_id, params, injected)))

    execute: Any = run_async if is_async_callable(function) else run
    # The signature says which keywords are wanted, so that no other is passed.
    execute.__signature__ = Signature(
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("tool_call_id", "params")]
        + [Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted({*read.injected.values()} - {"tool_call_id"})]
    )
    return execute
