"""The tools of a turn: what the agent and its middleware have, asked for once and the same until the turn is over."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..tools.context import RunContext, ToolSource
from ..tools.define.definition import AgentTool, check_unique_names
from ..types.tool import ToolDefinition

__all__ = ("NO_TOOLS", "Toolset", "checked_tools", "fixed_toolset", "toolset_of_turn")


class Toolset:
    """Some tools, by name, and what the model is told of them."""

    __slots__ = ("by_name", "definitions")

    def __init__(self, tools: Sequence[AgentTool]) -> None:
        """Raise ``DuplicateToolName`` for two of one name."""
        check_unique_names(tools)
        self.by_name: Mapping[str, AgentTool] = {tool.name: tool for tool in tools}
        self.definitions: list[ToolDefinition] | None = [tool.definition for tool in tools] or None


NO_TOOLS = Toolset(())
"""The tools of an agent that has none."""


def checked_tools(tools: Any) -> tuple[AgentTool, ...]:
    """The sequence ``tools`` as a tuple. Raises ``TypeError`` for anything in it that is no tool."""
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise TypeError(f"tools are a sequence of AgentTool, not {type(tools).__name__}")
    given = cast("tuple[Any, ...]", tuple(tools))  # pyright: ignore[reportUnknownArgumentType]
    for tool in given:
        if not isinstance(tool, AgentTool):
            raise TypeError(f"a tool is an AgentTool, not {type(tool).__name__}; decorate functions with @tool")
    return given


def fixed_toolset(sources: Sequence[ToolSource]) -> Toolset | None:
    """The tools of sources that are all sequences, so that nobody has to be asked; ``None`` if one is not."""
    if not all(isinstance(source, Sequence) for source in sources):
        return None
    tools = [tool for source in sources if isinstance(source, Sequence) for tool in checked_tools(source)]
    return Toolset(tools) if tools else NO_TOOLS


async def toolset_of_turn(sources: Sequence[ToolSource], ctx: RunContext[Any]) -> Toolset:
    """Ask each source, in order, for its tools. Raises what a source raises, ``TypeError``, ``DuplicateToolName``."""
    tools: list[AgentTool] = []
    for source in sources:
        given: Any = source
        if not isinstance(source, Sequence):
            given = source(ctx) if callable(source) else source.tools(ctx)
            if inspect.isawaitable(given):
                given = await given
        tools.extend(checked_tools(given))
    return Toolset(tools)
