"""What is true of an agent now."""

from __future__ import annotations

from collections.abc import Sequence

from ..providers.base import StreamingModel
from ..tools.context import ToolSource
from ..tools.define.definition import AgentTool, check_unique_names
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message
from ..types.model import ReasoningControl
from ..types.run import RunOutcome
from .run import Run, RunPhase
from .thread import StoredThread
from .toolset import checked_tools

__all__ = ("AgentState",)


class AgentState:
    """The transcript and settings of an agent, and what its run is doing.

    Settings may be changed at any time and hold from the next run on. ``messages`` and ``tools`` are given as new
    lists: change them by assigning.
    """

    def __init__(
        self,
        *,
        model: StreamingModel,
        system_prompt: str,
        tools: ToolSource,
        reasoning: ReasoningControl | None,
        messages: list[Message],
        thread: StoredThread | None = None,
    ) -> None:
        self.model = model
        self.system_prompt = system_prompt
        self.reasoning = reasoning
        self.transcript = messages
        """The transcript itself; runs append to it. Read it, and leave changing it to the agent."""
        self.thread = thread
        """The stored thread, if the agent has a store."""
        self.notes: JsonObject = thread.extra if thread is not None else {}
        """The thread's own notes, for hooks and tools; kept with the thread."""
        self._tools: tuple[AgentTool, ...] | None = ()
        """The tools, where they are a sequence."""
        self._tool_source: ToolSource = ()
        self.tool_source = tools
        self.run: Run | None = None
        """The run that is going on."""
        self.last_outcome: RunOutcome | None = None
        self.error: Exception | None = None
        """The model's error that ended the last run."""

    @property
    def extra(self) -> JsonObject:
        """The same as ``notes``."""
        return self.notes

    @property
    def tool_source(self) -> ToolSource:
        """Where the tools come from: a sequence, a function of the context, or an object with ``tools(ctx)``."""
        return self._tool_source

    @tool_source.setter
    def tool_source(self, source: ToolSource) -> None:
        if isinstance(source, Sequence):
            tools = checked_tools(source)
            check_unique_names(tools)
            self._tool_source = self._tools = tools
        elif callable(source) or callable(getattr(source, "tools", None)):
            self._tool_source, self._tools = source, None
        else:
            raise TypeError(
                f"tools are a sequence of AgentTool, a function of the context, or an object with tools(ctx), not "
                f"{type(source).__name__}"
            )

    @property
    def tools(self) -> list[AgentTool]:
        """The tools; assigning refuses two with one name (``DuplicateToolName``).

        Where a source is asked for them at each turn, those of the turn that is under way, and none between runs.
        """
        if self._tools is not None:
            return list(self._tools)
        return list(self.run.tools) if self.run is not None else []

    @tools.setter
    def tools(self, tools: Sequence[AgentTool]) -> None:
        self.tool_source = tools

    @property
    def messages(self) -> list[Message]:
        """The transcript."""
        return list(self.transcript)

    @property
    def is_running(self) -> bool:
        """Whether a run is going on."""
        return self.run is not None

    @property
    def phase(self) -> RunPhase:
        """What the run is doing: ``loading``, ``waiting`` for the first token, ``streaming``, running ``tools``,
        ``between_turns``, ``settling``; ``idle`` when there is none."""
        return self.run.phase if self.run is not None else "idle"

    @property
    def run_id(self) -> str | None:
        """The id of the run that is going on."""
        return self.run.id if self.run is not None else None

    @property
    def is_streaming(self) -> bool:
        """Whether the model is answering."""
        return self.run is not None and self.run.record.is_streaming

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The model's message as far as it has arrived."""
        stream = self.run.record.stream if self.run is not None else None
        return stream.message if stream is not None else None

    @property
    def pending_tool_calls(self) -> set[str]:
        """The ids of the calls that have begun and not ended."""
        if self.run is None:
            return set()
        return {slot.call.id for slot in self.run.calls.slots if slot.announced and slot.answer is None}
