"""``Middleware``: every seam of a run, each doing nothing by default.

Two kinds of seams. A *hook* is called at one moment, and returns what it changes. An *onion* (``around_…``) stands
around a stretch of the run, and goes on by calling ``proceed()``; how onions compose and what they cannot do is said in
``hooks.around``. Onions stand outside the hooks of the same thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..concurrency import AbortSignal
from ..providers.base import BoundModel
from ..providers.model_call import ModelOutcome
from ..tools.context import RunContext, ToolSource
from ..tools.define.definition import AgentToolResult
from ..tools.hooks import AfterToolCallResult, BeforeToolCallResult
from ..tools.run.outcome import CallOutcome
from ..types.content import ToolCall
from ..types.messages import AssistantMessage, Message, ToolResultMessage
from ..types.run import RunResult
from .around import Proceed

__all__ = ("AfterToolCallContext", "AgentContext", "BeforeToolCallContext", "Middleware", "TurnAction", "TurnDecision")

TurnDecision = Literal["natural", "stop", "loop_to_model"]
"""What comes after an answer; ``TurnAction.decision`` says what each word does."""


AgentContext = RunContext
"""The context as hooks know it."""


@dataclass(slots=True)
class BeforeToolCallContext:
    """A call that is about to run."""

    ctx: RunContext[Any]
    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: Any
    """The validated parameters, as the tool would get them."""


@dataclass(slots=True)
class AfterToolCallContext:
    """A call that has ended."""

    ctx: RunContext[Any]
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
    """Said after the answer, and after the results of its calls if they run; where a call waits for a person, when the
    agent goes on."""
    decision: TurnDecision | None = None
    """``stop`` ends the run and ``loop_to_model`` asks the model again, both without running the calls, which are
    answered as refused; ``natural`` takes back what an earlier hook decided; ``None`` leaves it."""


class Middleware:
    """Subclass it and override the seams you need; an agent calls those only.

    Every seam may be ``async def`` or a plain function, and may leave out ``ctx`` and ``signal``: they are passed to
    seams that declare them. A hook that raises ends the run with its exception; a hook is cancelled with its run, and
    is not run again because of that. How several middleware compose stands at each seam.
    """

    tools: ToolSource = ()
    """Tools this middleware brings along, added to the agent's: a sequence, or a function of the context (a method
    ``tools(self, ctx)`` as well), or an object with ``tools(ctx)``; these are asked once a turn."""

    # --- onions ------------------------------------------------------------------------------

    async def around_run(self, proceed: Proceed[RunResult], *, ctx: RunContext[Any]) -> RunResult | None:
        """Stand around a whole run, settling included: from before ``agent_start`` until after ``agent_end``.

        Opened for a run that began, and again when it is resumed. ``proceed()`` has to be called, and returns the
        ``RunResult``. An exception that ends the run leaves ``proceed()`` as itself. An abort cancels what the layer
        waits for, before the run, which then does not begin, and after it, when the outcome stands.
        A stored thread is claimed, read and given back inside of it: change ``ctx.notes`` in hooks further in.
        The first middleware is the outermost; ``None`` keeps the result.
        """
        return await proceed()

    async def around_model_call(
        self, proceed: Proceed[ModelOutcome], *, ctx: RunContext[Any]
    ) -> ModelOutcome | AssistantMessage | None:
        """Stand around one turn's request: the transforms, all tries, and ``after_model_response``.

        ``proceed()`` may be called again while nothing of an answer was said; the transforms run again then. Not
        calling it answers in the model's place. A message that is returned takes the place of the answer, with the
        usage of the answer where it has none of its own.
        The first middleware is the outermost; ``None`` keeps the outcome.
        """
        return await proceed()

    async def around_model_try(
        self, model: BoundModel, proceed: Proceed[ModelOutcome], *, ctx: RunContext[Any]
    ) -> ModelOutcome | AssistantMessage | None:
        """Stand around each try that asks a provider: each retry, each fallback, each leg of a race.

        It runs in the task that produces the answer, beside the run's; legs of a race have theirs at the same time.
        ``model`` is the one that is asked. Not calling ``proceed()`` answers in its place; what was said stands, so a
        message that is returned counts only where nothing was.
        The first middleware is the outermost; ``None`` keeps the outcome.
        """
        return await proceed()

    async def around_tool_call(
        self, call: ToolCall, proceed: Proceed[CallOutcome], *, ctx: RunContext[Any]
    ) -> CallOutcome | AgentToolResult | str | None:
        """Stand around one call: resolving, validation, before-hooks, the tool, and after-hooks.

        Opened once ``tool_execution_start`` was said, and closed before the result is stored and ``tool_execution_end``
        said; for each call whose turn came, also one that is refused, vetoed, unknown, suspended or ended alone, and
        again when it is resumed. A call that ends alone (its timeout, ``abort_tool_call``) is an outcome like others.
        Not calling ``proceed()`` answers in the tool's place: then no hook and no approval was asked, and the ending of
        the outcome is ``answered``. A result that is returned takes the place of the tool's, or answers a call that
        would wait for a person. An outcome that was kept from another call is given this call's id.
        The first middleware is the outermost; ``None`` keeps the outcome.
        """
        return await proceed()

    # --- hooks -------------------------------------------------------------------------------

    async def transform_context(
        self, messages: list[Message], *, ctx: RunContext[Any], signal: AbortSignal
    ) -> list[Message]:
        """Change what the model is shown of the transcript, which itself stays as it is.

        Chained: each sees what the one before returned.
        """
        return messages

    async def convert_to_llm(
        self, messages: list[Message], *, ctx: RunContext[Any], signal: AbortSignal
    ) -> list[Message]:
        """Turn messages of the application's own into ones a provider knows.

        The last middleware that has it wins; it sees what ``transform_context`` left.
        """
        return messages

    async def transform_system_prompt(self, system_prompt: str, *, ctx: RunContext[Any], signal: AbortSignal) -> str:
        """Change the system prompt of one request. Chained."""
        return system_prompt

    async def resolve_tool_call(
        self, tool_call: ToolCall, *, ctx: RunContext[Any], signal: AbortSignal
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
        self, response: AssistantMessage, *, ctx: RunContext[Any], signal: AbortSignal
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
        ctx: RunContext[Any],
        signal: AbortSignal,
    ) -> bool:
        """Whether the run ends here although the model wants to go on. One that says so is enough."""
        return False

    async def on_run_end(self, *, ctx: RunContext[Any], signal: AbortSignal) -> list[Message] | None:
        """Say something when the run would end, which makes it go on. They add up."""
        return None
