"""Turns until nothing is left to do, and the execution of a run from its first event to its last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..concurrency import has_native_cancellation, hear_of_swallowed_cancellation, run_in_group, run_in_own_task
from ..errors import EmptyPrompt, UsageError
from ..events.agent import AgentEvent
from ..hooks.around import through
from ..providers.base import StreamingModel, StreamOptions
from ..stream.block import Worker
from ..tools.define.definition import AgentTool
from ..types.content import TextContent
from ..types.limits import RunLimits
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.model import ToolChoice
from ..types.run import RunResult
from .config import AgentConfig, ToolExecution
from .ending import outcome_by
from .listeners import ListenerList
from .queues import MessageQueue
from .run import Run
from .settle import settle
from .toolset import Toolset
from .turn import run_turn

__all__ = ("as_messages", "execute", "run_agent_loop", "run_loop")


async def run_loop(run: Run, prompts: Sequence[Message], steering: MessageQueue, follow_ups: MessageQueue) -> None:
    """Run turns until the model asks for nothing more and nobody has anything to add.

    A turn says what was queued, asks the model, runs its calls. Messages that steer are said before the next turn;
    those that follow, when the run would end. A checkpoint; cancelled, it leaves the run open for settling.
    """
    config = run.config
    seconds, on_run_end = config.limits.turn_timeout, config.hooks.on_run_end
    # What was left in the queue by an earlier run was said before these prompts, and is heard before them.
    waiting = [*steering.take("all"), *prompts]
    while True:
        if seconds is None:
            wants_more = await run_turn(run, waiting)
        else:
            wants_more = False
            with anyio.move_on_after(seconds) as scope:
                run.ending.bound_by("turn_timeout", scope, seconds)
                wants_more = await run_turn(run, waiting)
        if run.cancel_requests():
            await hear_of_swallowed_cancellation()
        if run.must_stop:
            return
        said: list[Message] = []
        if not (wants_more or steering or follow_ups) and on_run_end is not None:
            said = await on_run_end(ctx=run.context(), signal=run.ending.signal)
        # Nothing is taken from a queue for a turn that will not be.
        if not (wants_more or steering or follow_ups or said) or _is_spent(run):
            return
        waiting = [*said, *steering.take(config.steering_mode)]
        if not wants_more and not waiting:
            waiting = follow_ups.take(config.follow_up_mode)


def _is_spent(run: Run) -> bool:
    """Whether a limit forbids another turn, or the run has been ended."""
    limits = run.config.limits
    if limits.max_turns is not None and run.record.turn >= limits.max_turns:
        run.ending.reach_limit("max_turns", limits.max_turns)
    elif limits.max_total_tokens is not None and run.record.usage.total_tokens >= limits.max_total_tokens:
        run.ending.reach_limit("max_total_tokens", limits.max_total_tokens)
    return run.ending.is_called


# --- a run from its first event to its last ---------------------------------------------------


def execute(run: Run, work: Callable[[], Awaitable[None]], *, in_own_task: bool = False) -> Awaitable[RunResult[Any]]:
    """Do the work of a run in its scope, settle whatever the end was, and say what it came to.

    A cancellation from outside and an error that is no tool's and not the model's leave as themselves, after
    settling. An abort and a limit are results. The run has a task of its own where ``Task.cancel()`` could break the
    shields of tools and providers; ``in_own_task`` says that the current task is that already.
    """
    body: Callable[[], Awaitable[RunResult[Any]]] = partial(_run_and_settle, run, work)
    if run.config.hooks.around_run:
        body = partial(_go_around, run, body)

    async def in_group(tasks: TaskGroup) -> RunResult[Any]:
        run.producer = Worker(tasks)
        try:
            return await body()
        finally:
            run.producer.close()
            run.producer = None

    return run_in_group(in_group) if in_own_task or not has_native_cancellation() else run_in_own_task(in_group)


async def _go_around(run: Run, body: Callable[[], Awaitable[RunResult[Any]]]) -> RunResult[Any]:
    """Run ``body`` inside the onions of ``around_run``.

    While they have the word, before the body and after it, an abort cancels them: nothing else of the run waits then.
    """
    result: RunResult[Any] | None = None
    ending = run.ending

    async def run_once() -> RunResult[Any]:
        nonlocal result
        ending.around = None
        try:
            result = await body()
        finally:
            result = result or run.result()
            ending.around = scope
        return result

    def known() -> RunResult[Any] | None:
        return result

    def accept(returned: Any) -> RunResult[Any]:
        if result is None:
            raise UsageError("around_run has to call proceed(): a run cannot be answered in its place")
        if not isinstance(returned, RunResult):
            raise TypeError(f"around_run returned {type(returned).__name__}; it returns a RunResult, or None")
        return cast("RunResult[Any]", returned)

    with anyio.CancelScope() as scope:
        ending.around = scope
        returned = await through(
            run.config.hooks.around_run,
            run_once,
            known=known,
            accept=accept,
            what="a run",
            ctx=run.context(),
            signal=ending.signal,
        )
        if returned is known():
            returned.usage = run.record.usage  # the onions may have added to it
        return returned
    if result is None:  # the run never began: nobody was told of it
        run.record.outcome = run.outcome_now()
        result = run.result()
    return result


async def _run_and_settle(run: Run, work: Callable[[], Awaitable[None]]) -> RunResult[Any]:
    ending, record = run.ending, run.record
    if run.config.limits.run_timeout is not None:
        ending.bound_run(run.config.limits.run_timeout)
    try:
        with ending.scope:
            record.start_agent()
            if run.cancelled_before:
                # If it has not hit yet, it does here, before anything is said to the model.
                await checkpoint()
            await record.outbox.flush()
            await work()
            if ending.may_end_in_peace:
                record.finish_agent(run.outcome_now())
                await record.outbox.flush()
    except BaseException as error:
        await settle(run, outcome_by(error))  # noqa: ASYNC102
        raise
    await settle(run, run.outcome_now())
    if ending.to_raise is not None:
        raise ending.to_raise
    await checkpoint_if_cancelled()  # as the end of a task group would
    return run.result()


# --- prompts, and a run without an agent -----------------------------------------------------


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
    options = stream_options or StreamOptions()
    config = AgentConfig(
        model=model,
        system_prompt=system_prompt,
        toolset=Toolset(tools),
        tool_choice=tool_choice,
        tool_execution=tool_execution,
        limits=limits or RunLimits(),
        reasoning=options.reasoning,
        settings=(options.settings,),
        on_payload=options.on_payload,
        on_response=options.on_response,
    )
    listeners = ListenerList()
    if emit is not None:
        listeners.subscribe(emit)
    said = as_messages(prompts)
    run = Run(config, messages, listeners)
    return await execute(run, lambda: run_loop(run, said, MessageQueue(), MessageQueue()))
