"""What a Chat Completions answer carries beside text, thinking and calls: kept for its vendor, as it came. Pure."""

from __future__ import annotations

from typing import Any, cast

from ...stream.draft import DraftWriter
from ...types.content import ImageContent, OpaqueContent
from ...types.json import JsonObject, JsonValue

__all__ = ("EXTRA_FIELDS", "Extras", "thinking_in")

EXTRA_FIELDS = ("annotations", "audio", "extra_content", "images", "reasoning_details")
"""The fields this file knows."""

_GROWING = ("data", "signature", "summary", "text", "transcript")
"""Fields of which a delta brings the next piece; any other field it gives anew."""


class _Merged:
    """One object put together from deltas."""

    def __init__(self) -> None:
        self._fields: JsonObject = {}
        self._pieces: dict[str, list[str]] = {}

    def add(self, delta: JsonObject) -> None:
        for name, value in delta.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
            elif value is not None or name not in self._fields:
                self._fields[name] = value

    def value(self) -> JsonObject:
        return self._fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


class Extras:
    """Collects the extra fields of all deltas, in linear time, and writes them into a draft at the end."""

    def __init__(self) -> None:
        self._annotations: list[JsonValue] = []
        self._audio = _Merged()
        self._extra_content: JsonObject = {}
        self._details: dict[Any, _Merged] = {}
        self._images: list[ImageContent] = []

    def take(self, delta: JsonObject) -> None:
        """Take the extra fields of one delta or message."""
        self._annotations += delta.get("annotations") or ()
        self._audio.add(delta.get("audio") or {})
        self._extra_content |= delta.get("extra_content") or {}
        details: list[JsonObject] = delta.get("reasoning_details") or []
        for position, detail in enumerate(details):
            key = (detail.get("index", position), detail.get("type"))
            self._details.setdefault(key, _Merged()).add(detail)
        for image in delta.get("images") or ():
            self._images.append(_image(image["image_url"]["url"]))

    def write(self, draft: DraftWriter) -> None:
        """Add what was collected as blocks: images as such, the rest as opaque ones."""
        for image in self._images:
            draft.block(image)
        audio = self._audio.value()
        collected: dict[str, JsonValue] = {
            "annotations": self._annotations,
            "audio": audio if audio.get("id") or audio.get("data") else None,
            "extra_content": self._extra_content,
            "reasoning_details": [detail.value() for detail in self._details.values()],
        }
        for kind, value in collected.items():
            if value:
                draft.block(OpaqueContent(kind=kind, data={kind: value}))


def thinking_in(details: JsonValue) -> str:
    """The readable text of ``reasoning_details``, for a delta that gives it in no other field."""
    texts = (detail.get("text") or detail.get("summary") for detail in cast("list[JsonObject]", details or ()))
    return "".join(text for text in texts if text)


def _image(url: str) -> ImageContent:
    head, separator, data = url.partition(";base64,")
    if separator and head.startswith("data:"):
        return ImageContent(source=data, media_type=head.removeprefix("data:"))
    return ImageContent(url=url)
