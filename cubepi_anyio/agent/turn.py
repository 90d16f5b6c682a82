"""One turn: say what is waiting, ask the model, run the calls of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from anyio.lowlevel import checkpoint_if_cancelled

from ..hooks.chain import tool_hooks
from ..hooks.middleware import TurnAction
from ..tools.run.batch import run_parallel, run_sequential
from ..tools.run.call import BatchPlan, CallSlot
from ..tools.run.outcome import CallOutcome
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from .ask_model import ask_model
from .run import Run
from .toolset import toolset_of_turn

__all__ = ("find_tools", "run_calls", "run_turn")


async def find_tools(run: Run) -> None:
    """Find out which tools the turn that begins has. A checkpoint if anybody has to be asked and waited for."""
    if run.config.toolset is None:
        run.toolset = await toolset_of_turn(run.config.tool_sources, run.context())


async def run_turn(run: Run, prompts: Sequence[Message]) -> bool:
    """Say ``prompts``, ask the model and run its calls; return whether the model has something to read now.

    A checkpoint. Cancelled, it leaves the turn open for settling.
    """
    record, calls, hooks = run.record, run.calls, run.config.hooks
    record.start_turn(prompts)
    calls.begin_turn()
    await record.outbox.flush()
    await find_tools(run)
    action = await ask_model(run)
    answer = record.answer
    if answer is None or run.ending.limit is not None:
        return False
    wants_more = False
    if asked_for := answer.tool_calls:
        if run.ending.is_called:
            await checkpoint_if_cancelled()  # whoever heard the answer has ended the run: no call of it begins
        slots = calls.open(asked_for)
        await run_calls(run, slots, answer, refusal=_refusal(run, answer, action))
        wants_more = not all(slot.outcome and slot.outcome.result.terminate for slot in slots)
    calls.finish(answer)
    if calls.requests:
        # Nothing may stand behind a batch of which a call is still open: whoever loads it would take it for lost.
        run.put_off = [*run.put_off, *action.inject_messages]
    else:
        record.say_messages(action.inject_messages)
    if wants_more and hooks.should_stop_after_turn is not None:
        ctx, signal = run.context(), run.ending.signal
        wants_more = not await hooks.should_stop_after_turn(answer, record.results, ctx=ctx, signal=signal)
    record.finish_turn()
    await record.outbox.flush()
    if run.must_stop or action.decision == "stop":
        return False
    return wants_more or action.decision == "loop_to_model" or bool(action.inject_messages)


def _refusal(run: Run, answer: AssistantMessage, action: TurnAction) -> str | None:
    """Why none of the calls of this answer may run, if so."""
    limits, ending = run.config.limits, run.ending
    if answer.stop_reason in CUT_STOP_REASONS:
        cause = "was cut because it grew too long" if answer.stop_reason == "length" else "was not completed"
        return f"The call did not run: the message that made it {cause}."
    if action.decision in ("stop", "loop_to_model"):
        return "The call did not run: the application decided to go on without it."
    if limits.max_total_tokens is not None and run.record.usage.total_tokens >= limits.max_total_tokens:
        ending.reach_limit("max_total_tokens", limits.max_total_tokens)
    if limits.max_tool_calls is not None and run.calls.count > limits.max_tool_calls:
        ending.reach_limit("max_tool_calls", limits.max_tool_calls)
    return f"The call did not run: {ending.why()}." if ending.limit is not None else None


async def run_calls(run: Run, slots: list[CallSlot], answer: AssistantMessage, *, refusal: str | None = None) -> None:
    """Run the calls of an answer, or answer all of them with ``refusal``; outcomes are left in ``slots``.

    One call of a tool that is sequential makes the whole batch sequential.
    """
    run.phase = "tools"
    if refusal is not None:
        for slot in slots:
            slot.outcome = CallOutcome.refused(slot.call, refusal)
    limits, tools = run.config.limits, run.toolset.by_name
    plan = BatchPlan(
        tools=tools,
        hooks=tool_hooks(run.config.hooks, answer),
        reporter=run.calls,
        run=run,
        signal=run.ending.signal,
        tool_timeout=limits.tool_timeout,
        cancel_requests=run.cancel_requests,
        settle_timeout=limits.settle_timeout,
    )
    called = (tools.get(slot.call.name) for slot in slots)
    if run.config.tool_execution == "sequential" or any(
        tool is not None and tool.execution_mode == "sequential" for tool in called
    ):
        await run.calls.run(run_sequential(slots, plan))
    else:
        await run.calls.run(run_parallel(slots, plan, max_parallel=limits.max_parallel_tools))
    run.phase = "between_turns"
