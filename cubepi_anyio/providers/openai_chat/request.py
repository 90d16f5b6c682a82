"""Messages and tools to the payload of Chat Completions. Pure, and linear in the transcript.

What vendors refuse never goes out: empty text, another vendor's thinking and opaque data, arguments that are no JSON,
calls without a result. The rules are those of "Create chat completion" in OpenAI's API reference; in what a vendor
differs, its ``Quirks`` say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

from ...errors import ProviderBadRequest
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
from ...types.messages import AssistantMessage, Message, ToolResultMessage, text_of
from ...types.model import Model, ReasoningControl, ToolChoice
from ...types.tool import ToolDefinition
from ..model_call import ModelCall
from ..settings_fields import settings_fields
from ..strict_schema import StrictTools, parameters_of, response_format
from ..transcript import ABSENT_RESULT, answered_calls, data_url, decoded_text, image_url
from .presets import Quirks

__all__ = ("API", "build_payload", "convert_messages")

API = "openai-chat"
"""The name of the wire format; messages that came over it remember it."""

_STANDARD_QUIRKS = Quirks()


def build_payload(
    model: Model,
    call: ModelCall,
    *,
    parallel_tool_calls: bool | None = None,
    strict_tools: StrictTools = "never",
    quirks: Quirks = _STANDARD_QUIRKS,
) -> JsonObject:
    """Make the body of a streamed request; nothing of ``call`` is changed.

    The most tokens of an answer are said where the call or the model says them; a model that keeps the default of
    ``Model.max_tokens`` is left to the vendor's own limit, because many a served model has less room than that.
    ``parallel_tool_calls`` is said where the settings do not. Raises ``ToolDefinitionError`` for a tool, or a schema of
    the answer, that cannot be sent, and ``UnsupportedSetting`` for a setting that the vendor has no field for.
    """
    settings, options = call.settings_of(model), call.options
    thinks = _thinks(model, options.reasoning)
    payload: JsonObject = {"model": model.id, "messages": [], "stream": True}
    if call.system_prompt.strip():
        payload["messages"].append({"role": "system", "content": call.system_prompt})
    payload["messages"] += convert_messages(call.messages, provider_id=model.provider, quirks=quirks, thinks=thinks)
    if quirks.stream_usage:
        payload["stream_options"] = {"include_usage": True}
    payload |= settings_fields(settings, quirks.settings_fields, api=f"{API} of {model.provider}")
    if call.tools:
        payload["tools"] = [_tool(tool, strict_tools) for tool in call.tools]
        if call.tool_choice is not None:
            payload["tool_choice"] = _tool_choice(call.tool_choice)
        if parallel_tool_calls is not None:
            payload.setdefault("parallel_tool_calls", parallel_tool_calls)
    else:
        payload.pop("parallel_tool_calls", None)  # refused where there are no tools
    if options.response_schema is not None:
        wanted = response_format(options.response_schema)
        payload["response_format"] = {"type": "json_schema", "json_schema": wanted}
    max_tokens = settings.max_output_tokens if settings.max_output_tokens is not None else model.given_max_tokens
    if max_tokens is not None:
        payload[quirks.max_tokens_field] = max_tokens
    temperature = settings.temperature if settings.temperature is not None else model.temperature
    if temperature is not None and (quirks.reasoning_takes_temperature or not thinks):
        payload["temperature"] = temperature
    if options.reasoning is not None and (thinks or model.reasoning):
        payload |= _reasoning(options.reasoning, quirks)
    return payload


def _thinks(model: Model, reasoning: ReasoningControl | None) -> bool:
    return model.reasoning if reasoning is None else reasoning.mode != "off"


def _reasoning(reasoning: ReasoningControl, quirks: Quirks) -> JsonObject:
    """Say how much the model may think, in the vendor's words."""
    thinks = reasoning.mode != "off"
    effort = ("xhigh" if reasoning.effort == "max" else reasoning.effort) if thinks else "none"
    match quirks.reasoning_request:
        case "effort":
            return {"reasoning_effort": effort}
        case "openrouter" if thinks and reasoning.budget_tokens is not None:
            return {"reasoning": {"max_tokens": reasoning.budget_tokens}}
        case "openrouter":
            return {"reasoning": {"effort": effort}}
        case "thinking":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}}
        case _:
            return {"chat_template_kwargs": {"enable_thinking": thinks}}


# --- tools -----------------------------------------------------------------------------------


def _tool(tool: ToolDefinition, strict_tools: StrictTools) -> JsonObject:
    parameters, strict = parameters_of(tool, strict_tools)
    function: JsonObject = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = parameters
    return {"type": "function", "function": function | ({"strict": True} if strict else {})}


def _tool_choice(choice: ToolChoice) -> str | JsonObject:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}


# --- messages --------------------------------------------------------------------------------


def convert_messages(
    messages: Sequence[Message], *, provider_id: str = "", quirks: Quirks = _STANDARD_QUIRKS, thinks: bool = False
) -> list[JsonObject]:
    """Convert a transcript; messages that would be empty vanish.

    ``provider_id`` says who is asked: thinking and vendor data go back only to whom they came from. ``thinks`` says
    whether the model thinks, which matters to vendors that want to hear of it with every message.
    """
    return _Conversion(messages, provider_id, quirks, thinks).run()


@dataclass(slots=True)
class _Conversion:
    messages: Sequence[Message]
    provider_id: str
    quirks: Quirks
    thinks: bool
    own_ids: set[str] = field(default_factory=set[str])
    """The ids that the vendor gave itself."""

    def run(self) -> list[JsonObject]:
        for message in self.messages:
            if isinstance(message, AssistantMessage) and self._is_own(message):
                self.thinks = self.thinks or bool(_thought(message))
                self.own_ids.update(call.id for call in message.tool_calls)
        converted: list[JsonObject] = []
        shown: list[JsonObject] = []
        for position, message in enumerate(self.messages):
            if isinstance(message, ToolResultMessage):
                converted.append(self._tool_result(message))
                shown += self._shown(message)
                continue
            self._append_user(converted, shown)
            shown = []
            if isinstance(message, AssistantMessage):
                converted += self._assistant(message, position)
            else:
                self._append_user(converted, self._parts(message.content))
        self._append_user(converted, shown)
        return converted

    def _is_own(self, message: AssistantMessage) -> bool:
        return message.api == API and message.provider_id == self.provider_id

    # --- what people and tools say ---

    def _append_user(self, converted: list[JsonObject], parts: list[JsonObject]) -> None:
        """Add a user message, if it says anything; text alone goes as a string, which every server takes."""
        if not parts:
            return
        if not self.quirks.user_after_tool and converted and converted[-1]["role"] == "tool":
            converted.append({"role": "assistant", "content": _BRIDGE})
        content: str | list[JsonObject] = parts
        if all(part["type"] == "text" for part in parts):
            content = "\n".join(part["text"] for part in parts)
        converted.append({"role": "user", "content": content})

    def _parts(self, content: Sequence[Content]) -> list[JsonObject]:
        return [part for block in content if (part := self._part(block)) is not None]

    def _part(self, content: Content) -> JsonObject | None:
        match content:
            case TextContent():
                return {"type": "text", "text": content.text} if content.text.strip() else None
            case ImageContent():
                return {
                    "type": "image_url",
                    "image_url": {"url": image_url(content)},
                }
            case DocumentContent():
                return self._document(content)

    def _document(self, document: DocumentContent) -> JsonObject:
        name, way = document.title or "document.pdf", self.quirks.document_url
        if document.url is None and document.media_type.startswith("text/"):
            # There is no part for them, and models read them as well in the text.
            title = f"{document.title}:\n" if document.title else ""
            return {"type": "text", "text": title + decoded_text(document.source)}
        if document.url is not None and way == "none":
            raise ProviderBadRequest(
                "Chat Completions takes no document by its address; load it and give its content as source"
            )
        url = document.url if document.url is not None else data_url(document.media_type, document.source)
        if way == "document_url":
            return {"type": "document_url", "document_url": url}
        return {"type": "file", "file": {"filename": name, "file_data": url}}

    def _tool_result(self, message: ToolResultMessage) -> JsonObject:
        """A result as text, which is all a tool message may have; the rest is shown after the batch."""
        texts = [part["text"] for part in self._parts(message.content) if part["type"] == "text"]
        if not texts:
            texts = [ABSENT_RESULT[message.is_error] if not message.content else "(shown in the next message)"]
        return {"role": "tool", "tool_call_id": self._id(message.tool_call_id), "content": "\n".join(texts)}

    def _shown(self, message: ToolResultMessage) -> list[JsonObject]:
        parts = [part for part in self._parts(message.content) if part["type"] != "text"]
        said = f"What {message.tool_name} returned for call {self._id(message.tool_call_id)}:"
        return [{"type": "text", "text": said}, *parts] if parts else []

    # --- what the model said ---

    def _assistant(self, message: AssistantMessage, position: int) -> list[JsonObject]:
        own = self._is_own(message)
        answered = answered_calls(self.messages, position)
        calls = [call for call in message.tool_calls if answered is None or call.id in answered]
        text = text_of(message.content)
        # Calls alone have a content of null: some vendors want the field, and some no empty text in it.
        turn: JsonObject = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            turn["tool_calls"] = [self._call(call, own=own) for call in calls]
        turn |= _extras(message, self.quirks) if own else {}
        if turn["content"] is None and not turn.keys() & {"tool_calls", "audio"}:
            return []
        self._add_thinking(turn, message, own=own)
        return [turn]

    def _add_thinking(self, turn: JsonObject, message: AssistantMessage, *, own: bool) -> None:
        """Send the vendor's own thinking back, if it wants that and in its form."""
        thinking = _thought(message) if own else ""
        match self.quirks.reasoning_replay:
            case "reasoning_content" if thinking or self.thinks:
                # A model that thinks refuses a transcript in which any answer lacks the field.
                turn["reasoning_content"] = thinking
            case "content_parts" if thinking:
                text = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
                turn["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}, *text]
            case _:
                pass

    def _call(self, call: ToolCall, *, own: bool) -> JsonObject:
        arguments = to_json(call.arguments).decode()
        function = {"name": call.name, "arguments": arguments}
        extra = call.vendor or {} if own else {}
        return {**extra, "id": self._id(call.id), "type": "function", "function": function}

    def _id(self, call_id: str) -> str:
        """``call_id`` as the vendor takes it; other vendors' ids are longer, or of other letters."""
        if call_id in self.own_ids or re.fullmatch(self.quirks.call_id_pattern, call_id):
            return call_id
        return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[: self.quirks.call_id_length]


_BRIDGE = "I have the results."


def _thought(message: Message) -> str:
    return "".join(block.thinking for block in message.content if isinstance(block, ThinkingContent))


def _extras(message: AssistantMessage, quirks: Quirks) -> JsonObject:
    """What the vendor attached to its answer and wants back."""
    found: JsonObject = {}
    for block in message.content:
        if isinstance(block, OpaqueContent):
            found |= {kind: value for kind, value in block.data.items() if kind == block.kind}
    extras: JsonObject = {}
    if found.get("extra_content"):
        extras["extra_content"] = found["extra_content"]
    if found.get("audio", {}).get("id"):
        extras["audio"] = {"id": found["audio"]["id"]}
    if found.get("reasoning_details") and quirks.reasoning_replay == "reasoning_details":
        extras["reasoning_details"] = found["reasoning_details"]
    return extras
