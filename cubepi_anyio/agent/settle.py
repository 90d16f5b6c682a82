"""Complete the record of a run, however it ended: every call answered, every event closed, everything stored.

::

    hold               nobody is told any more while the record is being closed
    finish_answer      what had come of the model's message
    finish             the calls: an outcome for each, results in order
    finish_turn        turn_end, with the thread's notes
    finish_agent       agent_end
    ------------------ up to here without waiting; from here shielded, at most settle_timeout for each
    drain              store and announce the rest, whatever fails
    on_settled         give the thread back

Settling cannot be cancelled, and has an end.
"""

from __future__ import annotations

import logging

import anyio

from ..types.run import RunOutcome
from .run import Run

__all__ = ("settle",)

_log = logging.getLogger(__name__)


async def settle(run: Run, outcome: RunOutcome) -> None:
    """Close what the run left open and hand it on. Returns early where nothing is open.

    Raises nothing of the listeners' or the store's (it is logged), only a cancellation that arrives meanwhile, and
    that when all is done.
    """
    record, calls, ending = run.record, run.calls, run.ending
    run.phase = "settling"
    ending.is_settling = True
    record.outbox.hold()
    record.finish_answer(None, asked=run.config.model.spec, why_cut=ending.why())
    calls.finish(record.answer)
    if outcome != "suspended":
        calls.give_up_suspended(record.answer)
    record.finish_turn()
    record.finish_agent(outcome)
    if not record.outbox.drain_now() or run.on_settled is not None:
        with anyio.CancelScope(shield=True):
            await _hand_on(run)
    run.phase = "idle"


async def _hand_on(run: Run) -> None:
    seconds, outbox = run.config.limits.settle_timeout, run.record.outbox
    with anyio.move_on_after(seconds, shield=True) as scope:
        await outbox.drain()
    if scope.cancelled_caught:
        outbox.give_up()
        _log.warning("run %s: the store or a listener took longer than settle_timeout=%g s; given up", run.id, seconds)
    if run.on_settled is not None:
        with anyio.move_on_after(seconds, shield=True):
            try:
                await run.on_settled(run.record.outcome)
            except Exception:
                _log.exception(
                    "run %s could not give its thread back; the store frees it when the lease is over", run.id
                )
