"""Turns until nothing is left to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..concurrency import has_native_cancellation, hear_of_swallowed_cancellation, run_in_own_task
from ..errors import EmptyPrompt
from ..events.agent import AgentEvent
from ..providers.base import StreamingModel, StreamOptions
from ..tools.define.definition import AgentTool, check_unique_names
from ..types.content import TextContent
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.model import ToolChoice
from ..types.run import RunOutcome, RunResult
from .config import AgentConfig, ToolExecution
from .limits import RunLimits
from .outbox import ListenerList
from .queues import MessageQueue
from .run import Run
from .settle import settle
from .turn import run_turn

__all__ = ("as_messages", "execute", "run_agent_loop", "run_loop")


async def run_loop(run: Run, prompts: Sequence[Message], steering: MessageQueue, follow_ups: MessageQueue) -> None:
    """Run turns until the model asks for nothing more and nobody has anything to add.

    A turn says what was queued, asks the model, runs its calls. Messages that steer are said before the next turn;
    those that follow, when the run would end. A checkpoint; cancelled, it leaves the run open for settling.
    """
    config = run.config
    # What was left in the queue by an earlier run was said before these prompts, and is heard before them.
    waiting = [*steering.take("all"), *prompts]
    while True:
        seconds = config.limits.turn_timeout
        wants_more = await (run_turn(run, waiting) if seconds is None else _bounded_turn(run, waiting, seconds))
        await hear_of_swallowed_cancellation()
        if run.error is not None or run.limit is not None or run.requests:
            return
        said = [] if wants_more or steering or follow_ups else await _said_at_the_end(run)
        # Nothing is taken from a queue for a turn that will not be.
        if not (wants_more or steering or follow_ups or said) or run.aborted or _is_spent(run):
            return
        waiting = [*said, *steering.take(config.steering_mode)]
        if not wants_more and not waiting:
            waiting = follow_ups.take(config.follow_up_mode)


async def _said_at_the_end(run: Run) -> list[Message]:
    """What hooks say when the run would end, which makes it go on."""
    hook = run.config.hooks.on_run_end
    return await hook(ctx=run.context(), signal=run.signal) if hook is not None else []


def _is_spent(run: Run) -> bool:
    """Whether a limit forbids another turn."""
    limits = run.config.limits
    if limits.max_turns is not None and run.turn >= limits.max_turns:
        run.reach_limit("max_turns", limits.max_turns)
    elif limits.max_total_tokens is not None and run.usage.total_tokens >= limits.max_total_tokens:
        run.reach_limit("max_total_tokens", limits.max_total_tokens)
    return run.limit is not None


async def _bounded_turn(run: Run, waiting: list[Message], seconds: float) -> bool:
    with anyio.move_on_after(seconds) as scope:
        run.deadlines["turn_timeout"] = scope, seconds
        return await run_turn(run, waiting)
    run.reach_limit("turn_timeout", seconds)
    return False


def execute(run: Run, work: Callable[[], Awaitable[None]], *, in_own_task: bool = False) -> Awaitable[RunResult]:
    """Do the work of a run in its scope, settle whatever the end was, and say what it came to.

    A cancellation from outside and an error that is no tool's and not the model's leave as themselves, after
    settling. An abort and a limit are results. The run has a task of its own where ``Task.cancel()`` could break the
    shields of tools and providers; ``in_own_task`` says that the current task is that already.
    """
    if in_own_task or not has_native_cancellation():
        return _execute(run, work)
    return run_in_own_task(partial(_execute, run, work))


async def _execute(run: Run, work: Callable[[], Awaitable[None]]) -> RunResult:
    seconds = run.config.limits.run_timeout
    if seconds is not None:
        run.scope.deadline = anyio.current_time() + seconds
        run.deadlines["run_timeout"] = run.scope, seconds
    try:
        with run.scope:
            run.start_agent()
            if run.cancelled_before:
                # If it has not hit yet, it does here, before anything is said to the model.
                await checkpoint()
            await run.outbox.flush()
            await work()
            if run.limit is None and not run.aborted:
                run.finish_agent(_natural_outcome(run))
                await run.outbox.flush()
    except BaseException as error:
        await settle(run, _outcome_by(error))  # noqa: ASYNC102
        raise
    await settle(run, _outcome_of(run))
    if run.fatal is not None:
        raise run.fatal
    await checkpoint_if_cancelled()  # as the end of a task group would
    return run.result()


def _outcome_of(run: Run) -> RunOutcome:
    if run.fatal is not None:
        return _outcome_by(run.fatal)
    if run.aborted:
        return "aborted"
    if run.is_open and run.scope.cancelled_caught and run.limit is None:
        run.reach_limit("run_timeout", run.config.limits.run_timeout or 0)
    if run.limit is not None:
        return "limit"
    return _natural_outcome(run)


def _outcome_by(error: BaseException) -> RunOutcome:
    """How a run ended that an exception ended: a cancellation and Ctrl-C are no errors."""
    return "error" if isinstance(error, Exception) else "aborted"


def _natural_outcome(run: Run) -> RunOutcome:
    """How a run ended that nothing cut short."""
    if run.error is not None:
        return "error"
    return "suspended" if run.requests else "completed"


def as_messages(prompt: str | Message | Sequence[str | Message]) -> list[Message]:
    """The messages of a prompt. Raises ``EmptyPrompt`` if there is nothing in them, ``TypeError`` for anything else."""
    given: list[Any] = [prompt] if isinstance(prompt, str) or not isinstance(prompt, Sequence) else [*prompt]
    messages: list[Message] = []
    for part in given:
        if isinstance(part, str):
            part = UserMessage(content=[TextContent(text=part)])
        if not isinstance(part, UserMessage | AssistantMessage | ToolResultMessage):
            raise TypeError(f"a prompt is a string, a message or a list of them, not {type(part).__name__}")
        messages.append(part)
    if not messages or any(_is_empty(message) for message in messages):
        raise EmptyPrompt
    return messages


def _is_empty(message: Message) -> bool:
    """Whether a user's message says nothing; vendors refuse it. A tool may well answer nothing."""
    return message.role == "user" and not any(block.type != "text" or block.text.strip() for block in message.content)


async def run_agent_loop(
    prompts: str | Message | Sequence[str | Message],
    messages: list[Message],
    model: StreamingModel,
    *,
    emit: Callable[[AgentEvent], object] | None = None,
    system_prompt: str = "",
    tools: Sequence[AgentTool] = (),
    tool_choice: ToolChoice | None = None,
    tool_execution: ToolExecution = "parallel",
    limits: RunLimits | None = None,
    stream_options: StreamOptions | None = None,
) -> RunResult:
    """Run an agent without an ``Agent``: the caller keeps the transcript.

    ``messages`` is the transcript so far; the run appends to it, and leaves it valid however it ends, so that also
    after an exception the results that were reached are in it. ``emit`` gets the events, sync or async.
    Raises ``EmptyPrompt``; cancellation and errors of ``emit`` as they are. A checkpoint.
    """
    check_unique_names(tools)
    options = stream_options or StreamOptions()
    config = AgentConfig(
        model=model,
        system_prompt=system_prompt,
        tools={tool.name: tool for tool in tools},
        definitions=[tool.definition for tool in tools] or None,
        tool_choice=tool_choice,
        tool_execution=tool_execution,
        limits=limits or RunLimits(),
        reasoning=options.reasoning,
        on_payload=options.on_payload,
        on_response=options.on_response,
    )
    listeners = ListenerList()
    if emit is not None:
        listeners.subscribe(emit)
    said = as_messages(prompts)
    run = Run(config, messages, listeners)
    return await execute(run, lambda: run_loop(run, said, MessageQueue(), MessageQueue()))
