"""Each call is answered exactly once, in order, at once; a call is known by its place, because ids may repeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.types import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool_cycle_faults,
)
from cubepi_anyio.types.transcript import CallBatch, in_call_order, open_batch, repaired, results_after


def says(*ids: str) -> AssistantMessage:
    return AssistantMessage(content=[TextContent(text="x"), *(ToolCall(id=each, name="t") for each in ids)])


def answers(id: str, text: str = "") -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=id, tool_name="t", content=[TextContent(text=text)] if text else [])


USER = UserMessage()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, says()],
        [USER, says("1"), answers("1")],
        [USER, says("1", "2"), answers("1"), answers("2"), says("3"), answers("3"), says(), USER],
        [USER, says("1"), answers("1"), USER, says("1"), answers("1")],
    ],
)
def test_a_valid_transcript_has_no_faults(messages: list[Message]) -> None:
    assert tool_cycle_faults(messages) == []


@pytest.mark.parametrize(
    ("messages", "faults"),
    [
        ([says("1")], ["message 1: call '1' (t) has no result"]),
        ([says("1"), USER], ["message 1: call '1' (t) has no result"]),
        ([says("1", "2"), answers("1"), USER], ["message 2: call '2' (t) has no result"]),
        ([answers("1")], ["message 0: result '1' answers no call before it"]),
        ([says("1"), answers("1"), answers("1")], ["message 2: result '1' answers no call before it"]),
        (
            [says("1"), USER, answers("1")],
            ["message 1: call '1' (t) has no result", "message 2: result '1' answers no call before it"],
        ),
        (
            [says("1", "2"), answers("2"), answers("1")],
            ["message 1: expected the result of '1', found '2'", "message 2: expected the result of '2', found '1'"],
        ),
    ],
)
def test_each_fault_is_named_with_its_place(messages: list[Message], faults: list[str]) -> None:
    assert tool_cycle_faults(messages) == faults


# --- the open batch --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [says("1"), answers("1")],
        [says("1"), answers("1"), says()],
        [says("1"), USER],
        [says("1"), says()],
        [answers("1")],
        [says("x", "x"), answers("x"), answers("x")],
    ],
)
def test_a_transcript_that_does_not_end_with_an_unanswered_call_has_no_open_batch(messages: list[Message]) -> None:
    assert open_batch(messages) is None


def test_the_open_batch_is_the_message_at_the_end_and_its_calls_without_a_result() -> None:
    message = says("1", "2", "3")
    batch = open_batch([USER, says("2"), answers("2"), message, answers("2")])
    assert batch is not None
    assert batch.message is message
    assert [call.id for call in batch.unanswered] == ["1", "3"]
    assert [result and result.tool_call_id for result in batch.results] == [None, "2", None]


def test_of_two_calls_with_one_id_the_first_result_answers_the_first() -> None:
    message = says("x", "y", "x")
    batch = open_batch([message, answers("x", "first")])
    assert batch is not None
    assert batch.unanswered == message.tool_calls[1:]
    assert batch.take(answers("x", "second"))
    assert not batch.take(answers("x", "third"))
    assert not batch.take(answers("z"))
    assert [result and result.text for result in batch.results] == ["first", None, "second"]


def test_an_id_that_an_earlier_message_had_as_well_is_that_of_the_last_one() -> None:
    batch = open_batch([says("call_0"), answers("call_0"), says("call_0")])
    assert batch is not None
    assert [call.id for call in batch.unanswered] == ["call_0"]


# --- results ---------------------------------------------------------------------------------


def test_results_are_put_in_the_order_of_their_calls_and_the_others_behind_them() -> None:
    message = says("x", "y", "x", "z")
    results = [answers("w", "4"), answers("y", "2"), answers("x", "1"), answers("x", "3"), answers("y", "5")]
    assert [result.text for result in in_call_order(message, results)] == ["1", "2", "3", "4", "5"]
    assert in_call_order(message, []) == []


def test_the_results_after_a_message_are_those_directly_behind_it() -> None:
    messages = [says("1", "2"), answers("2"), answers("1"), USER, answers("3")]
    assert [list(results_after(messages, position)) for position in (0, 1, 2, 4)] == [
        [messages[1], messages[2]],
        [messages[2]],
        [],
        [],
    ]


_CALLS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=5)


@given(_CALLS, st.data())
def test_a_batch_that_was_answered_in_any_order_is_valid_when_it_is_put_in_order(
    calls: list[str], data: st.DataObject
) -> None:
    message = says(*calls)
    ended = [answers(call) for call in data.draw(st.permutations(calls))]
    assert tool_cycle_faults([message, *in_call_order(message, ended)]) == []
    assert CallBatch(message).unanswered == message.tool_calls


@given(_CALLS, st.data())
def test_what_is_open_is_what_repairing_would_answer(calls: list[str], data: st.DataObject) -> None:
    message = says(*calls)
    ended = [answers(call) for call in data.draw(st.permutations(calls))][: data.draw(st.integers(0, 5))]
    batch = open_batch([message, *ended])
    unanswered = [] if batch is None else [call.id for call in batch.unanswered]
    made_up = [each for each in repaired([message, *ended])[0] if each.id.startswith("repair-")]
    assert [each.tool_call_id for each in made_up if isinstance(each, ToolResultMessage)] == unanswered
