"""Go on with a batch of which some calls waited for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import NothingToResume
from ..tools.run.outcome import CallOutcome
from ..types.transcript import open_batch
from .run import Run
from .turn import find_tools, run_calls

if TYPE_CHECKING:
    from ..types.hitl import PersonRequest

__all__ = ("finish_batch",)


async def finish_batch(run: Run, waiting: Sequence[PersonRequest], *, refusal: str | None = None) -> None:
    """Run the calls of the last batch that need not wait any longer, or answer them with ``refusal``.

    ``waiting`` are the questions that nobody has answered in time; their calls stay suspended. The results stand in the
    order of the calls afterwards. A checkpoint; cancelled, it leaves the turn open for settling.
    """
    batch = open_batch(run.record.messages)
    if batch is None:
        raise NothingToResume("every call has its result")
    run.record.start_turn(())
    run.calls.begin_turn()
    run.record.answer = batch.message
    slots = run.calls.open(batch.unanswered, is_rest=True)
    questions = {request.tool_call_id: request for request in waiting}
    for slot in slots:
        request = questions.get(slot.call.id)
        if request is not None:
            run.calls.hold_back(slot, request)
        elif refusal is not None:
            slot.outcome = CallOutcome.refused(slot.call, refusal)
    await find_tools(run)
    await run_calls(run, slots, batch.message)
    run.calls.finish(batch.message)
    run.record.finish_turn()
    await run.record.outbox.flush()
