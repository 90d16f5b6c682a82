"""User, assistant and tool-result messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .content import AssistantContent, Content, TextContent, ToolCall
from .json import JsonObject
from .usage import Usage

__all__ = (
    "CUT_STOP_REASONS",
    "AssistantMessage",
    "Message",
    "ToolResultMessage",
    "UserMessage",
    "message_adapter",
    "text_of",
)


CUT_STOP_REASONS = ("length", "error", "aborted")
"""Stop reasons of a message that was cut: its last call may be incomplete, so none of its calls runs."""


class _Message(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    id: str = ""
    """Unique in its thread. Given by the agent when the message enters the transcript; one given before is kept."""
    timestamp: float | None = None
    """Seconds since the epoch."""
    metadata: JsonObject = Field(default_factory=dict)
    """The application's own notes; never sent to a model."""
    run_id: str | None = None


class UserMessage(_Message):
    """What a person, or the program on their behalf, said."""

    role: Literal["user"] = "user"
    content: list[Content] = Field(default_factory=list[Any])

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return text_of(self.content)


class AssistantMessage(_Message):
    """What a model said.

    ``stop_reason``: ``stop``, ``tool_use``, ``length``, ``refusal``, ``error``, ``aborted``, or the vendor's own word
    where it has no counterpart here. Whether there are calls to run is decided by the content, never by this field;
    after ``length``, ``error`` and ``aborted`` no call of the message runs.
    """

    role: Literal["assistant"] = "assistant"
    content: list[AssistantContent] = Field(default_factory=list[Any])
    stop_reason: str = "stop"
    error_message: str | None = None
    error_type: str | None = None
    """The class name of the typed error, where ``stop_reason`` is ``error``."""
    usage: Usage | None = None
    provider_id: str = ""
    model_id: str = ""
    api: str = ""
    """The wire format the message came over; decides whether signatures and opaque blocks may be sent back."""
    response_id: str | None = None
    request_id: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls in the order the model made them."""
        return [block for block in self.content if block.type == "tool_call"]


class ToolResultMessage(_Message):
    """The answer to one tool call. ``details`` are for the program and never sent to a model."""

    role: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    tool_name: str
    content: list[Content] = Field(default_factory=list[Any])
    details: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return text_of(self.content)


Message = Annotated[UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]
"""Anything that stands in a transcript; told apart by ``role``."""

message_adapter: TypeAdapter[UserMessage | AssistantMessage | ToolResultMessage] = TypeAdapter(
    Message, config=ConfigDict(defer_build=True)
)
"""Reads and writes any message as JSON."""


def text_of(content: Sequence[object]) -> str:
    """Join the text blocks of ``content``, leaving the others out."""
    return "".join(block.text for block in content if isinstance(block, TextContent))
