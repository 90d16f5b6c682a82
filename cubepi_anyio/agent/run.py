"""The record of one run: what was said and what is still open.

Every step is written down synchronously: the transcript, the events, what the store has to keep. The ``finish_*``
methods close what is open and do nothing where nothing is; a run that goes well calls them one after the other,
and settling calls all of them, so that every ending leaves the same shape.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar
from uuid import uuid4

from anyio import CancelScope, current_time
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from ..concurrency import DONE, AbortSource, Deferred, native_cancel_requests
from ..events.agent import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RunOutcome,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from ..events.stream import StreamEvent
from ..hooks.middleware import AgentContext
from ..stream.message_stream import MessageStream
from ..tools.run.call import CallSlot
from ..tools.run.outcome import CallOutcome
from ..types.content import ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.usage import Usage
from .config import AgentConfig
from .outbox import ListenerList, MessageStore, Outbox
from .result import RunResult
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ..types.hitl import PersonRequest

__all__ = ("Run", "RunPhase")

_AnyMessage = TypeVar("_AnyMessage", bound=UserMessage | AssistantMessage | ToolResultMessage)

RunPhase = Literal["idle", "loading", "waiting", "streaming", "tools", "between_turns", "settling"]
"""What a run is doing: reading the thread, waiting for the first token, receiving, running tools, and so on."""


class Run:
    """One run of an agent, from its first event to its last."""

    __slots__ = (
        "_agent_open",
        "_answer_open",
        "_answer_started",
        "_answered",
        "_calls_open",
        "_id_prefix",
        "_ids",
        "_last_said",
        "_results",
        "_suspended",
        "_turn_open",
        "_watchdog",
        "abort_reason",
        "aborted",
        "answer",
        "cancelled_before",
        "config",
        "deadlines",
        "error",
        "extra",
        "fatal",
        "id",
        "limit",
        "listeners",
        "messages",
        "new_messages",
        "on_settled",
        "outbox",
        "outcome",
        "phase",
        "pump",
        "scope",
        "signal",
        "slots",
        "stream",
        "tool_calls",
        "turn",
        "usage",
    )

    def __init__(
        self,
        config: AgentConfig,
        messages: list[Message],
        listeners: ListenerList,
        *,
        run_id: str | None = None,
        store: MessageStore | None = None,
        extra: JsonObject | None = None,
    ) -> None:
        self.id: str = run_id or uuid4().hex
        # A caller may give the same run id twice; message ids are unique all the same.
        self._id_prefix = uuid4().hex if run_id else self.id
        self.config: AgentConfig = config
        self.messages: list[Message] = messages
        """The transcript. The run appends to it and never changes what is there."""
        self.new_messages: list[Message] = []
        """What the run has added to the transcript."""
        self.signal: AbortSource = AbortSource()
        self.scope: CancelScope = CancelScope()
        self.listeners: ListenerList = listeners
        self.outbox: Outbox = Outbox(listeners, self.signal, store)
        self.phase: RunPhase = "loading"
        self.outcome: RunOutcome = "completed"
        self.aborted: bool = False
        self.abort_reason: str | None = None
        self.limit: tuple[str, float] | None = None
        self.deadlines: dict[str, tuple[CancelScope, float]] = {}
        """The scopes whose deadline ends the run, by the name of their limit, with its seconds."""
        self.error: Exception | None = None
        """The model's error that ended the run."""
        self.fatal: BaseException | None = None
        """An error, not a tool's and not the model's, that was noticed where it could not be raised."""
        self.usage: Usage = Usage()
        self.turn: int = 0
        self.tool_calls: int = 0
        self.extra: JsonObject = extra if extra is not None else {}
        """The thread's own notes; hooks may change them."""
        self.on_settled: Callable[[RunOutcome], Awaitable[None]] | None = None
        """Called when everything is stored and announced, or given up: gives the thread back."""

        self.cancelled_before: bool = native_cancel_requests() > 0
        """Whether the task that begins the run has been cancelled by ``Task.cancel()``, perhaps long ago."""

        self.stream: MessageStream | None = None
        self.slots: list[CallSlot] = []
        self.pump: TaskGroup | None = None
        """Where events are handed on that come from code that does not wait."""
        self._agent_open = False
        self._turn_open = False
        self._answer_started = False
        self._answer_open = False
        self._calls_open = False
        self.answer: AssistantMessage | None = None
        self._last_said: AssistantMessage | None = None
        """The model's last message in the transcript that is of this run."""
        self._results: list[ToolResultMessage] = []
        self._answered = 0
        self._suspended: tuple[CallSlot, ...] = ()
        """The calls that wait for a person."""
        self._ids = 0
        self._watchdog: Watchdog | None = None

    # --- ending it ---------------------------------------------------------------------------

    def abort(self, reason: str | None) -> None:
        """End the run from outside: whatever it waits for is cancelled, and the signal is set."""
        if self.aborted or self.phase in ("settling", "idle"):
            return
        self.aborted, self.abort_reason = True, reason
        self._set_signals(reason)
        self.scope.cancel()
        self._note_cancelled(self.slots)

    def fail(self, error: BaseException) -> None:
        """End the run because of an error that cannot be raised where it was noticed."""
        if self.fatal is None:
            self.fatal = error
        self._set_signals("the run failed")
        self.scope.cancel()

    def reach_limit(self, name: str, bound: float) -> None:
        """Note which limit ends the run; the first one counts."""
        if self.limit is None:
            self.limit = (name, bound)
            self._set_signals(f"the run reached {name}={bound:g}")

    def _set_signals(self, reason: str | None) -> None:
        self.signal.set(reason)
        for slot in self.slots:
            if slot.signal is not None:
                slot.signal.set(reason)

    def why_ended(self) -> str | None:
        """Why calls of this run were cancelled, for the model to read."""
        if not self.aborted and self.fatal is None:
            for name, (scope, seconds) in self.deadlines.items():
                if scope.cancel_called:
                    self.reach_limit(name, seconds)
        if self.limit is not None:
            return f"the run reached its limit {self.limit[0]}"
        if self.aborted:
            return f"the run was aborted{f' ({self.abort_reason})' if self.abort_reason else ''}"
        return None

    # --- the run and its turns ---------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether ``agent_start`` was said and ``agent_end`` was not."""
        return self._agent_open

    def start_agent(self) -> None:
        """Say ``agent_start``."""
        self._agent_open = True
        if self.listeners.subscriptions:
            self.outbox.say(AgentStartEvent(self.id))

    def start_turn(self, prompts: Sequence[Message]) -> None:
        """Begin a turn with what is said to the model; all of it is in the transcript before anybody hears of it."""
        self.turn += 1
        self._turn_open = True
        self.answer = None
        self._results = []
        self._calls_open = False
        events: list[AgentEvent] = [TurnStartEvent(self.turn)]
        for prompt in prompts:
            message = self._stamp(prompt)
            self._add(message)
            self.outbox.keep(message)
            events += (MessageStartEvent(message), MessageEndEvent(message))
        if self.listeners.subscriptions:
            self.outbox.say(*events)

    def say_messages(self, messages: Sequence[Message]) -> None:
        """Put messages into the transcript in the middle of a turn, and announce them."""
        for given in messages:
            message = self._stamp(given)
            self._add(message)
            self.outbox.keep(message)
            if self.listeners.subscriptions:
                self.outbox.say(MessageStartEvent(message), MessageEndEvent(message))

    @property
    def results(self) -> list[ToolResultMessage]:
        """The results of this turn that are in the transcript."""
        return self._results

    def finish_turn(self) -> None:
        """Say ``turn_end``, if a turn is open."""
        if not self._turn_open:
            return
        self._turn_open = False
        if self.listeners.subscriptions:
            answer = self.answer if self.answer is not None else AssistantMessage(stop_reason="aborted")
            self.outbox.say(TurnEndEvent(answer, self._results))

    def finish_agent(self, outcome: RunOutcome) -> None:
        """Say ``agent_end``, if the run was begun and not ended."""
        if not self._agent_open:
            return
        self._agent_open = False
        self.outcome = outcome
        if self.listeners.subscriptions:
            self.outbox.say(AgentEndEvent(tuple(self.new_messages), outcome))

    # --- messages ----------------------------------------------------------------------------

    def _stamp(self, message: _AnyMessage, **more: object) -> _AnyMessage:
        """The message as it enters the transcript: with an id, a time and the run it belongs to."""
        return message.model_copy(
            update={
                **more,
                "id": message.id or self._new_id(),
                "timestamp": message.timestamp if message.timestamp is not None else time.time(),
                "run_id": self.id,
            }
        )

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self.new_messages.append(message)

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}-{self._ids}"

    def _origin(self, message: AssistantMessage) -> dict[str, str]:
        """Which model was asked, where the message itself does not say: it may have failed before it began."""
        if message.model_id:
            return {}
        spec = self.config.model.spec
        return {"provider_id": spec.provider, "model_id": spec.id, "api": message.api or spec.api}

    def open_answer(self, stream: MessageStream) -> None:
        """The model is being asked; its answer comes from ``stream``."""
        self.stream = stream
        self._answer_open = True
        self._answer_started = False

    def relay(self, event: StreamEvent) -> None:
        """Announce one event of the answer."""
        if not self.listeners.subscriptions:
            return
        if not self._answer_started:
            self._start_answer(event.partial)
        if event.type != "start":
            self.outbox.say_one(MessageUpdateEvent(event))

    def _start_answer(self, message: AssistantMessage | None) -> None:
        self._answer_started = True
        self.outbox.say(MessageStartEvent(message if message is not None else AssistantMessage()))

    def finish_answer(self, message: AssistantMessage | None = None) -> None:
        """Close the model's message: with ``message``, or with what had arrived of it.

        A message without content does not enter the transcript: vendors refuse it.
        """
        if not self._answer_open:
            return
        self._answer_open = False
        if message is None:
            assert self.stream is not None
            message = self.stream.broken_message().model_copy(
                update={"stop_reason": "aborted", "error_message": self.why_ended()}
            )
        self.stream = None
        message = self._stamp(message, **self._origin(message))
        self.answer = message
        if message.usage is not None:
            self.usage = self.usage + message.usage
        if message.content:
            self._last_said = message
            self._add(message)
            self.outbox.keep(message)
        if self.listeners.subscriptions:
            end = MessageEndEvent(message)
            if self._answer_started:
                self.outbox.say(end)
            else:
                self._answer_started = True
                self.outbox.say(MessageStartEvent(message), end)

    # --- calls -------------------------------------------------------------------------------

    def open_calls(self, calls: Sequence[ToolCall]) -> list[CallSlot]:
        """Begin the batch of calls of the answer."""
        self._calls_open = True
        self.slots = [CallSlot(call) for call in calls]
        self.tool_calls += len(calls)
        self._answered = 0
        return self.slots

    async def calls_started(self, slots: Sequence[CallSlot]) -> None:
        """Say ``tool_execution_start`` of each."""
        for slot in slots:
            if not slot.announced:
                self._announce_call(slot)
        if self.outbox.waiting:
            await self.outbox.flush()

    def _announce_call(self, slot: CallSlot) -> None:
        slot.announced = True
        if self.listeners.subscriptions:
            self.outbox.say(ToolExecutionStartEvent(slot.call.id, slot.call.name, slot.call.arguments))

    def call_updated(self, slot: CallSlot, partial_result: object) -> Awaitable[None]:
        """Say ``tool_execution_update``. The event is on its way at once; awaiting waits until all have heard it."""
        if not self.listeners.subscriptions:
            return DONE
        try:
            self.outbox.say(ToolExecutionUpdateEvent(slot.call.id, slot.call.name, slot.call.arguments, partial_result))
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            # A listener's bug is not the tool's: it ends the run, and the tool is cancelled like the others.
            self.fail(error)
        if not self.outbox.waiting:
            return DONE
        if self.pump is not None:
            self.pump.start_soon(self.hand_on)
        return Deferred(self.hand_on)

    async def hand_on(self) -> None:
        """Hand on what is waiting, where a listener's error is not to be raised: it ends the run. A checkpoint."""
        try:
            await self.outbox.flush()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.fail(error)
            await checkpoint_if_cancelled()

    def call_cancelled(self, slot: CallSlot, *, alone: bool) -> None:
        """Watch over the calls that are being cancelled: what is not over in time is named in a warning."""
        if not alone:
            # By what is around the run: the others need not find out for themselves.
            self._set_signals("the run was cancelled")
            self._note_cancelled(self.slots)
        if slot.cancelled_at is None:
            slot.cancelled_at = current_time()
            self._watch([slot])

    def _note_cancelled(self, slots: Sequence[CallSlot]) -> None:
        """All that run have been cancelled now: a tool that shields itself does not notice, but its time runs too."""
        going_on = [slot for slot in slots if slot.goes_on and slot.cancelled_at is None]
        if going_on:
            now = current_time()
            for slot in going_on:
                slot.cancelled_at = now
            self._watch(going_on)

    def _watch(self, slots: Sequence[CallSlot]) -> None:
        if self._watchdog is None:
            self._watchdog = Watchdog(self.id, self.config.limits.settle_timeout)
        self._watchdog.watch(slots)

    def call_interrupted(self, slot: CallSlot) -> None:
        """Close a call that ended because the run is cancelled, at the moment it ended."""
        try:
            self._close_interrupted(slot)
        except Exception as error:
            self.fail(error)

    def _close_interrupted(self, slot: CallSlot) -> None:
        if slot.outcome is None and slot.aborted:
            slot.outcome = CallOutcome.aborted(slot.call, slot.abort_reason)
        elif slot.outcome is None:
            slot.outcome = CallOutcome.cancelled(slot.call, self.why_ended(), started=slot.started)
        self._close_call(slot)

    def stop_watching(self) -> None:
        """Nothing of the run goes on any more."""
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None

    def task_aborted(self, slot: CallSlot) -> None:
        """Close a call that ended alone in a task that can wait for nothing; the events are on their way at once."""
        self._close_call(slot)
        if self.outbox.waiting and self.pump is not None:
            self.pump.start_soon(self.hand_on)

    def call_ended(self, slot: CallSlot) -> Awaitable[None] | None:
        """Store the result, then say ``tool_execution_end``."""
        self._close_call(slot)
        return self.outbox.flush() if self.outbox.waiting else None

    def _close_call(self, slot: CallSlot) -> None:
        outcome = slot.outcome
        assert outcome is not None
        if slot.closed:
            return
        slot.closed = True
        if not slot.announced:
            self._announce_call(slot)
        if outcome.request is not None:
            self._suspended += (slot,)
        else:
            slot.answer = outcome.message(id=self._new_id(), timestamp=time.time(), run_id=self.id)
            self.outbox.keep(slot.answer)
        if self.listeners.subscriptions:
            self.outbox.say(
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

    async def call_answered(self, slot: CallSlot) -> None:
        """In a sequential batch: put the result into the transcript before the next call begins."""
        self._answer_calls()
        if self.outbox.waiting:
            await self.outbox.flush()

    def _answer_calls(self) -> None:
        """Put results into the transcript, in the order of the calls, as far as all before them are there."""
        while self._answered < len(self.slots):
            slot = self.slots[self._answered]
            answer = slot.answer
            if answer is None and not slot.closed:
                return
            self._answered += 1
            if answer is None:
                continue  # suspended: its result comes in a later run
            self._add_result(answer)

    def _add_result(self, answer: ToolResultMessage) -> None:
        self._results.append(answer)
        self._add(answer)
        if self.listeners.subscriptions:
            self.outbox.say(MessageStartEvent(answer), MessageEndEvent(answer))

    @property
    def requests(self) -> list[PersonRequest]:
        """The questions that calls of this run wait for."""
        return [slot.outcome.request for slot in self._suspended if slot.outcome and slot.outcome.request]

    def hold_back(self, slot: CallSlot, request: PersonRequest) -> None:
        """A call of a resumed batch that still waits: nothing is said of it in this run."""
        slot.outcome = CallOutcome.suspended(slot.call, request)
        slot.announced = slot.closed = True
        self._suspended += (slot,)

    def give_up_suspended(self) -> None:
        """The run does not end suspended after all: the calls that wait are answered as cancelled."""
        if not self._suspended:
            return
        for slot in self._suspended:
            outcome = CallOutcome.cancelled(slot.call, self.why_ended(), started=False)
            slot.answer = outcome.message(id=self._new_id(), timestamp=time.time(), run_id=self.id)
            self.outbox.keep(slot.answer)
            self._add_result(slot.answer)
        self._suspended = ()
        self._order_results()

    def _order_results(self) -> None:
        """Let the results of the last answer stand in the order of its calls: some may have come in another run."""
        begin = len(self.messages)
        while begin and isinstance(self.messages[begin - 1], ToolResultMessage):
            begin -= 1
        answer = self.messages[begin - 1] if begin else None
        if isinstance(answer, AssistantMessage):
            place = {call.id: index for index, call in enumerate(answer.tool_calls)}
            found = [each for each in self.messages[begin:] if isinstance(each, ToolResultMessage)]
            found.sort(key=lambda result: place.get(result.tool_call_id, len(place)))
            self.messages[begin:] = found

    def finish_calls(self) -> None:
        """Close the batch: calls without an outcome were cancelled, and every result enters the transcript in order."""
        if self.answer is not None and not self._calls_open:
            self.open_calls(self.answer.tool_calls)
        for slot in self.slots:
            if not slot.closed:
                self._close_interrupted(slot)
        self._answer_calls()
        if self.answer is not None and len(self.slots) < len(self.answer.tool_calls):
            self._order_results()  # the others have their results from another run
        self.slots = []
        self.stop_watching()

    # --- the end -----------------------------------------------------------------------------

    def context(self) -> AgentContext:
        """What hooks may know of the run."""
        config = self.config
        return AgentContext(
            run_id=self.id,
            turn=self.turn,
            system_prompt=config.system_prompt,
            messages=self.messages,
            tools=tuple(config.tools.values()),
            extra=self.extra,
        )

    def result(self) -> RunResult:
        """What the run came to."""
        return RunResult(
            run_id=self.id,
            outcome=self.outcome,
            text=self._last_said.text if self._last_said is not None else "",
            messages=self.new_messages,
            usage=self.usage,
            error=self.error,
            requests=self.requests,
            abort_reason=self.abort_reason,
            limit=self.limit[0] if self.limit is not None else None,
            limit_value=self.limit[1] if self.limit is not None else None,
        )
