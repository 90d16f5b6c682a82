"""All calls of one message: at the same time in one task group, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...concurrency import run_in_tasks
from .call import BatchPlan, CallSlot, run_call

__all__ = ("run_parallel", "run_sequential")


async def run_parallel(slots: Sequence[CallSlot], plan: BatchPlan, *, max_parallel: int | None) -> None:
    """Run all calls at once, at most ``max_parallel`` of them at a time; each outcome is left in its slot.

    A failing call leaves the others alone. When the surroundings are cancelled, calls that had ended keep their
    outcome, running ones are cancelled and waited for, waiting ones never begin. An error that is not a tool's (a
    hook's, a listener's, a store's) cancels the rest of the batch and leaves as itself.
    """
    await plan.reporter.calls_started(slots)
    if len(slots) == 1:
        await run_call(slots[0], plan)
    elif max_parallel is None or max_parallel >= len(slots):
        calls = (partial(run_call, slot, plan) for slot in slots)
        await run_in_tasks(calls, name="tool call", counted=False)
    else:
        waiting = iter(slots)
        workers = (partial(_work_off, waiting, plan) for _ in range(max_parallel))
        await run_in_tasks(workers, name="tool calls", counted=False)


async def _work_off(waiting: Iterator[CallSlot], plan: BatchPlan) -> None:
    """Run calls until none waits. A fixed number of workers is the bound: a waiting call has no task to cancel."""
    for slot in waiting:
        await run_call(slot, plan)


async def run_sequential(slots: Sequence[CallSlot], plan: BatchPlan) -> None:
    """Run the calls one after the other, in their order, each with all its events."""
    for slot in slots:
        await plan.reporter.calls_started((slot,))
        await run_call(slot, plan)
        await plan.reporter.call_answered(slot)
