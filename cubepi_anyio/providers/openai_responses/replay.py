"""A transcript as the input items of OpenAI's Responses API. Pure, and linear in the transcript.

Reasoning goes back directly before the item it led to, or not at all: the API refuses either one without the other. It
knows them by their ids; so an item whose reasoning cannot go back, because it came unencrypted or was cut, goes back
without its id, as if another vendor's model had said it ("Reasoning models, keeping reasoning items in context" in
OpenAI's API guide). Reasoning and what tools at the vendor's did go to nobody but the vendor they came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic_core import to_json

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
from ...types.model import Model
from ..transcript import ABSENT_RESULT, answered_calls, data_url, decoded_text, image_url

__all__ = ("API", "input_items")

API = "openai-responses"
"""The name of the wire format; messages that came over it remember it."""

_MAX_CALL_ID_CHARACTERS = 64


def input_items(
    messages: Sequence[Message], model: Model, *, reasons: bool = False, stored: bool = False
) -> list[JsonObject]:
    """Convert a transcript; messages that would be empty vanish.

    ``model`` is who is asked, and ``reasons`` says whether it can: a model that cannot refuses reasoning, even of its
    own vendor's. ``stored`` says that the vendor keeps its answers, so that it knows reasoning by the id alone.
    """
    return _Conversion(messages, model, reasons, stored).run()


@dataclass(slots=True)
class _Entry:
    """One item of an answer on its way back."""

    item: JsonObject
    kind: Literal["reasoning", "message", "call", "opaque", "left out"]
    whole: bool
    """Whether the vendor would know it again: it came from there, and had ended."""


@dataclass(slots=True)
class _Conversion:
    messages: Sequence[Message]
    model: Model
    reasons: bool
    stored: bool
    call_ids: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """For the id of a call, how the last call of that id was sent: its id there, and the type of its result."""
    uses: dict[str, int] = field(default_factory=dict[str, int])
    """How often each id was used; those that were made unique are among them."""

    def run(self) -> list[JsonObject]:
        items: list[JsonObject] = []
        for position, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage):
                items += _paired(self._entries(message, position))
            elif isinstance(message, ToolResultMessage):
                items.append(self._tool_result(message))
            elif content := _parts(message.content):
                text_alone = len(content) == 1 and content[0]["type"] == "input_text"
                items.append({"role": "user", "content": content[0]["text"] if text_alone else content})
        return items

    def _tool_result(self, message: ToolResultMessage) -> JsonObject:
        call_id, kind = self.call_ids.get(message.tool_call_id) or (_short(message.tool_call_id), _RESULT_OF_FUNCTION)
        parts = _parts(message.content) or [{"type": "input_text", "text": ABSENT_RESULT[message.is_error]}]
        texts = [part["text"] for part in parts if part["type"] == "input_text"]
        output = "\n".join(texts) if len(texts) == len(parts) else parts
        return {"type": kind, "call_id": call_id, "output": output}

    # --- what the model said ---

    def _entries(self, message: AssistantMessage, position: int) -> list[_Entry]:
        own = message.api == API and message.provider_id == self.model.provider
        reasons = self.reasons or message.model_id == self.model.id
        answered = answered_calls(self.messages, position)
        entries: list[_Entry] = []
        for place, block in enumerate(message.content):
            match block:
                case TextContent() if block.text.strip():
                    _add_text(entries, block, own=own)
                case ThinkingContent() if own:
                    entries.append(self._reasoning(block, reasons=reasons))
                case ToolCall() if answered is None or block.id in answered:
                    entries.append(self._call(block, own=own))
                case ToolCall():
                    entries.append(_Entry({}, "left out", whole=False))
                case OpaqueContent() if own:
                    picture = message.content[place + 1] if place + 1 < len(message.content) else None
                    entries.append(_Entry(_opaque(block, picture), "opaque", whole=True))
                case _:
                    pass
        return entries

    def _reasoning(self, block: ThinkingContent, *, reasons: bool) -> _Entry:
        item = _without_nulls(_vendor_item(block))
        if not item.get("content"):
            item.pop("content", None)  # an empty summary has to be there, and this one need not
        if block.signature:
            item["encrypted_content"] = block.signature
        known = bool(block.signature) or (self.stored and bool(item.get("id")))
        return _Entry({"type": "reasoning", "summary": [], **item}, "reasoning", whole=known and reasons)

    def _call(self, call: ToolCall, *, own: bool) -> _Entry:
        extra = _vendor_item(call) if own else {}
        custom = extra.get("type") == "custom_tool_call"
        call_id = self._call_id(call, own=own)
        self.call_ids[call.id] = (call_id, _RESULT_OF_CUSTOM if custom else _RESULT_OF_FUNCTION)
        item = {"type": "function_call", **extra, "call_id": call_id, "name": call.name}
        if custom:
            item["input"] = call.arguments.get("input", "")
        else:
            item["arguments"] = to_json(call.arguments).decode()
        return _Entry(item, "call", whole="id" in extra)

    def _call_id(self, call: ToolCall, *, own: bool) -> str:
        """The id under which a call is sent. Some vendors count their calls anew in each answer."""
        given = call.id if own else _short(call.id)
        call_id = given
        while call_id in self.uses:
            self.uses[given] += 1
            call_id = _short(f"{given}_{self.uses[given]}")
        self.uses[call_id] = 1
        return call_id


_RESULT_OF_FUNCTION = "function_call_output"
_RESULT_OF_CUSTOM = "custom_tool_call_output"


def _paired(entries: list[_Entry]) -> list[JsonObject]:
    """The items of ``entries``, each with the reasoning that led to it, or without its id.

    Calls made at once share the reasoning before the first of them.
    """
    items: list[JsonObject] = []
    reasoning: list[_Entry] = []
    parted = False
    for entry in entries:
        if entry.kind == "reasoning":
            reasoning.append(entry)
            continue
        if reasoning:
            parted = not (entry.whole and all(each.whole for each in reasoning))
            items += [] if parted else [each.item for each in reasoning]
            reasoning.clear()
        match entry.kind:
            case "message" if parted or not entry.whole:
                items.append(_said(entry.item))
            case "call" if parted:
                items.append({name: value for name, value in entry.item.items() if name != "id"})
            case "message" | "call":
                items.append(entry.item)
            case "opaque" if not parted:
                items.append(entry.item)
            case _:
                pass
    return items


def _said(message: JsonObject) -> JsonObject:
    """A message in the form that has no id: text alone, which all servers take from an assistant."""
    text = "".join(part.get("text") or part.get("refusal") for part in message["content"])
    phase = {"phase": message["phase"]} if "phase" in message else {}
    return {"role": "assistant", "content": text, **phase}


def _add_text(entries: list[_Entry], block: TextContent, *, own: bool) -> None:
    """Add a text: as the vendor's own message if it is one that had ended, else as what an assistant said."""
    vendor = (block.vendor or {}) if own else {}
    item: JsonObject = vendor.get("item") or {}
    part: JsonObject = {"type": "output_text", "text": block.text}
    if vendor.get("refusal"):
        part = {"type": "refusal", "refusal": block.text}
    elif vendor.get("annotations"):
        part["annotations"] = vendor["annotations"]
    last = entries[-1] if entries and entries[-1].kind == "message" else None
    whole = bool(item.get("id"))
    if last is not None and last.whole == whole and last.item.get("id") == item.get("id"):
        last.item["content"].append(part)
        return
    status = {"status": "completed"} if whole else {}
    message = {"type": "message", "role": "assistant", **item, **status, "content": [part]}
    entries.append(_Entry(message, "message", whole=whole))


def _opaque(block: OpaqueContent, picture: object) -> JsonObject:
    if block.kind == "image_generation_call" and isinstance(picture, ImageContent):
        return {**_without_nulls(block.data), "result": picture.source}
    return _without_nulls(block.data)


def _vendor_item(block: ThinkingContent | ToolCall) -> JsonObject:
    return (block.vendor or {}).get("item") or {}


def _without_nulls(item: JsonObject) -> JsonObject:
    """``item`` without its nulls: the API sends some that it does not take back."""
    return {name: value for name, value in item.items() if value is not None}


def _short(call_id: str) -> str:
    """``call_id``, or a stand-in if it is longer than the API takes."""
    if 0 < len(call_id) <= _MAX_CALL_ID_CHARACTERS:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:32]


# --- what people and tools say ---------------------------------------------------------------


def _parts(content: Sequence[Content]) -> list[JsonObject]:
    return [part for block in content if (part := _part(block)) is not None]


def _part(content: Content) -> JsonObject | None:
    match content:
        case TextContent():
            return {"type": "input_text", "text": content.text} if content.text.strip() else None
        case ImageContent():
            return {
                "type": "input_image",
                "image_url": image_url(content),
                "detail": "auto",
            }
        case DocumentContent():
            return _document(content)


def _document(document: DocumentContent) -> JsonObject:
    if document.url is not None:
        return {"type": "input_file", "file_url": document.url}
    if document.media_type.startswith("text/"):
        # Models read them as well in the text, and not every server takes them otherwise.
        title = f"{document.title}:\n" if document.title else ""
        return {"type": "input_text", "text": title + decoded_text(document.source)}
    data = data_url(document.media_type, document.source)
    return {"type": "input_file", "filename": document.title or "document.pdf", "file_data": data}
