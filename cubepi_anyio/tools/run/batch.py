"""All calls of one message: at the same time in one task group, or one after the other.

::

    slots   [ a  b  c  d ]        each slot belongs to one call; its outcome is written there and nowhere else
              │  │  │  │
    tasks     └──┴──┼──┘          max_parallel=2: two workers take the next slot each, until none waits
                    ▼
    after     [ a✓ b✗ c·  d· ]    cancelled: a had ended and keeps its outcome, b was running, c and d never began

The invariants:

* *Outcomes stand in the slots, not in what functions return.* Whoever owns the batch answers every slot, also when it
  is cancelled here. A task group that raises returns nothing, and what had ended would be lost.
* *A failing call is an outcome, not an error.* ``run_call`` raises only what is not the tool's doing: a hook's error,
  a listener's, a store's. That cancels the rest, because nobody could be told of their results.
* *The bound is a number of workers.* A task for each call, waiting for its turn at a semaphore, would be a task to
  cancel, and would look begun.
* *The tasks are not* ``counted``: the run's own task is cancelled by scopes alone (``run_in_own_task``), so nobody asks
  for its count of native cancellations.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        waiting = iter(slots)  # shared: each worker takes the next slot that no other has taken

        async def work() -> None:
            for slot in waiting:
                await run_call(slot, plan)

        await run_in_tasks([work] * max_parallel, name="tool calls", counted=False)


async def run_sequential(slots: Sequence[CallSlot], plan: BatchPlan) -> None:
    """Run the calls one after the other, in their order, each with all its events."""
    for slot in slots:
        await plan.reporter.calls_started((slot,))
        await run_call(slot, plan)
        await plan.reporter.call_answered(slot)
