"""The calls of one run: which are open, and how each is closed.

A batch tells here how its calls go (it knows this as its ``BatchReporter``). A call passes through four moments, each
written down synchronously, and none of them twice::

    announced    tool_execution_start was said           calls_started
    closed       its result is kept for the store,
                 tool_execution_end was said             call_ended, or call_interrupted where the run is cancelled
    answered     its result stands in the transcript     in the order of the calls, as far as all before it are closed
    over         the batch is closed                     finish

A result is kept for the store when its call is closed, not when the slowest one is; it enters the transcript in the
order of the calls. A call that waits for a person is closed without a result.

What would break: closing a call in two places, or between two awaits. A cancellation would leave a call without a
result, or with two, and vendors refuse either.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from ..concurrency import NOTHING_TO_AWAIT, Deferred, bare_error
from ..events.agent import (
    AgentEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from ..tools.run.call import CallSlot
from ..tools.run.outcome import CallOutcome
from ..types.content import ToolCall
from ..types.messages import AssistantMessage, ToolResultMessage
from ..types.transcript import in_call_order
from .ending import Ending
from .record import Record
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ..types.hitl import PersonRequest

__all__ = ("Calls",)


class Calls:
    """The open batch of a run, and the calls of the run that wait for a person."""

    __slots__ = (
        "_answered",
        "_beside",
        "_ending",
        "_is_rest",
        "_record",
        "_settle_timeout",
        "_suspended",
        "_was_opened",
        "_watchdog",
        "count",
        "slots",
    )

    def __init__(self, record: Record, ending: Ending, *, settle_timeout: float) -> None:
        self._record = record
        self._ending = ending
        self._settle_timeout = settle_timeout
        self.slots: list[CallSlot] = []
        """The calls of the open batch, in their order; empty between batches."""
        self.count: int = 0
        """How many calls the run has made."""
        self._is_rest = False
        self._was_opened = False
        """Whether the calls of this turn's answer have been opened, to be closed once and no more."""
        self._answered = 0
        """How many calls of the batch, from the first on, have their result in the transcript."""
        self._suspended: tuple[CallSlot, ...] = ()
        self._beside: TaskGroup | None = None
        """Where events are handed on that come from code that does not wait for it."""
        self._watchdog: Watchdog | None = None

    @property
    def requests(self) -> list[PersonRequest]:
        """The questions that calls of this run wait for."""
        return [slot.outcome.request for slot in self._suspended if slot.outcome and slot.outcome.request]

    # --- a batch -----------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """A turn begins; the calls of its answer are not open yet."""
        self._was_opened = False

    def open(self, calls: Sequence[ToolCall], *, is_rest: bool = False) -> list[CallSlot]:
        """Begin the batch of these calls; ``is_rest``: other calls of their message have results from another run."""
        self._is_rest = is_rest
        self._ending.signal.follow(self._all_cancelled)
        self._was_opened = True
        self.slots = [CallSlot(call) for call in calls]
        self.count += len(calls)
        self._answered = 0
        return self.slots

    async def run(self, batch: Awaitable[None]) -> None:
        """Run a batch; where listeners have to be waited for, beside a group that hands on what nobody waits for."""
        if not self._record.outbox.is_slow:
            await batch
            return
        try:
            async with anyio.create_task_group() as self._beside:
                await batch
        except BaseExceptionGroup as group:
            error = bare_error(group)
        else:
            return
        finally:
            self._beside = None
        raise error

    def finish(self, answer: AssistantMessage | None) -> None:
        """Close the batch: calls without an outcome were cancelled, and every result enters the transcript in order.

        ``answer`` is the model's message of this turn: calls of it that were never begun are closed as well.
        """
        if answer is not None and not self._was_opened:
            self.open(answer.tool_calls)
        for slot in self.slots:
            if not slot.closed:
                self._close_interrupted(slot)
        self._answer()
        if answer is not None and self._is_rest:
            self._order_results(answer)
        self.slots = []
        self._ending.signal.unfollow(self._all_cancelled)
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None

    # --- what a batch reports ----------------------------------------------------------------

    async def calls_started(self, slots: Sequence[CallSlot]) -> None:
        """Say ``tool_execution_start`` of each."""
        for slot in slots:
            if not slot.announced:
                self._announce(slot)
        await self._record.outbox.flush()

    def call_updated(self, slot: CallSlot, partial_result: object) -> Awaitable[None]:
        """Say ``tool_execution_update``. The event is on its way at once; awaiting waits until all have heard it."""
        if not self._record.is_heard:
            return NOTHING_TO_AWAIT
        call = slot.call
        return self.emit(ToolExecutionUpdateEvent(call.id, call.name, call.arguments, partial_result))

    def emit(self, event: AgentEvent) -> Awaitable[None]:
        """Say an event from code that is not the run's own. It is on its way at once; awaiting waits until it is heard.

        A listener's bug is not that code's: it ends the run, and the code is cancelled like the others.
        """
        outbox = self._record.outbox
        try:
            outbox.say(event)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self._ending.fail(error)
        if not outbox.waiting:
            return NOTHING_TO_AWAIT
        if self._beside is not None:
            self._beside.start_soon(self._hand_on)
        return Deferred(self._hand_on)

    async def _hand_on(self) -> None:
        """Hand on what is waiting, where a listener's error is not to be raised: it ends the run. A checkpoint."""
        try:
            await self._record.outbox.flush()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self._ending.fail(error)
            await checkpoint_if_cancelled()

    def call_cancelled(self, slot: CallSlot, *, alone: bool) -> None:
        """Watch over the calls that are being cancelled: what is not over in time is named in a warning."""
        if not alone:
            # By what is around the run: the others need not find out for themselves.
            self._ending.surroundings_cancelled()
            self._all_cancelled(None)
        self._watch([slot])

    def outcome_of_interrupted(self, slot: CallSlot) -> CallOutcome:
        """How a call ended that was cancelled with what is around it, before it had come to anything."""
        if slot.aborted:
            return CallOutcome.aborted(slot.call, slot.abort_reason)
        return CallOutcome.cancelled(slot.call, self._ending.why(), started=slot.started)

    def call_interrupted(self, slot: CallSlot) -> None:
        """Close a call that ended because the run is cancelled, at the moment it ended."""
        try:
            self._close_interrupted(slot)
        except Exception as error:
            self._ending.fail(error)

    def call_ended(self, slot: CallSlot) -> Awaitable[None] | None:
        """Store the result, then say ``tool_execution_end``."""
        self._close(slot)
        outbox = self._record.outbox
        return outbox.flush() if outbox.waiting else None

    async def call_answered(self, slot: CallSlot) -> None:
        """In a sequential batch: put the result into the transcript before the next call begins."""
        self._answer()
        await self._record.outbox.flush()

    # --- the moments of a call ---------------------------------------------------------------

    def _announce(self, slot: CallSlot) -> None:
        slot.announced = True
        if self._record.is_heard:
            self._record.outbox.say(ToolExecutionStartEvent(slot.call.id, slot.call.name, slot.call.arguments))

    def _close_interrupted(self, slot: CallSlot) -> None:
        if slot.outcome is None:
            slot.outcome = self.outcome_of_interrupted(slot)
        self._close(slot)

    def _close(self, slot: CallSlot) -> None:
        outcome, record = slot.outcome, self._record
        assert outcome is not None
        if slot.closed:
            return
        slot.closed = True
        if not slot.announced:
            self._announce(slot)
        if outcome.request is not None:
            self._suspended += (slot,)
        else:
            self._keep_result(slot, outcome)
        if record.is_heard:
            record.outbox.say(
                ToolExecutionEndEvent(
                    slot.call.id,
                    slot.call.name,
                    outcome.result,
                    outcome.is_error,
                    outcome.result.terminate,
                    str(outcome.ending),
                    outcome.block_reason is not None,
                    outcome.block_reason,
                )
            )

    def _keep_result(self, slot: CallSlot, outcome: CallOutcome) -> ToolResultMessage:
        record = self._record
        slot.answer = outcome.message(id=record.new_id(), timestamp=time.time(), run_id=record.run_id)
        record.outbox.keep(slot.answer)
        return slot.answer

    def _answer(self) -> None:
        """Put results into the transcript, in the order of the calls, as far as all before them are closed."""
        while self._answered < len(self.slots):
            slot = self.slots[self._answered]
            if not slot.closed:
                return
            self._answered += 1
            if slot.answer is not None:  # otherwise it is suspended: its result comes in a later run
                self._say_result(slot.answer)

    def _say_result(self, result: ToolResultMessage) -> None:
        record = self._record
        record.results.append(result)
        record.messages.append(result)
        record.new_messages.append(result)
        if record.is_heard:
            record.outbox.say_all((MessageStartEvent(result), MessageEndEvent(result)))

    # --- calls that wait for a person --------------------------------------------------------

    def hold_back(self, slot: CallSlot, request: PersonRequest) -> None:
        """A call of a resumed batch that still waits: nothing is said of it in this run."""
        slot.outcome = CallOutcome.suspended(slot.call, request)
        slot.announced = slot.closed = True
        self._suspended += (slot,)

    def give_up_suspended(self, answer: AssistantMessage | None) -> None:
        """The run does not end suspended after all: the calls that wait are answered as cancelled."""
        if not self._suspended:
            return
        for slot in self._suspended:
            outcome = CallOutcome.cancelled(slot.call, self._ending.why(), started=False)
            self._say_result(self._keep_result(slot, outcome))
        self._suspended = ()
        if answer is not None:
            self._order_results(answer)

    def _order_results(self, answer: AssistantMessage) -> None:
        """Let the results of the last answer stand in the order of its calls: some may have come in another run."""
        messages = self._record.messages
        begin = len(messages)
        while begin and isinstance(messages[begin - 1], ToolResultMessage):
            begin -= 1
        results = [message for message in messages[begin:] if isinstance(message, ToolResultMessage)]
        messages[begin:] = in_call_order(answer, results)

    # --- calls that are cancelled ------------------------------------------------------------

    def _all_cancelled(self, reason: str | None) -> None:
        """The run is ended: a tool that shields itself does not notice, but its time runs from now."""
        self._watch([slot for slot in self.slots if slot.goes_on])

    def _watch(self, slots: Sequence[CallSlot]) -> None:
        new = [slot for slot in slots if slot.cancelled_at is None]
        if not new:
            return
        now = anyio.current_time()
        for slot in new:
            slot.cancelled_at = now
        if self._watchdog is None:
            self._watchdog = Watchdog(self._record.run_id, self._settle_timeout)
        self._watchdog.watch(new)
