"""A ``RunContext`` without a run: to call a tool or a hook of one's own by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..concurrency import NOTHING_TO_AWAIT, AbortSignal
from ..providers.base import StreamingModel
from ..providers.faux import FauxProvider
from ..tools.context import RunContext
from ..tools.define.definition import AgentTool, OnUpdate
from ..types.json import JsonObject
from ..types.limits import RunLimits
from ..types.messages import Message
from ..types.usage import Usage

__all__ = ("RunByHand", "run_context")


@dataclass(slots=True, kw_only=True)
class RunByHand:
    """What a context shows, as plain fields; what is done through the context is kept in them."""

    id: str = "run"
    turn: int = 1
    system_prompt: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[AgentTool] = ()
    model: StreamingModel = field(default_factory=lambda: FauxProvider().model("test"))
    limits: RunLimits = field(default_factory=RunLimits)
    signal: AbortSignal = field(default_factory=AbortSignal)
    usage: Usage = field(default_factory=Usage)
    notes: JsonObject = field(default_factory=dict[str, Any])
    result_notes: JsonObject = field(default_factory=dict[str, Any])
    deps: Any = None
    usage_by: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """What ``add_usage`` was given, by name."""
    emitted: list[Any] = field(default_factory=list[Any])
    """What ``emit`` was given."""

    def add_usage(self, usage: Usage, *, by: str, model: StreamingModel | None) -> None:
        """Keep the tokens in ``usage`` and ``usage_by``."""
        self.usage = self.usage + usage
        self.usage_by[by] = self.usage_by.get(by, Usage()) + usage

    def emit(self, event: Any) -> Awaitable[None]:
        """Keep the event in ``emitted``."""
        self.emitted.append(event)
        return NOTHING_TO_AWAIT


def run_context(
    run: RunByHand | None = None,
    *,
    tool_call_id: str | None = None,
    tool_name: str | None = None,
    on_update: OnUpdate | None = None,
) -> RunContext[Any]:
    """A context of ``run``, or of one with nothing in it; with ``tool_call_id`` the context of a call."""
    return RunContext(
        run if run is not None else RunByHand(), tool_call_id=tool_call_id, tool_name=tool_name, on_update=on_update
    )
