"""What a decorated function returned, as the result of a tool."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from ...types import Content, DocumentContent, ImageContent, TextContent
from .definition import AgentToolResult

__all__ = ("NO_OUTPUT", "as_result")

NO_OUTPUT = "(no output)"
"""What the model reads of a function that returned nothing: vendors refuse empty text."""

_BLOCKS = (TextContent, ImageContent, DocumentContent)


def as_result(tool_name: str, value: object) -> AgentToolResult:
    """Make a tool result of what a function returned; ``tool`` documents how.

    Raises ``TypeError``, naming the tool, for a value that is neither content nor JSON-shaped.
    """
    if isinstance(value, AgentToolResult):
        return value
    if isinstance(value, str):
        return AgentToolResult(value or NO_OUTPUT)
    if value is None:
        return AgentToolResult(NO_OUTPUT)
    if isinstance(value, _BLOCKS):
        return AgentToolResult(value)
    if isinstance(value, (list, tuple)):
        items = list(cast("list[object]", value))
        if any(isinstance(item, _BLOCKS) for item in items):
            return AgentToolResult([_as_block(tool_name, item) for item in items])
    return _as_json(tool_name, value)


def _as_block(tool_name: str, item: object) -> Content:
    if isinstance(item, str):
        return TextContent(text=item)
    if isinstance(item, _BLOCKS):
        return item
    raise _wrong_type(tool_name, f"a list of content with {_type(item)} in it")


def _is_json_shaped(value: object) -> bool:
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_record or isinstance(value, (bool, int, float, dict, list, tuple, BaseModel))


def _as_json(tool_name: str, value: Any) -> AgentToolResult:
    if not _is_json_shaped(value):
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError(f"tool {tool_name!r} returned a coroutine; declare its function with async def")
        raise _wrong_type(tool_name, _type(value))
    try:
        return AgentToolResult(to_json(value).decode(), details=to_jsonable_python(value))
    except (PydanticSerializationError, ValueError) as error:
        raise _wrong_type(tool_name, f"{_type(value)} that is no JSON ({error})") from error


def _wrong_type(tool_name: str, what: str) -> TypeError:
    return TypeError(
        f"tool {tool_name!r} returned {what}; return a string, content blocks, an AgentToolResult, "
        "or a value that JSON can express"
    )


def _type(value: object) -> str:
    return f"a value of type {type(value).__name__}"
