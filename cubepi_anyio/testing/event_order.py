"""Checks the events of a run: every start has its end, and all stand in the one order."""

from __future__ import annotations

from collections.abc import Sequence

from ..events.agent import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from ..types.messages import AssistantMessage, Message, ToolResultMessage

__all__ = ("EventOrder", "check_events")


def check_events(events: Sequence[AgentEvent]) -> list[str]:
    """Say what is wrong with the events one listener heard of one run, one sentence each; an empty list means nothing.

    No events at all are in order too: that run never began.
    """
    order = EventOrder()
    for event in events:
        order.hear(event)
    return [*order.faults, *order.missing()]


class EventOrder:
    """Follows the events of one run; ``hear`` may be subscribed to an agent.

    ``faults`` are what was wrong so far; ``missing()`` is what would have to follow.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._count = 0
        self._is_open = False
        self._is_over = False
        self._turn = 0
        self._turn_is_open = False
        self._message: Message | None = None
        self._answer: AssistantMessage | None = None
        self._started: list[str] = []
        self._ended: list[str] = []
        self._results: list[ToolResultMessage] = []
        self._messages: list[Message] = []

    def hear(self, event: AgentEvent) -> None:
        """Take in the next event."""
        self._count += 1
        if self._is_over:
            self._fault(event, "comes after agent_end")
            return
        if not self._is_open and not isinstance(event, AgentStartEvent):
            self._fault(event, "comes before agent_start")
        match event:
            case AgentStartEvent():
                if self._is_open:
                    self._fault(event, "the run has begun already")
                self._is_open = True
            case AgentEndEvent():
                self._hear_agent_end(event)
            case TurnStartEvent() | TurnEndEvent():
                self._hear_turn(event)
            case MessageStartEvent() | MessageUpdateEvent() | MessageEndEvent():
                self._hear_message(event)
            case _:
                self._hear_call(event)

    def missing(self) -> list[str]:
        """What has begun and not ended."""
        return [
            *([f"the {self._message.role} message never ended"] if self._message is not None else []),
            *(f"call {call_id!r} started and never ended" for call_id in self._started if call_id not in self._ended),
            *([f"turn {self._turn} never ended"] if self._turn_is_open else []),
            *(["there is no agent_end"] if self._is_open and not self._is_over else []),
        ]

    def _fault(self, event: AgentEvent, what: str) -> None:
        self.faults.append(f"event {self._count} ({event.type}): {what}")

    # --- the run and its turns ---------------------------------------------------------------

    def _hear_agent_end(self, event: AgentEndEvent) -> None:
        for what in self.missing():
            if "agent_end" not in what:
                self._fault(event, what)
        self._is_over = True
        if [message.id for message in event.messages] != [message.id for message in self._messages]:
            self._fault(event, "its messages are not those that were announced")

    def _hear_turn(self, event: TurnStartEvent | TurnEndEvent) -> None:
        if isinstance(event, TurnStartEvent):
            if self._turn_is_open:
                self._fault(event, f"turn {self._turn} has not ended")
            if event.turn != self._turn + 1:
                self._fault(event, f"turn {event.turn} follows turn {self._turn}")
            self._turn, self._turn_is_open, self._answer = event.turn, True, None
            self._started, self._ended, self._results = [], [], []
            return
        if not self._turn_is_open:
            self._fault(event, "no turn has begun")
        self._turn_is_open = False
        calls = [call.id for call in self._answer.tool_calls] if self._answer is not None else []
        if [result.tool_call_id for result in self._results] != calls:
            self._fault(event, "the calls of the answer and the results announced differ")
        if [result.id for result in event.tool_results] != [result.id for result in self._results]:
            self._fault(event, "its results are not those that were announced")
        if sorted(self._ended) != sorted(calls):
            self._fault(event, "the calls of the answer and the calls that ended differ")
        if self._answer is not None and event.message.id != self._answer.id:
            self._fault(event, "its message is not the answer that was announced")

    # --- messages ----------------------------------------------------------------------------

    def _hear_message(self, event: MessageStartEvent | MessageUpdateEvent | MessageEndEvent) -> None:
        if not self._turn_is_open:
            self._fault(event, "it stands outside a turn")
        if isinstance(event, MessageStartEvent):
            if self._message is not None:
                self._fault(event, f"the {self._message.role} message before it has not ended")
            self._message = event.message
        elif self._message is None:
            self._fault(event, "no message has begun")
        elif isinstance(event, MessageEndEvent):
            if event.message.role != self._message.role:
                self._fault(event, f"a {self._message.role} message had begun")
            self._message = None
            self._keep(event)
        elif not isinstance(self._message, AssistantMessage):
            self._fault(event, f"a {self._message.role} message does not grow")

    def _keep(self, event: MessageEndEvent) -> None:
        message = event.message
        if message.content or not isinstance(message, AssistantMessage):
            self._messages.append(message)
        if isinstance(message, AssistantMessage):
            if self._answer is not None:
                self._fault(event, "the turn has an answer already")
            self._answer = message
        elif isinstance(message, ToolResultMessage):
            if message.tool_call_id not in self._ended:
                self._fault(event, f"call {message.tool_call_id!r} has not ended")
            self._results.append(message)

    # --- calls -------------------------------------------------------------------------------

    def _hear_call(self, event: ToolExecutionStartEvent | ToolExecutionUpdateEvent | ToolExecutionEndEvent) -> None:
        call_id = event.tool_call_id
        if isinstance(event, ToolExecutionStartEvent):
            calls = [call.id for call in self._answer.tool_calls] if self._answer is not None else []
            if calls[len(self._started) :][:1] != [call_id]:
                self._fault(event, f"call {call_id!r} is not the next of {calls}")
            self._started.append(call_id)
        elif call_id not in self._started:
            self._fault(event, f"call {call_id!r} has not started")
        elif call_id in self._ended:
            self._fault(event, f"call {call_id!r} has ended already")
        elif isinstance(event, ToolExecutionEndEvent):
            self._ended.append(call_id)
