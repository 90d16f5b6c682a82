"""The blocks a message is made of."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from .json import JsonObject

__all__ = (
    "AssistantContent",
    "Content",
    "DocumentContent",
    "ImageContent",
    "OpaqueContent",
    "TextContent",
    "ThinkingContent",
    "ToolCall",
)


class _Block(BaseModel):
    """What all blocks share: unknown fields are refused, so a typing mistake is heard at once."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)


class TextContent(_Block):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str = ""
    vendor: JsonObject | None = None
    """What the vendor attached to the block (citations, item ids); sent back to the same wire format only."""


class ImageContent(_Block):
    """A picture: base64 text in ``source`` with its ``media_type``, or an address in ``url``."""

    type: Literal["image"] = "image"
    source: str = ""
    media_type: str = ""
    url: str | None = None


class DocumentContent(_Block):
    """A document (PDF, text): base64 text in ``source`` with its ``media_type``, or an address in ``url``."""

    type: Literal["document"] = "document"
    source: str = ""
    media_type: str = "application/pdf"
    title: str | None = None
    url: str | None = None
    vendor: JsonObject | None = None


class ThinkingContent(_Block):
    """What a model thought before it answered.

    ``signature`` proves to the vendor that the text is its own; unsigned thinking is never sent back.
    ``redacted`` holds thinking that the vendor encrypted: it has no text and is sent back as it came.
    """

    type: Literal["thinking"] = "thinking"
    thinking: str = ""
    signature: str | None = None
    redacted: str | None = None
    vendor: JsonObject | None = None


class ToolCall(_Block):
    """A request of the model to run a tool. ``arguments`` are parsed but not validated."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: JsonObject = Field(default_factory=dict)
    invalid_arguments: str | None = None
    """The text the model sent, where it is not a JSON object; such a call is answered with an error, never run."""
    vendor: JsonObject | None = None


class OpaqueContent(_Block):
    """A block only its vendor understands (server tools and their results); sent back as it came."""

    type: Literal["opaque"] = "opaque"
    kind: str
    data: JsonObject = Field(default_factory=dict)


Content = Annotated[TextContent | ImageContent | DocumentContent, Field(discriminator="type")]
"""What users and tools say."""

AssistantContent = Annotated[
    TextContent | ThinkingContent | ToolCall | ImageContent | OpaqueContent, Field(discriminator="type")
]
"""What models say."""
