"""One turn: ask the model, run the calls of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ..concurrency import bare_error
from ..errors import ProviderError
from ..providers.base import StreamOptions
from ..stream.message_stream import MessageStream
from ..tools.batch import run_parallel, run_sequential
from ..tools.call import BatchPlan, CallSlot
from ..tools.outcome import CallOutcome
from ..types.messages import AssistantMessage, Message
from .run import Run

__all__ = ("run_turn",)

_CUT = ("length", "error", "aborted")
"""Stop reasons after which the calls of a message may be incomplete, and none of them runs."""


async def run_turn(run: Run, prompts: list[Message]) -> bool:
    """Say ``prompts``, ask the model and run its calls; return whether the model has results to read now.

    A checkpoint. Cancelled, it leaves the turn open for settling.
    """
    run.start_turn(prompts)
    await run.outbox.flush()
    answer = await _ask(run)
    if run.limit is not None:
        return False
    calls = answer.tool_calls
    if calls:
        await _run_calls(run, run.open_calls(calls), answer)
    wants_more = bool(calls) and not all(slot.outcome and slot.outcome.result.terminate for slot in run.slots)
    run.finish_calls()
    run.finish_turn()
    await run.outbox.flush()
    return wants_more and run.error is None


# --- asking the model ------------------------------------------------------------------------


async def _ask(run: Run) -> AssistantMessage:
    run.phase = "waiting"
    asked_at = anyio.current_time()
    stream = await _open_stream(run)
    run.open_answer(stream)
    async with stream:
        if run.limit is None:
            await _relay(run, stream, asked_at)
        answer = await stream.result() if run.limit is None else None
    if answer is not None and answer.stop_reason in ("error", "aborted"):
        run.error = stream.error or ProviderError(
            answer.error_message or "the model gave no reason", provider=answer.provider_id, model=answer.model_id
        )
    run.finish_answer(answer if answer is None or answer.stop_reason not in _CUT else _without_cut_calls(answer))
    await run.outbox.flush()
    assert run.answer is not None
    _check_tokens(run)
    return run.answer


async def _open_stream(run: Run) -> MessageStream:
    """Ask the provider for its stream; a provider that raises instead is a stream that fails at once."""
    seconds = run.config.limits.first_token_timeout
    with anyio.move_on_after(seconds):
        return await _call_provider(run)
    run.reach_limit("first_token_timeout", seconds or 0)
    return MessageStream()


async def _call_provider(run: Run) -> MessageStream:
    config = run.config
    options = StreamOptions(
        signal=run.signal,
        on_payload=config.on_payload,
        on_response=config.on_response,
        reasoning=config.reasoning,
    )
    try:
        stream: Any = await config.model.stream(
            list(run.messages),
            system_prompt=config.system_prompt,
            tools=config.definitions,
            tool_choice=config.tool_choice,
            options=options,
        )
        if not isinstance(stream, MessageStream):
            raise TypeError(f"a provider's stream() returns a MessageStream, not {type(stream).__name__}")
        return stream
    except Exception as error:
        stream = MessageStream()
        stream.fail(error)
        return stream


def _without_cut_calls(answer: AssistantMessage) -> AssistantMessage:
    """A message that was cut, without the calls whose arguments are incomplete."""
    content = [block for block in answer.content if block.type != "tool_call" or block.invalid_arguments is None]
    return answer if len(content) == len(answer.content) else answer.model_copy(update={"content": content})


async def _relay(run: Run, stream: MessageStream, asked_at: float) -> None:
    """Read the stream to its terminal event, announcing each; stop when it is silent for too long."""
    outbox = run.outbox
    limit, bound = "first_token_timeout", run.config.limits.first_token_timeout
    seconds = bound
    while True:
        # Only a wait has a deadline: setting one costs more than taking an event that is there.
        if seconds is None or stream.is_readable:
            event = await anext(stream)
        else:
            event = None
            with anyio.move_on_after(seconds):
                event = await anext(stream)
            if event is None:
                run.reach_limit(limit, bound or 0)
                return
        if event.is_terminal:
            return
        if limit != "idle_timeout":
            if event.type != "start":
                limit, bound = "idle_timeout", run.config.limits.idle_timeout
                run.phase, seconds = "streaming", bound
            elif bound is not None:
                # The head of an answer is no token: the time goes on from when the model was asked.
                seconds = max(asked_at + bound - anyio.current_time(), 0)
        run.relay(event)
        if outbox.waiting:
            await outbox.flush()


def _check_tokens(run: Run) -> None:
    bound = run.config.limits.max_total_tokens
    if bound is not None and run.usage.total_tokens >= bound and run.answer is not None and run.answer.tool_calls:
        run.reach_limit("max_total_tokens", bound)


# --- running the calls -----------------------------------------------------------------------


async def _run_calls(run: Run, slots: list[CallSlot], answer: AssistantMessage) -> None:
    run.phase = "tools"
    refusal = _refusal(run, answer)
    if refusal is not None:
        for slot in slots:
            slot.outcome = CallOutcome.refused(slot.call, refusal)
    config = run.config
    plan = BatchPlan(
        tools=config.tools,
        hooks=config.tool_hooks,
        reporter=run,
        run_id=run.id,
        run_signal=run.signal,
        messages=run.messages,
        tool_timeout=config.limits.tool_timeout,
        settle_timeout=config.limits.settle_timeout,
    )
    if _is_sequential(run, slots):
        await _with_pump(run, lambda: run_sequential(slots, plan))
    else:
        bound = config.limits.max_parallel_tools
        await _with_pump(run, lambda: run_parallel(slots, plan, max_parallel=bound))
    run.phase = "between_turns"


def _refusal(run: Run, answer: AssistantMessage) -> str | None:
    """Why none of the calls of this answer may run, if so."""
    if answer.stop_reason in _CUT:
        cause = "was cut because it grew too long" if answer.stop_reason == "length" else "was not completed"
        return f"The call did not run: the message that made it {cause}."
    bound = run.config.limits.max_tool_calls
    if bound is not None and run.tool_calls > bound:
        run.reach_limit("max_tool_calls", bound)
    if run.limit is not None:
        return f"The call did not run: the run reached its limit {run.limit[0]}."
    return None


def _is_sequential(run: Run, slots: list[CallSlot]) -> bool:
    if run.config.tool_execution == "sequential":
        return True
    tools = run.config.tools
    return any(
        tool is not None and tool.execution_mode == "sequential" for tool in (tools.get(s.call.name) for s in slots)
    )


async def _with_pump(run: Run, batch: Callable[[], Awaitable[None]]) -> None:
    """Run a batch; where handing events on takes waiting, beside it a group for those from code that does not wait."""
    if not run.outbox.is_slow:
        await batch()
        return
    try:
        async with anyio.create_task_group() as tasks:
            run.pump = tasks
            await batch()
    except BaseExceptionGroup as group:
        error = bare_error(group)
    else:
        return
    finally:
        run.pump = None
    raise error
