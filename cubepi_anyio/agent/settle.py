"""Complete the record of a run, however it ended: every call answered, every event closed, everything stored.

Settling cannot be cancelled, and has an end: the record is closed synchronously, and handing it on to the store and
to async listeners has ``settle_timeout`` seconds.
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
    run.phase = "settling"
    run.outbox.hold()
    run.finish_answer()
    run.finish_calls()
    if outcome != "suspended":
        run.give_up_suspended()
    run.finish_turn()
    run.finish_agent(outcome)
    if not run.outbox.drain_now() or run.on_settled is not None:
        with anyio.CancelScope(shield=True):
            await _drain(run)
    run.phase = "idle"


async def _drain(run: Run) -> None:
    seconds = run.config.limits.settle_timeout
    with anyio.move_on_after(seconds, shield=True) as scope:
        await run.outbox.drain()
    if scope.cancelled_caught:
        run.outbox.give_up()
        _log.warning("run %s: the store or a listener took longer than settle_timeout=%g s; given up", run.id, seconds)
    if run.on_settled is not None:
        with anyio.move_on_after(seconds, shield=True):
            await _give_back(run)


async def _give_back(run: Run) -> None:
    assert run.on_settled is not None
    try:
        await run.on_settled(run.outcome)
    except Exception:
        _log.exception("run %s could not give its thread back; the store frees it when the lease is over", run.id)
