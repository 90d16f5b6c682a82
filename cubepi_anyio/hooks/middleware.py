"""``Middleware``: every seam of a run, each doing nothing by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..concurrency import AbortSignal
from ..tools.define.definition import AgentTool, AgentToolResult
from ..tools.hooks import AfterToolCallResult, BeforeToolCallResult
from ..types.content import ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message, ToolResultMessage

__all__ = ("AfterToolCallContext", "AgentContext", "BeforeToolCallContext", "Middleware", "TurnAction", "TurnDecision")

TurnDecision = Literal["natural", "stop", "loop_to_model"]
"""What comes after an answer; ``TurnAction.decision`` says what each word does."""


@dataclass(slots=True)
class AgentContext:
    """What a hook may know of the run it is called in."""

    run_id: str
    turn: int
    system_prompt: str
    messages: Sequence[Message]
    """The transcript so far; read-only."""
    tools: Sequence[AgentTool]
    extra: JsonObject
    """The thread's own notes, kept with it; hooks may change them."""


@dataclass(slots=True)
class BeforeToolCallContext:
    """A call that is about to run."""

    ctx: AgentContext
    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: Any
    """The validated parameters, as the tool would get them."""


@dataclass(slots=True)
class AfterToolCallContext:
    """A call that has ended."""

    ctx: AgentContext
    assistant_message: AssistantMessage
    tool_call: ToolCall
    result: AgentToolResult
    """The result as the hooks before this one left it."""
    is_error: bool


@dataclass(slots=True)
class TurnAction:
    """What a hook makes of the model's answer."""

    response: AssistantMessage | None = None
    """Instead of the answer."""
    inject_messages: list[Message] = field(default_factory=list[Message])
    """Said after the answer, and after the results of its calls if they run."""
    decision: TurnDecision | None = None
    """``stop`` ends the run and ``loop_to_model`` asks the model again, both without running the calls, which are
    answered as refused; ``natural`` takes back what an earlier hook decided; ``None`` leaves it."""


class Middleware:
    """Subclass it and override the seams you need; an agent calls those only.

    Every seam may be ``async def`` or a plain function, and may leave out ``ctx`` and ``signal``: they are passed to
    seams that declare them. A hook that raises ends the run with its exception; a hook is cancelled with its run, and
    is not run again because of that. How several middleware compose stands at each seam.
    """

    tools: Sequence[AgentTool] = ()
    """Tools this middleware brings along; they are added to the agent's."""

    async def transform_context(
        self, messages: list[Message], *, ctx: AgentContext, signal: AbortSignal
    ) -> list[Message]:
        """Change what the model is shown of the transcript, which itself stays as it is.

        Chained: each sees what the one before returned.
        """
        return messages

    async def convert_to_llm(self, messages: list[Message], *, ctx: AgentContext, signal: AbortSignal) -> list[Message]:
        """Turn messages of the application's own into ones a provider knows.

        The last middleware that has it wins; it sees what ``transform_context`` left.
        """
        return messages

    async def transform_system_prompt(self, system_prompt: str, *, ctx: AgentContext, signal: AbortSignal) -> str:
        """Change the system prompt of one request. Chained."""
        return system_prompt

    async def resolve_tool_call(
        self, tool_call: ToolCall, *, ctx: AgentContext, signal: AbortSignal
    ) -> ToolCall | None:
        """Put another call (name, arguments) in the place of this one; the id stays.

        The first that returns one wins.
        """
        return None

    async def before_tool_call(
        self, call: BeforeToolCallContext, *, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        """Veto a call or edit its arguments.

        In order: edited arguments are what the next one sees, the first veto ends it. Calls of a batch come at the
        same time, each in its own task.
        """
        return None

    async def after_tool_call(self, call: AfterToolCallContext, *, signal: AbortSignal) -> AfterToolCallResult | None:
        """Change the result of a call.

        In order: each sees the result as the one before left it, and changes the fields it gives. Not called for
        calls that never began.
        """
        return None

    async def after_model_response(
        self, response: AssistantMessage, *, ctx: AgentContext, signal: AbortSignal
    ) -> TurnAction | None:
        """See the model's answer before anybody else, replace it, add to it, or decide what comes next.

        Replacements are chained, injected messages add up, and the last decision that was
        given counts.
        """
        return None

    async def should_stop_after_turn(
        self,
        message: AssistantMessage,
        tool_results: Sequence[ToolResultMessage],
        *,
        ctx: AgentContext,
        signal: AbortSignal,
    ) -> bool:
        """Whether the run ends here although the model wants to go on. One that says so is enough."""
        return False

    async def on_run_end(self, *, ctx: AgentContext, signal: AbortSignal) -> list[Message] | None:
        """Say something when the run would end, which makes it go on. They add up."""
        return None
