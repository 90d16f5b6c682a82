"""The record of one run: what was said, to the transcript and to the listeners.

Every step is written down synchronously: the transcript, the events, what the store has to keep. The ``finish_*``
methods close what is open and do nothing where nothing is. A run that goes well calls them one after the other, and
settling calls all of them, so that every ending leaves the same shape::

    agent_start                                          finish_agent
      turn_start, the prompts                            finish_turn
        the model's message: start, updates              finish_answer
        the results of its calls, in call order          (agent/calls.py)
      turn_end
    agent_end

What would break: waiting for anything between two steps of the record. A cancellation that hits there would leave a
message in the transcript that nobody was told of, or a start without its end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar
from uuid import uuid4

from ..events.agent import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from ..events.stream import StreamEvent
from ..stream.message_stream import MessageStream
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.model import Model
from ..types.run import RunOutcome
from ..types.usage import Usage
from .listeners import ListenerList
from .outbox import Outbox

__all__ = ("Record",)

_AnyMessage = TypeVar("_AnyMessage", bound=UserMessage | AssistantMessage | ToolResultMessage)


class Record:
    """What one run has said, from its first event to its last."""

    __slots__ = (
        "_agent_open",
        "_answer_open",
        "_answer_started",
        "_id_prefix",
        "_ids",
        "_last_said",
        "_listeners",
        "_turn_open",
        "answer",
        "answer_is_said",
        "messages",
        "new_messages",
        "notes",
        "outbox",
        "outcome",
        "result_notes",
        "results",
        "run_id",
        "stream",
        "turn",
        "usage",
        "usage_by",
    )

    def __init__(
        self,
        run_id: str | None,
        messages: list[Message],
        listeners: ListenerList,
        outbox: Outbox,
        notes: JsonObject | None = None,
    ) -> None:
        self.run_id: str = run_id or uuid4().hex
        # A caller may give the same run id twice; message ids are unique all the same.
        self._id_prefix = uuid4().hex if run_id else self.run_id
        self._ids = 0
        self._listeners = listeners
        self.outbox: Outbox = outbox
        self.messages: list[Message] = messages
        """The transcript. The run appends to it and never changes what is there."""
        self.new_messages: list[Message] = []
        """What the run has added to the transcript."""
        self.notes: JsonObject = notes if notes is not None else {}
        """The thread's own notes; hooks and tools may change them."""
        self.turn: int = 0
        self.usage: Usage = Usage()
        self.usage_by: dict[str, Usage] = {}
        self.result_notes: JsonObject = {}
        self.outcome: RunOutcome = "completed"
        self.stream: MessageStream | None = None
        """Where the model's answer comes from, while it is open."""
        self.answer: AssistantMessage | None = None
        """The model's message of this turn, once it is complete."""
        self.results: list[ToolResultMessage] = []
        """The results of this turn that are in the transcript."""
        self._agent_open = False
        self._turn_open = False
        self._answer_open = False
        self._answer_started = False
        self.answer_is_said: bool = False
        """Whether more than its head has come of the answer that is open: then it cannot be asked for again."""
        self._last_said: AssistantMessage | None = None

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; events that nobody would hear are not made."""
        return bool(self._listeners.subscriptions)

    @property
    def is_open(self) -> bool:
        """Whether ``agent_start`` was said and ``agent_end`` was not."""
        return self._agent_open

    @property
    def is_streaming(self) -> bool:
        """Whether the model is answering."""
        return self.stream is not None

    @property
    def text(self) -> str:
        """The text of the model's last message that the run put into the transcript."""
        return self._last_said.text if self._last_said is not None else ""

    # --- the run and its turns ---------------------------------------------------------------

    def start_agent(self) -> None:
        """Say ``agent_start``."""
        self._agent_open = True
        if self.is_heard:
            self.outbox.say(AgentStartEvent(self.run_id))

    def start_turn(self, prompts: Sequence[Message]) -> None:
        """Begin a turn with what is said to the model; all of it is in the transcript before anybody hears of it."""
        self.turn += 1
        self._turn_open = True
        self.answer = None
        self.results = []
        said = [self.add(prompt) for prompt in prompts]
        if self.is_heard:
            events: list[AgentEvent] = [TurnStartEvent(self.turn)]
            for message in said:
                events += (MessageStartEvent(message), MessageEndEvent(message))
            self.outbox.say_all(events)

    def say_messages(self, messages: Sequence[Message]) -> None:
        """Put messages into the transcript in the middle of a turn, and announce them."""
        for given in messages:
            message = self.add(given)
            if self.is_heard:
                self.outbox.say_all((MessageStartEvent(message), MessageEndEvent(message)))

    def finish_turn(self) -> None:
        """Say ``turn_end``, if a turn is open, and have the thread's notes stored with it."""
        if not self._turn_open:
            return
        self._turn_open = False
        self.outbox.keep_notes()
        if self.is_heard:
            answer = self.answer if self.answer is not None else AssistantMessage(stop_reason="aborted")
            self.outbox.say(TurnEndEvent(answer, self.results))

    def finish_agent(self, outcome: RunOutcome) -> None:
        """Say ``agent_end``, if the run was begun and not ended; the first outcome stands."""
        if not self._agent_open:
            return
        self._agent_open = False
        self.outcome = outcome
        self.outbox.keep_notes()
        if self.is_heard:
            self.outbox.say(AgentEndEvent(tuple(self.new_messages), outcome))

    # --- messages ----------------------------------------------------------------------------

    def add(self, message: _AnyMessage, **more: object) -> _AnyMessage:
        """Put a message into the transcript and have it stored; returns it as it stands there.

        It gets an id, a time, and the run it belongs to. ``more`` are further fields to set.
        """
        stamped = self._stamp(message, **more)
        self.messages.append(stamped)
        self.new_messages.append(stamped)
        self.outbox.keep(stamped)
        return stamped

    def _stamp(self, message: _AnyMessage, **more: object) -> _AnyMessage:
        return message.model_copy(
            update={
                **more,
                "id": message.id or self.new_id(),
                "timestamp": message.timestamp if message.timestamp is not None else time.time(),
                "run_id": self.run_id,
            }
        )

    def new_id(self) -> str:
        """An id for a message of this run."""
        self._ids += 1
        return f"{self._id_prefix}-{self._ids}"

    # --- the model's answer ------------------------------------------------------------------

    def open_answer(self, stream: MessageStream) -> None:
        """The model is being asked; its answer comes from ``stream``.

        Asked anew while the message is open, it is the same message: its start is not said again.
        """
        self.stream = stream
        if not self._answer_open:
            self._answer_started = False
        self._answer_open = True
        self.answer_is_said = False

    def relay(self, event: StreamEvent) -> None:
        """Announce one event of the answer."""
        is_head = event.type == "start"
        if not is_head:
            self.answer_is_said = True
        if not self._listeners.subscriptions:
            return
        if not self._answer_started:
            self._answer_started = True
            message = event.partial
            self.outbox.say(MessageStartEvent(message if message is not None else AssistantMessage()))
        if not is_head:
            self.outbox.say(MessageUpdateEvent(event))

    def finish_answer(self, message: AssistantMessage | None, *, asked: Model, why_cut: str | None = None) -> None:
        """Close the model's message: with ``message``, or with what had arrived of it.

        ``asked`` is the model that was asked, for a message that failed before it said so itself, and ``why_cut`` why
        there is no message. One without content does not enter the transcript: vendors refuse it.
        """
        if not self._answer_open:
            return
        self._answer_open = False
        if message is None:
            assert self.stream is not None
            cut = {"stop_reason": "aborted", "error_message": why_cut}
            message = self.stream.broken_message().model_copy(update=cut)
        self.stream = None
        origin: dict[str, str] = {}
        if not message.model_id:
            origin = {"provider_id": asked.provider, "model_id": asked.id, "api": message.api or asked.api}
        if message.usage is not None:
            self.usage = self.usage + message.usage
        if message.content:
            self.answer = message = self._last_said = self.add(message, **origin)
        else:
            self.answer = message = self._stamp(message, **origin)
        if self.is_heard:
            end = MessageEndEvent(message)
            if self._answer_started:
                self.outbox.say(end)
            else:
                self._answer_started = True
                self.outbox.say_all((MessageStartEvent(message), end))
