from __future__ import annotations

import pytest

from cubepi_anyio import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    AssistantMessage,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    StreamEvent,
    TextContent,
    ToolCall,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    ToolResultMessage,
    TurnEndEvent,
    TurnStartEvent,
    UserMessage,
)
from cubepi_anyio.testing import EventOrder, check_events

ASKED = UserMessage(id="1", content=[TextContent(text="Go.")])
CALLED = AssistantMessage(id="2", content=[ToolCall(id="a", name="echo"), ToolCall(id="b", name="echo")])
A = ToolResultMessage(id="3", tool_call_id="a", tool_name="echo", content=[TextContent(text="a")])
B = ToolResultMessage(id="4", tool_call_id="b", tool_name="echo", content=[TextContent(text="b")])


def whole_run() -> list[AgentEvent]:
    return [
        AgentStartEvent("r"),
        TurnStartEvent(1),
        MessageStartEvent(ASKED),
        MessageEndEvent(ASKED),
        MessageStartEvent(AssistantMessage()),
        MessageUpdateEvent(StreamEvent("toolcall_start", 0)),
        MessageEndEvent(CALLED),
        ToolExecutionStartEvent("a", "echo", {}),
        ToolExecutionStartEvent("b", "echo", {}),
        ToolExecutionUpdateEvent("a", "echo", {}, 1),
        ToolExecutionEndEvent("b", "echo", None),
        ToolExecutionEndEvent("a", "echo", None),
        MessageStartEvent(A),
        MessageEndEvent(A),
        MessageStartEvent(B),
        MessageEndEvent(B),
        TurnEndEvent(CALLED, [A, B]),
        AgentEndEvent([ASKED, CALLED, A, B]),
    ]


def test_a_whole_run_has_no_faults() -> None:
    assert check_events(whole_run()) == []


def test_no_events_at_all_are_in_order() -> None:
    assert check_events([]) == []


@pytest.mark.parametrize("left_out", range(18))
def test_no_event_can_be_left_out_but_an_update(left_out: int) -> None:
    events = whole_run()
    gone = events.pop(left_out)
    may_be_missing = gone.type in ("message_update", "tool_execution_update")
    assert bool(check_events(events)) is not may_be_missing


@pytest.mark.parametrize("twice", range(18))
def test_no_event_can_come_twice_but_an_update(twice: int) -> None:
    events = whole_run()
    events.insert(twice, events[twice])
    may_repeat = events[twice].type in ("message_update", "tool_execution_update")
    assert bool(check_events(events)) is not may_repeat


def test_calls_start_in_the_order_of_the_message() -> None:
    events = whole_run()
    events[7], events[8] = events[8], events[7]
    assert check_events(events)[0] == "event 8 (tool_execution_start): call 'b' is not the next of ['a', 'b']"


def test_results_stand_in_the_order_of_the_calls() -> None:
    events = whole_run()
    events[12:16] = events[14:16] + events[12:14]
    assert check_events(events)[0] == "event 17 (turn_end): the calls of the answer and the results announced differ"


def test_what_is_still_missing_can_be_asked_for() -> None:
    order = EventOrder()
    for event in whole_run()[:11]:
        order.hear(event)
    assert order.faults == []
    assert order.missing() == ["call 'a' started and never ended", "turn 1 never ended", "there is no agent_end"]
