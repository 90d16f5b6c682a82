"""The items of a Responses answer while they arrive, each written into a draft as its blocks. Pure.

An answer is a list of items: messages, reasoning, calls, and what tools at the vendor's did. An item grows by deltas
and is told as a whole when it is done ("Responses, object and streaming events" in OpenAI's API reference). What the
vendor wants back with an item (its id, the phase of a message, encrypted reasoning) is kept only when the item is
done: a block without it was cut, and cannot be sent back as the vendor's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import uuid4

from pydantic_core import to_json

from ...errors import MalformedResponse
from ...stream.builder import parse_arguments
from ...stream.draft import DraftWriter
from ...types.content import ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ...types.json import JsonObject, JsonValue
from ..strict_schema import without_added_nulls

__all__ = ("Item", "Items")

_MESSAGE_FIELDS = frozenset(("type", "role", "status", "content"))
_CALL_FIELDS = frozenset(("type", "status", "call_id", "name", "arguments", "input"))
"""The fields that the blocks themselves tell; the others are kept for the vendor."""


class Item(Protocol):
    """One item while it arrives."""

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        """Add ``delta`` to the part of this kind that stands at ``place``."""
        ...

    def finish(self, item: JsonObject) -> None:
        """End the item, which is told as a whole; what deltas did not bring is taken from here."""
        ...


class Items:
    """Makes the items of one answer, and notes what it holds."""

    def __init__(self, draft: DraftWriter, strict_schemas: Mapping[str, JsonObject]) -> None:
        """``strict_schemas`` are the schemas of the strict tools as they were before strictness, by the tool's name."""
        self.draft = draft
        self.strict_schemas = strict_schemas
        self.held: set[str] = set()
        """What the answer holds, of ``text``, ``refusal`` and ``call``."""
        self._call_ids: set[str] = set()

    def begin(self, item: JsonObject) -> Item:
        """Begin an item of which ``item`` says what is known so far."""
        match item["type"]:
            case "message":
                return _Message(self)
            case "reasoning":
                return _Reasoning(self)
            case "function_call":
                return _FunctionCall(self, item)
            case "custom_tool_call":
                return _CustomCall(self, item)
            case _:
                return _Opaque(self, item)

    def call_id(self, given: JsonValue) -> str:
        """``given``, or another id if it is none or an earlier call's: a result has to name its call, and no other."""
        call_id = given if isinstance(given, str) and given and given not in self._call_ids else ""
        call_id = call_id or f"call_{uuid4().hex[:24]}"
        self._call_ids.add(call_id)
        return call_id


def _checked(delta: JsonValue) -> str:
    if not isinstance(delta, str):
        raise TypeError(f"a delta is {type(delta).__name__} where text belongs")
    return delta


class _Message:
    """A message: a block of text for each of its parts that has any."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._parts: dict[JsonValue, int] = {}
        """Block indices by the vendor's ``content_index``, which need not begin at 0."""

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        index = self._parts.get(place)
        if index is None:
            if not _checked(delta):
                return
            self._items.held.add(kind)
            block = TextContent(vendor={"refusal": True} if kind == "refusal" else None)
            index = self._parts[place] = self._items.draft.open(block)
        self._items.draft.append(index, _checked(delta))

    def finish(self, item: JsonObject) -> None:
        kept = {name: value for name, value in item.items() if name not in _MESSAGE_FIELDS and value is not None}
        told: list[JsonObject] = [part for part in item.get("content") or () if _text_of(part)]
        for position, new in enumerate(told[len(self._parts) :]):
            self.grow("refusal" if new["type"] == "refusal" else "text", ("told", position), _text_of(new))
        for position, index in enumerate(self._parts.values()):
            part: JsonObject = told[position] if position < len(told) else {}
            vendor: JsonObject = {"item": kept} if kept else {}
            if part.get("annotations"):
                vendor["annotations"] = part["annotations"]
            if part.get("type") == "refusal":
                vendor["refusal"] = True
            self._items.draft.close(index, TextContent(vendor=vendor) if vendor else None)


def _text_of(part: JsonObject) -> str:
    return _checked(part.get("refusal" if part["type"] == "refusal" else "text") or "")


class _Reasoning:
    """What the model thought: a summary, or the text itself, and all of it encrypted where that was asked for."""

    def __init__(self, items: Items) -> None:
        self._draft = items.draft
        self._index = items.draft.open(ThinkingContent())
        self._place: Any = None

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        if not _checked(delta):
            return
        if self._place is None:
            self._place = (kind, place)
        elif self._place != (kind, place):
            self._place = (kind, place)
            self._draft.append(self._index, "\n\n")  # the parts are paragraphs, and no delta says so
        self._draft.append(self._index, delta)

    def finish(self, item: JsonObject) -> None:
        if self._place is None:
            parts: list[JsonObject] = [*(item.get("summary") or ()), *(item.get("content") or ())]
            for position, part in enumerate(parts):
                self.grow("told", position, _text_of(part))
        kept = {name: value for name, value in item.items() if name != "encrypted_content"}
        signature = item.get("encrypted_content") or None
        self._draft.close(self._index, ThinkingContent(signature=signature, vendor={"item": kept}))


class _FunctionCall:
    """A call of one of our tools, its arguments as JSON text."""

    def __init__(self, items: Items, item: JsonObject) -> None:
        self._items = items
        self._given_id = item.get("call_id")
        self._id = items.call_id(self._given_id)
        self._name: str = item.get("name") or ""
        self._index = items.draft.open(ToolCall(id=self._id, name=self._name))
        self._pieces: list[str] = []
        items.held.add("call")

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        if _checked(delta):
            self._pieces.append(delta)
            self._items.draft.append(self._index, delta)

    def finish(self, item: JsonObject) -> None:
        name: str = item.get("name") or self._name
        if not name:
            raise MalformedResponse("the answer calls a tool without naming it")
        if not self._given_id and item.get("call_id"):
            self._id = self._items.call_id(item["call_id"])
        arguments, invalid = self._arguments(item)
        schema = self._items.strict_schemas.get(name)
        if schema is not None and invalid is None:
            arguments = without_added_nulls(schema, arguments)
        kept = {name: value for name, value in item.items() if name not in _CALL_FIELDS and value is not None}
        call = ToolCall(
            id=self._id,
            name=name,
            arguments=arguments,
            invalid_arguments=invalid,
            vendor={"item": {"type": item["type"], **kept}},
        )
        self._items.draft.close(self._index, call)

    def _arguments(self, item: JsonObject) -> tuple[JsonObject, str | None]:
        told: JsonValue = item.get("arguments")
        text = told if isinstance(told, str) else "" if told is None else to_json(told).decode()
        if not self._pieces:
            self.grow("arguments", 0, text)
        return parse_arguments(text or "".join(self._pieces))


class _CustomCall(_FunctionCall):
    """A call of a tool that takes free text: for us, a tool whose one argument is ``input``."""

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        if _checked(delta):
            self._items.draft.append(self._index, ("" if self._pieces else _INPUT) + to_json(delta)[1:-1].decode())
            self._pieces.append(delta)

    def _arguments(self, item: JsonObject) -> tuple[JsonObject, str | None]:
        text = _checked(item.get("input") or "")
        if not self._pieces:
            self.grow("input", 0, text)
        end = '"}' if self._pieces else _INPUT + '"}'
        self._items.draft.append(self._index, end)
        return {"input": text or "".join(self._pieces)}, None


_INPUT = '{"input":"'


class _Opaque:
    """What only the vendor understands: its own tools' calls and results."""

    def __init__(self, items: Items, item: JsonObject) -> None:
        self._draft = items.draft
        self._index = items.draft.open(OpaqueContent(kind=item["type"], data=item))

    def grow(self, kind: str, place: JsonValue, delta: str) -> None:
        """Nothing: what an item of the vendor's holds, it tells when it is done."""

    def finish(self, item: JsonObject) -> None:
        picture = item.get("result") if item["type"] == "image_generation_call" else None
        if not picture:
            self._draft.close(self._index, OpaqueContent(kind=item["type"], data=item))
            return
        # The picture stands in a block of its own, and is put back when the item is sent back.
        bare = {name: value for name, value in item.items() if name != "result"}
        self._draft.close(self._index, OpaqueContent(kind=item["type"], data=bare))
        kind = f"image/{item.get('output_format') or 'png'}"
        self._draft.block(ImageContent(source=picture, media_type=kind))
