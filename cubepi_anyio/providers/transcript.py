"""What every wire format asks of a transcript, and makes of what people and tools say. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from ..types.content import ImageContent
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from ..types.transcript import results_after

__all__ = ("ABSENT_RESULT", "answered_calls", "data_url", "decoded_text", "image_media_type", "image_url")

ABSENT_RESULT = {False: "(no output)", True: "the tool failed and gave no reason"}
"""What stands for a result without content, by ``is_error``, where a vendor wants a text."""

_BASE64_MEDIA_TYPES = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def answered_calls(messages: Sequence[Message], position: int) -> set[str] | None:
    """Of a message that was cut, the ids of the calls that may be sent: those with a result directly after it.

    ``None`` for a message that was not cut, all of whose calls may be sent.
    """
    message = messages[position]
    if not isinstance(message, AssistantMessage) or message.stop_reason not in CUT_STOP_REASONS:
        return None
    return {result.tool_call_id for result in results_after(messages, position)}


def image_media_type(image: ImageContent) -> str:
    """The media type of an image with a source: what it says, or what the source begins like."""
    guess = (kind for start, kind in _BASE64_MEDIA_TYPES.items() if image.source.startswith(start))
    return image.media_type or next(guess, "image/png")


def image_url(image: ImageContent) -> str:
    """Where an image can be read: its own address, or one that contains it."""
    return image.url or data_url(image_media_type(image), image.source)


def data_url(media_type: str, source: str) -> str:
    """A ``data:`` address of base64 text."""
    return f"data:{media_type};base64,{source}"


def decoded_text(source: str) -> str:
    """The text that is encoded in ``source``, or ``source`` where that is the text itself."""
    try:
        return base64.b64decode(source, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return source
