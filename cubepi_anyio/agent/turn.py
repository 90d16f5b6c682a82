"""One turn: ask the model, run the calls of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import anyio

from ..concurrency import bare_error, native_cancel_counter
from ..hooks.chain import tool_hooks
from ..hooks.middleware import TurnAction
from ..tools.run.batch import run_parallel, run_sequential
from ..tools.run.call import BatchPlan, CallSlot
from ..tools.run.outcome import CallOutcome
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from .ask import ask
from .run import Run

__all__ = ("run_calls", "run_turn")


async def run_turn(run: Run, prompts: Sequence[Message]) -> bool:
    """Say ``prompts``, ask the model and run its calls; return whether the model has something to read now.

    A checkpoint. Cancelled, it leaves the turn open for settling.
    """
    run.start_turn(prompts)
    await run.outbox.flush()
    action = await ask(run)
    answer = run.answer
    if run.limit is not None or answer is None:
        return False
    _check_tokens(run, answer)
    calls = answer.tool_calls
    if calls:
        refusal = _refusal(run, answer, action)
        await run_calls(run, run.open_calls(calls), answer, refusal=refusal)
    wants_more = bool(calls) and not all(slot.outcome and slot.outcome.result.terminate for slot in run.slots)
    run.finish_calls()
    run.say_messages(action.inject_messages)
    hooks = run.config.hooks
    if wants_more and hooks.should_stop_after_turn is not None:
        stop = await hooks.should_stop_after_turn(answer, run.results, ctx=run.context(), signal=run.signal)
        wants_more = not stop
    run.finish_turn()
    await run.outbox.flush()
    return _goes_on(run, wants_more, action)


def _goes_on(run: Run, wants_more: bool, action: TurnAction) -> bool:
    if run.error is not None or run.requests or action.decision == "stop":
        return False
    return wants_more or action.decision == "loop_to_model" or bool(action.inject_messages)


def _check_tokens(run: Run, answer: AssistantMessage) -> None:
    bound = run.config.limits.max_total_tokens
    if bound is not None and run.usage.total_tokens >= bound and answer.tool_calls:
        run.reach_limit("max_total_tokens", bound)


def _refusal(run: Run, answer: AssistantMessage, action: TurnAction) -> str | None:
    """Why none of the calls of this answer may run, if so."""
    if answer.stop_reason in CUT_STOP_REASONS:
        cause = "was cut because it grew too long" if answer.stop_reason == "length" else "was not completed"
        return f"The call did not run: the message that made it {cause}."
    if action.decision in ("stop", "loop_to_model"):
        return "The call did not run: the application decided to go on without it."
    bound = run.config.limits.max_tool_calls
    if bound is not None and run.tool_calls + len(answer.tool_calls) > bound:
        run.reach_limit("max_tool_calls", bound)
    if run.limit is not None:
        return f"The call did not run: the run reached its limit {run.limit[0]}."
    return None


# --- running the calls -----------------------------------------------------------------------


async def run_calls(run: Run, slots: list[CallSlot], answer: AssistantMessage, *, refusal: str | None = None) -> None:
    """Run the calls of an answer, or answer all of them with ``refusal``; outcomes are left in ``slots``."""
    run.phase = "tools"
    if refusal is not None:
        for slot in slots:
            slot.outcome = CallOutcome.refused(slot.call, refusal)
    config = run.config
    plan = BatchPlan(
        tools=config.tools,
        hooks=tool_hooks(config.hooks, run.context, answer),
        reporter=run,
        run_id=run.id,
        run_signal=run.signal,
        messages=run.messages,
        tool_timeout=config.limits.tool_timeout,
        may_time_out=config.limits.tool_timeout is not None or any(tool.timeout for tool in config.tools.values()),
        scope_class=type(run.scope),
        cancel_requests=native_cancel_counter(),
        settle_timeout=config.limits.settle_timeout,
    )
    if _is_sequential(run, slots):
        batch = run_sequential(slots, plan)
    else:
        batch = run_parallel(slots, plan, max_parallel=config.limits.max_parallel_tools)
    await (_with_pump(run, batch) if run.outbox.is_slow else batch)
    run.phase = "between_turns"


def _is_sequential(run: Run, slots: list[CallSlot]) -> bool:
    if run.config.tool_execution == "sequential":
        return True
    tools = run.config.tools
    for slot in slots:
        tool = tools.get(slot.call.name)
        if tool is not None and tool.execution_mode == "sequential":
            return True
    return False


async def _with_pump(run: Run, batch: Awaitable[None]) -> None:
    """Run a batch, and beside it a group that hands on events from code that does not wait for it."""
    try:
        async with anyio.create_task_group() as tasks:
            run.pump = tasks
            await batch
    except BaseExceptionGroup as group:
        error = bare_error(group)
    else:
        return
    finally:
        run.pump = None
    raise error
