"""Messages and tools to the payload of OpenAI's Responses API. Pure, and linear in the transcript.

The rules are those of "Create a model response" in OpenAI's API reference. How a transcript becomes input items stands
in ``replay``.
"""

from __future__ import annotations

from typing import Literal

from ...types.json import JsonObject
from ...types.model import Model, ReasoningControl, ToolChoice
from ...types.tool import ToolDefinition
from ..model_call import ModelCall
from ..settings_fields import settings_fields
from ..strict_schema import StrictTools, parameters_of, response_format
from .replay import API as API
from .replay import input_items

__all__ = ("API", "SystemPromptPlace", "build_payload")

SystemPromptPlace = Literal["instructions", "developer", "system"]
"""Where the system prompt goes: ``instructions``, which all servers know, or a first message of that role."""

_SETTINGS_FIELDS = {
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
    "cache_key": "prompt_cache_key",
    "verbosity": "text.verbosity",
    "user": "user",
}
"""The settings the API has fields for ("Create a model response" in OpenAI's API reference). It has none for ``top_k``,
``stop`` and ``seed``. ``user`` is the older name of ``safety_identifier``, which imitators do not know."""

_ENCRYPTED_REASONING = "reasoning.encrypted_content"


def build_payload(
    model: Model,
    call: ModelCall,
    *,
    parallel_tool_calls: bool | None = None,
    strict_tools: StrictTools = "never",
    store: bool = False,
    system_prompt_place: SystemPromptPlace = "instructions",
) -> JsonObject:
    """Make the body of a streamed request; nothing of ``call`` is changed.

    The most tokens of an answer are said where the call or the model says them; a model that keeps the default of
    ``Model.max_tokens`` is left to the vendor's own limit, because reasoning counts as well. ``parallel_tool_calls`` is
    said where the settings do not. Raises ``ToolDefinitionError`` for a tool that cannot be sent, and
    ``UnsupportedSetting`` for a setting that the API has no field for.
    """
    settings, options = call.settings_of(model), call.options
    thinks = _thinks(model, options.reasoning)
    reasons = model.reasoning or thinks
    payload: JsonObject = {"model": model.id, "stream": True, "store": store}
    items = input_items(call.messages, model, reasons=reasons, stored=store)
    if call.system_prompt.strip() and system_prompt_place == "instructions":
        payload["instructions"] = call.system_prompt
    elif call.system_prompt.strip():
        items.insert(0, {"role": system_prompt_place, "content": call.system_prompt})
    payload["input"] = items
    payload |= settings_fields(settings, _SETTINGS_FIELDS, api=API)
    if call.tools:
        payload["tools"] = [_tool(tool, strict_tools) for tool in call.tools]
        payload |= {} if call.tool_choice is None else {"tool_choice": _tool_choice(call.tool_choice)}
        if parallel_tool_calls is not None:
            payload.setdefault("parallel_tool_calls", parallel_tool_calls)
    else:
        payload.pop("parallel_tool_calls", None)
    if options.response_schema is not None:
        wanted = {"type": "json_schema", **response_format(options.response_schema)}
        payload["text"] = payload.get("text", {}) | {"format": wanted}
    max_tokens = settings.max_output_tokens if settings.max_output_tokens is not None else model.given_max_tokens
    if max_tokens is not None:
        payload["max_output_tokens"] = max_tokens
    temperature = settings.temperature if settings.temperature is not None else model.temperature
    if temperature is not None and not thinks:
        payload["temperature"] = temperature  # models that reason refuse one
    _add_reasoning(payload, model, options.reasoning)
    if reasons and not store:
        payload["include"] = [_ENCRYPTED_REASONING]
    return payload


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
