"""Messages and tools to the payload of OpenAI's Responses API. Pure, and linear in the transcript.

The rules are those of "Create a model response" in OpenAI's API reference. How a transcript becomes input items stands
in ``replay``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...types.json import JsonObject
from ...types.messages import Message
from ...types.model import Model, ReasoningControl, ResponseSchema, ToolChoice
from ...types.tool import ToolDefinition
from ..openai_chat.request import StrictTools as StrictTools
from ..openai_chat.request import parameters_of, response_format
from .replay import API as API
from .replay import input_items

__all__ = ("API", "StrictTools", "SystemPromptPlace", "build_payload")

SystemPromptPlace = Literal["instructions", "developer", "system"]
"""Where the system prompt goes: ``instructions``, which all servers know, or a first message of that role."""

_ENCRYPTED_REASONING = "reasoning.encrypted_content"


def build_payload(
    model: Model,
    messages: Sequence[Message],
    *,
    system_prompt: str = "",
    tools: Sequence[ToolDefinition] | None = None,
    tool_choice: ToolChoice | None = None,
    reasoning: ReasoningControl | None = None,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
    response_schema: ResponseSchema | None = None,
    parallel_tool_calls: bool | None = None,
    strict_tools: StrictTools = "never",
    store: bool = False,
    system_prompt_place: SystemPromptPlace = "instructions",
) -> JsonObject:
    """Make the body of a streamed request; nothing of ``messages`` is changed.

    The most tokens of an answer are said where the call or the model says them; a model that keeps the default of
    ``Model.max_tokens`` is left to the vendor's own limit, because reasoning counts as well. Raises
    ``ToolDefinitionError`` for a tool that cannot be sent.
    """
    payload: JsonObject = {"model": model.id, "stream": True, "store": store}
    reasons = model.reasoning or _thinks(model, reasoning)
    items = input_items(messages, model, reasons=reasons, stored=store)
    if system_prompt.strip() and system_prompt_place == "instructions":
        payload["instructions"] = system_prompt
    elif system_prompt.strip():
        items.insert(0, {"role": system_prompt_place, "content": system_prompt})
    payload["input"] = items
    if tools:
        payload["tools"] = [_tool(tool, strict_tools) for tool in tools]
        payload |= {} if tool_choice is None else {"tool_choice": _tool_choice(tool_choice)}
        payload |= {} if parallel_tool_calls is None else {"parallel_tool_calls": parallel_tool_calls}
    if response_schema is not None:
        payload["text"] = {"format": {"type": "json_schema", **response_format(response_schema)}}
    _add_limits(payload, model, reasoning, max_output_tokens, temperature)
    _add_reasoning(payload, model, reasoning)
    if reasons and not store:
        payload["include"] = [_ENCRYPTED_REASONING]
    return payload


def _add_limits(
    payload: JsonObject,
    model: Model,
    reasoning: ReasoningControl | None,
    max_output_tokens: int | None,
    temperature: float | None,
) -> None:
    """Say how long the answer may be and how free, where the call or the model says it."""
    if max_output_tokens is None and model.max_tokens != Model.model_fields["max_tokens"].default:
        max_output_tokens = model.max_tokens
    if max_output_tokens is not None:
        payload["max_output_tokens"] = max_output_tokens
    temperature = temperature if temperature is not None else model.temperature
    if temperature is not None and not _thinks(model, reasoning):
        payload["temperature"] = temperature  # models that reason refuse one


def _thinks(model: Model, reasoning: ReasoningControl | None) -> bool:
    return model.reasoning if reasoning is None else reasoning.mode != "off"


def _add_reasoning(payload: JsonObject, model: Model, reasoning: ReasoningControl | None) -> None:
    """Say how much the model may think; to a model that cannot, nothing may be said of it."""
    if reasoning is None or (reasoning.mode == "off" and not model.reasoning):
        return
    if reasoning.mode == "off":
        payload["reasoning"] = {"effort": "none"}
        return
    payload["reasoning"] = {"effort": "xhigh" if reasoning.effort == "max" else reasoning.effort}
    if reasoning.summary != "none":
        payload["reasoning"]["summary"] = "detailed" if reasoning.summary == "detailed" else "auto"


def _tool(tool: ToolDefinition, strict_tools: StrictTools) -> JsonObject:
    parameters, strict = parameters_of(tool, strict_tools)
    described: JsonObject = {"type": "function", "name": tool.name}
    if tool.description:
        described["description"] = tool.description
    # A tool that does not say is strict here, unlike in Chat Completions, and its optional fields become required.
    return {**described, "parameters": parameters, "strict": strict}


def _tool_choice(choice: ToolChoice) -> str | JsonObject:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "name": choice}
