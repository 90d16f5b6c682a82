"""Go on with a batch of which some calls waited for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import NothingToResume
from ..tools.run.outcome import CallOutcome
from ..types.content import ToolCall
from ..types.messages import AssistantMessage, Message, ToolResultMessage
from .run import Run
from .turn import run_calls

if TYPE_CHECKING:
    from ..types.hitl import PersonRequest

__all__ = ("finish_batch", "unanswered_calls")


def unanswered_calls(messages: list[Message]) -> tuple[AssistantMessage, list[ToolCall]]:
    """The last message that made calls, and those of its calls that have no result. Raises ``NothingToResume``."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            missing = [call for call in message.tool_calls if call.id not in answered]
            if missing:
                return message, missing
            break
    raise NothingToResume("every call has its result")


async def finish_batch(run: Run, waiting: Sequence[PersonRequest], *, refusal: str | None = None) -> None:
    """Run the calls of the last batch that need not wait any longer, or answer them with ``refusal``.

    ``waiting`` are the questions that nobody has answered in time; their calls stay suspended. The results stand in the
    order of the calls afterwards. A checkpoint; cancelled, it leaves the turn open for settling.
    """
    answer, missing = unanswered_calls(run.messages)
    run.start_turn([])
    run.answer = answer
    slots = run.open_calls(missing)
    questions = {request.tool_call_id: request for request in waiting}
    for slot in slots:
        request = questions.get(slot.call.id)
        if request is not None:
            run.hold_back(slot, request)
        elif refusal is not None:
            slot.outcome = CallOutcome.refused(slot.call, refusal)
    await run_calls(run, slots, answer)
    run.finish_calls()
    run.finish_turn()
    await run.outbox.flush()
