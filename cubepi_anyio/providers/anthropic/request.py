"""Messages and tools to the payload of Anthropic's Messages API. Pure, and linear in the transcript.

What the vendor refuses never goes out: empty text, unsigned thinking, another vendor's signatures and blocks, two turns
of one side in a row, a tool's result apart from the others of its batch. The rules are those of the "Messages" page of
Anthropic's API reference and of its guides on tool use and extended thinking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from ...types.content import (
    Content,
    DocumentContent,
    ImageContent,
    OpaqueContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from ...types.json import JsonObject
from ...types.messages import AssistantMessage, Message, ToolResultMessage
from ...types.model import Model, ReasoningControl, ToolChoice
from ...types.tool import ToolDefinition
from ..model_call import ModelCall
from ..settings_fields import settings_fields
from ..strict_schema import strict_parameters
from ..transcript import answered_calls, decoded_text, image_media_type
from .cache import CacheRetention as CacheRetention
from .cache import mark_cache

__all__ = ("API", "CacheRetention", "build_payload", "convert_messages")

API = "anthropic-messages"
"""The name of the wire format; messages that came over it remember it."""

_MIN_BUDGET_TOKENS = 1024  # the least the API takes, and the least we leave for the answer itself
_BUDGET_TOKENS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "max": 32768}


_SETTINGS_FIELDS = {
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "service_tier": "service_tier",
    "user": "metadata.user_id",
    "parallel_tool_calls": "",
}
"""The settings the API has fields for ("Create a Message" in Anthropic's API reference). It has none for ``seed``,
``cache_key`` and ``verbosity``; ``parallel_tool_calls`` stands in ``tool_choice``."""


def build_payload(model: Model, call: ModelCall, *, cache_retention: CacheRetention = "short") -> JsonObject:
    """Make the body of a streamed request; nothing of ``call`` is changed, and no dict we mark is shared.

    Raises ``ToolDefinitionError`` for a ``response_schema`` the API cannot hold an answer to, and
    ``UnsupportedSetting`` for a setting that it has no field for.
    """
    settings, options = call.settings_of(model), call.options
    payload: JsonObject = {
        "model": model.id,
        "max_tokens": settings.max_output_tokens if settings.max_output_tokens is not None else model.max_tokens,
        "messages": convert_messages(call.messages, provider_id=model.provider),
        "stream": True,
        **settings_fields(settings, _SETTINGS_FIELDS, api=API),
    }
    if call.system_prompt.strip():
        payload["system"] = call.system_prompt
    if call.tools:
        payload["tools"] = [_tool(tool) for tool in call.tools]
        choice = _tool_choice(call.tool_choice, settings.parallel_tool_calls)
        if choice is not None:
            payload["tool_choice"] = choice
    temperature = settings.temperature if settings.temperature is not None else model.temperature
    if temperature is not None:
        payload["temperature"] = temperature
    if options.reasoning is not None:
        _add_thinking(payload, model, options.reasoning)
    if options.response_schema is not None:
        # The schema with closed objects and without the constraints that local validation has to check.
        wanted = strict_parameters(options.response_schema.name, options.response_schema.json_schema)
        output_format = {"type": "json_schema", "schema": _without_constraints(wanted)}
        payload.setdefault("output_config", {})["format"] = output_format
    mark_cache(payload, cache_retention)
    return payload


def _tool(tool: ToolDefinition) -> JsonObject:
    described: JsonObject = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    described["input_schema"] = {"type": "object", **tool.parameters} if tool.parameters else _NO_PARAMETERS
    return described


_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


def _tool_choice(choice: ToolChoice | None, parallel: bool | None) -> JsonObject | None:
    """Which tool the model must call, and whether it may call several; ``None`` where neither was said."""
    match choice:
        case None if parallel is None:
            return None
        case "none":
            return {"type": "none"}
        case None | "auto":
            said: JsonObject = {"type": "auto"}
        case "required":
            said = {"type": "any"}
        case _:
            said = {"type": "tool", "name": choice}
    return said if parallel is None else {**said, "disable_parallel_tool_use": not parallel}


# --- the schema of an answer -----------------------------------------------------------------

_LEFT_TO_VALIDATION = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern")
)
"""Constraints that the API refuses, always or in some of their forms ("Structured outputs", schema limitations)."""


def _without_constraints(schema: Any) -> Any:
    """A strict schema without ``_LEFT_TO_VALIDATION``; names of properties are not taken for keywords."""
    if isinstance(schema, list):
        return [_without_constraints(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: JsonObject = {}
    for word, value in cast("JsonObject", schema).items():
        if word in ("properties", "$defs"):
            kept[word] = {name: _without_constraints(field) for name, field in value.items()}
        elif word in ("const", "enum", "required", "type"):
            kept[word] = value
        elif word not in _LEFT_TO_VALIDATION:
            kept[word] = _without_constraints(value)
    return kept


# --- thinking --------------------------------------------------------------------------------


def _add_thinking(payload: JsonObject, model: Model, reasoning: ReasoningControl) -> None:
    """Say how much the model may think, where the rest of the request allows it to."""
    if reasoning.mode == "off":
        if model.reasoning:
            payload["thinking"] = {"type": "disabled"}
        return
    if payload.get("tool_choice", {}).get("type") in ("any", "tool"):
        return  # the API lets a model think or be forced to call a tool, not both
    if reasoning.mode == "auto":
        effort = "low" if reasoning.effort == "minimal" else reasoning.effort
        thinking: JsonObject | None = {"type": "adaptive"}
        payload["output_config"] = {"effort": effort}
    else:
        thinking = _thinking_with_budget(payload, model, reasoning)
    if thinking is None:
        return
    if reasoning.summary != "none":
        thinking["display"] = "summarized"
    payload["thinking"] = thinking
    payload.pop("temperature", None)  # a model that thinks has none


def _thinking_with_budget(payload: JsonObject, model: Model, reasoning: ReasoningControl) -> JsonObject | None:
    """Give thinking its tokens on top of the answer's, as far as the window reaches."""
    if _goes_on_without_thinking(payload["messages"]):
        return None
    given = reasoning.budget_tokens
    budget = max(given if given is not None else _BUDGET_TOKENS[reasoning.effort], _MIN_BUDGET_TOKENS)
    max_tokens = min(payload["max_tokens"] + budget, model.context_window)
    budget = min(budget, max_tokens - _MIN_BUDGET_TOKENS)
    if budget < _MIN_BUDGET_TOKENS:
        return None
    payload["max_tokens"] = max_tokens
    return {"type": "enabled", "budget_tokens": budget}


def _goes_on_without_thinking(messages: list[JsonObject]) -> bool:
    """Whether the request answers calls that were made without thinking, by another vendor's model for instance.

    The API wants the turn that goes on after tool results to begin as it began before.
    """
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


# --- messages --------------------------------------------------------------------------------


def convert_messages(messages: Sequence[Message], *, provider_id: str = "") -> list[JsonObject]:
    """Convert a transcript into turns; neighbours of one side become one turn, and empty ones vanish.

    ``provider_id`` says who is asked: signed thinking and vendor blocks go back only to whom they came from.
    """
    turns: list[JsonObject] = []
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            role, content = "assistant", _assistant_blocks(message, provider_id, answered_calls(messages, position))
        elif isinstance(message, ToolResultMessage):
            role, content = "user", [_tool_result(message)]
        else:
            role, content = "user", [block for item in message.content if (block := _content_block(item)) is not None]
        if not content:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        # The text the model is to go on from; the API refuses white space at its end.
        last = turns[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
    return turns


def _content_block(content: Content) -> JsonObject | None:
    match content:
        case TextContent():
            return {"type": "text", "text": content.text} if content.text.strip() else None
        case ImageContent() if content.url is not None:
            return {"type": "image", "source": {"type": "url", "url": content.url}}
        case ImageContent():
            media_type = image_media_type(content)
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": content.source}}
        case DocumentContent():
            return _document(content)


def _document(document: DocumentContent) -> JsonObject:
    if document.url is not None:
        source: JsonObject = {"type": "url", "url": document.url}
    elif document.media_type.startswith("text/"):
        # The API takes text as text, and under this one media type only.
        source = {"type": "text", "media_type": "text/plain", "data": decoded_text(document.source)}
    else:
        source = {"type": "base64", "media_type": document.media_type, "data": document.source}
    title = {"title": document.title} if document.title else {}
    return {"type": "document", "source": source, **title, **(document.vendor or {})}


def _tool_result(message: ToolResultMessage) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": _sendable_id(message.tool_call_id)}
    content = [part for item in message.content if (part := _content_block(item)) is not None]
    if message.is_error:
        block["is_error"] = True
        content = content or [{"type": "text", "text": "the tool failed and gave no reason"}]
    if content:
        block["content"] = content
    return block


def _assistant_blocks(message: AssistantMessage, provider_id: str, answered: set[str] | None) -> list[JsonObject]:
    """Convert an answer; ``answered`` are the ids of its calls that have results, where some may have none."""
    own = message.api == API and message.provider_id == provider_id
    blocks: list[JsonObject] = []
    for content in message.content:
        match content:
            case TextContent() if content.text.strip():
                cited = content.vendor.get("citations") if own and content.vendor else None
                blocks.append({"type": "text", "text": content.text} | ({"citations": cited} if cited else {}))
            case ThinkingContent() if own and content.redacted is not None:
                blocks.append({"type": "redacted_thinking", "data": content.redacted})
            case ThinkingContent() if own and content.signature:
                blocks.append({"type": "thinking", "thinking": content.thinking, "signature": content.signature})
            case ToolCall() if answered is None or content.id in answered:
                call = {"type": "tool_use", "id": _sendable_id(content.id), "name": content.name}
                vendor = content.vendor if own and content.vendor else {}
                blocks.append({**call, "input": content.arguments, **vendor})
            case OpaqueContent() if own and (answered is None or not _is_left_open(content, message)):
                blocks.append(content.data)
            case _:
                pass
    # Thinking alone is no turn: the API wants something it led to.
    return blocks if any(block["type"] not in ("thinking", "redacted_thinking") for block in blocks) else []


def _is_left_open(block: OpaqueContent, message: AssistantMessage) -> bool:
    """Whether ``block`` is a call of a tool at the vendor's whose result never came."""
    if not block.kind.endswith("tool_use"):
        return False
    results = (other.data.get("tool_use_id") for other in message.content if isinstance(other, OpaqueContent))
    return block.data.get("id") not in results


def _sendable_id(id: str) -> str:
    """``id`` in the letters the API takes; other vendors use more."""
    return id if _SENDABLE_ID.fullmatch(id) else re.sub(r"[^a-zA-Z0-9_-]", "_", id) or "_"


_SENDABLE_ID: re.Pattern[Any] = re.compile(r"[a-zA-Z0-9_-]+")
