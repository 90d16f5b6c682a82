"""Everything that is fixed for a run, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..hooks.chain import NO_HOOKS, Hooks
from ..providers.base import OnPayload, OnResponse, StreamingModel
from ..tools.context import RunContext, ToolSource
from ..types.limits import RunLimits
from ..types.model import ReasoningControl, ToolChoice
from ..types.settings import ModelSettings
from .toolset import NO_TOOLS, Toolset

__all__ = ("AgentConfig", "QueueMode", "SettingsSource", "ToolExecution")

SettingsSource = ModelSettings | Callable[[RunContext[Any]], ModelSettings]
"""How models are to answer: a value, or a plain function of the context, asked for each request."""

ToolExecution = Literal["parallel", "sequential"]
"""How the calls of a message run: at the same time, or one after the other."""
QueueMode = Literal["one-at-a-time", "all"]
"""Whether queued messages are heard one for each turn, or all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What the turns of one run have in common. Changing the agent meanwhile changes its next run."""

    model: StreamingModel
    system_prompt: str = ""
    tool_sources: tuple[ToolSource, ...] = ()
    """Where the tools come from: the agent's own, then those of its middleware."""
    toolset: Toolset | None = NO_TOOLS
    """The tools of every turn, where they are known from the start; ``None`` if a source has to be asked."""
    tool_choice: ToolChoice | None = None
    tool_execution: ToolExecution = "parallel"
    hooks: Hooks = NO_HOOKS
    limits: RunLimits = field(default_factory=RunLimits)
    reasoning: ReasoningControl | None = None
    settings: tuple[SettingsSource, ...] = ()
    """The agent's settings, and over them those of the run."""
    deps: Any = None
    """What the program gives its hooks and tools."""
    on_payload: OnPayload | None = None
    on_response: OnResponse | None = None
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
