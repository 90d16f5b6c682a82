"""What an agent says while it runs.

The order of a run: ``agent_start``, ``turn_start``, ``message_start``/``message_end`` for each prompt; then
``message_start``, ``message_update``\\*, ``message_end`` for the model's answer; ``tool_execution_start`` for every
call of it, updates as they come, ``tool_execution_end`` as calls end; ``message_start``/``message_end`` for each
result, in the order of the calls; ``turn_end``; and so on for each turn; at last ``agent_end``. Every start has
its end and ``agent_end`` comes exactly once, however the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message, ToolResultMessage
from ..types.run import RunOutcome
from .stream import StreamEvent

__all__ = (
    "AgentEndEvent",
    "AgentEvent",
    "AgentStartEvent",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "ToolExecutionEndEvent",
    "ToolExecutionStartEvent",
    "ToolExecutionUpdateEvent",
    "TurnEndEvent",
    "TurnStartEvent",
)


@dataclass(slots=True)
class AgentStartEvent:
    """A run begins."""

    run_id: str = ""
    type: Literal["agent_start"] = field(default="agent_start", init=False)


@dataclass(slots=True)
class TurnStartEvent:
    """The model is about to be asked. Turns count from 1."""

    turn: int = 0
    type: Literal["turn_start"] = field(default="turn_start", init=False)


@dataclass(slots=True)
class MessageStartEvent:
    """A message begins. The model's own is as yet without content."""

    message: Message
    type: Literal["message_start"] = field(default="message_start", init=False)


@dataclass(slots=True)
class MessageUpdateEvent:
    """The model's message grew; ``stream_event`` says how."""

    stream_event: StreamEvent
    type: Literal["message_update"] = field(default="message_update", init=False)

    @property
    def message(self) -> AssistantMessage:
        """The message as it stood at this event; built when it is first read."""
        partial = self.stream_event.partial
        return partial if partial is not None else AssistantMessage()


@dataclass(slots=True)
class MessageEndEvent:
    """A message is complete, as it stands in the transcript."""

    message: Message
    type: Literal["message_end"] = field(default="message_end", init=False)


@dataclass(slots=True)
class ToolExecutionStartEvent:
    """A call is about to run; ``args`` are as the model sent them."""

    tool_call_id: str
    tool_name: str
    args: JsonObject
    type: Literal["tool_execution_start"] = field(default="tool_execution_start", init=False)


@dataclass(slots=True)
class ToolExecutionUpdateEvent:
    """A running call reports ``partial_result``, the very object given to ``on_update``."""

    tool_call_id: str
    tool_name: str
    args: JsonObject
    partial_result: Any
    type: Literal["tool_execution_update"] = field(default="tool_execution_update", init=False)


@dataclass(slots=True)
class ToolExecutionEndEvent:
    """A call ended. ``result`` is what the tool answered (``content``, ``details``), ``ending`` how it ended."""

    tool_call_id: str
    tool_name: str
    result: Any
    is_error: bool = False
    terminate: bool = False
    ending: str = "finished"
    """The value of a ``CallEnding``: ``finished``, ``failed``, ``timed_out``, ``cancelled``, and so on."""
    blocked_by_hook: bool = False
    block_reason: str | None = None
    type: Literal["tool_execution_end"] = field(default="tool_execution_end", init=False)


@dataclass(slots=True)
class TurnEndEvent:
    """The model's answer and the results of its calls are in the transcript."""

    message: AssistantMessage
    tool_results: Sequence[ToolResultMessage] = ()
    type: Literal["turn_end"] = field(default="turn_end", init=False)


@dataclass(slots=True)
class AgentEndEvent:
    """The run is over; ``messages`` are those it added, prompts included."""

    messages: Sequence[Message] = ()
    outcome: RunOutcome = "completed"
    type: Literal["agent_end"] = field(default="agent_end", init=False)


AgentEvent = (
    AgentStartEvent
    | TurnStartEvent
    | MessageStartEvent
    | MessageUpdateEvent
    | MessageEndEvent
    | ToolExecutionStartEvent
    | ToolExecutionUpdateEvent
    | ToolExecutionEndEvent
    | TurnEndEvent
    | AgentEndEvent
)
"""Anything an agent says; tell them apart by ``type``."""
