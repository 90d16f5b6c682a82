"""Everything that is fixed for a run, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..hooks.chain import NO_HOOKS, Hooks
from ..providers.base import OnPayload, OnResponse, StreamingModel
from ..tools.define.definition import AgentTool
from ..types.model import ReasoningControl, ToolChoice
from ..types.tool import ToolDefinition
from .limits import RunLimits

__all__ = ("AgentConfig", "QueueMode", "ToolExecution")

ToolExecution = Literal["parallel", "sequential"]
"""How the calls of a message run: at the same time, or one after the other."""
QueueMode = Literal["one-at-a-time", "all"]
"""Whether queued messages are heard one for each turn, or all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What the turns of one run have in common. Changing the agent meanwhile changes its next run."""

    model: StreamingModel
    system_prompt: str = ""
    tools: Mapping[str, AgentTool] = field(default_factory=dict[str, AgentTool])
    definitions: list[ToolDefinition] | None = None
    """What the model is told of ``tools``; made once."""
    tool_choice: ToolChoice | None = None
    tool_execution: ToolExecution = "parallel"
    hooks: Hooks = NO_HOOKS
    limits: RunLimits = field(default_factory=RunLimits)
    reasoning: ReasoningControl | None = None
    on_payload: OnPayload | None = None
    on_response: OnResponse | None = None
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
