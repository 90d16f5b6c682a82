"""What a killed process left becomes a transcript any model accepts, and repairing it again changes nothing."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.checkpointers import repaired
from cubepi_anyio.types import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool_cycle_faults,
)


def user(name: str, text: str = "hello") -> UserMessage:
    return UserMessage(id=name, content=[TextContent(text=text)])


def asks(name: str, *calls: str, stop_reason: str = "tool_use") -> AssistantMessage:
    content = [ToolCall(id=call, name="search") for call in calls]
    return AssistantMessage(id=name, content=[*content], stop_reason=stop_reason, run_id="run", timestamp=7.0)


def says(name: str, text: str) -> AssistantMessage:
    return AssistantMessage(id=name, content=[TextContent(text=text)])


def result(name: str, call: str, text: str = "found") -> ToolResultMessage:
    return ToolResultMessage(id=name, tool_call_id=call, tool_name="search", content=[TextContent(text=text)])


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def test_a_valid_transcript_is_left_as_it_is() -> None:
    messages: list[Message] = [user("u"), asks("a", "c1", "c2"), result("r1", "c1"), result("r2", "c2"), says("b", "3")]
    assert repaired(messages) == (messages, [])
    assert all(given is kept for given, kept in zip(messages, repaired(messages)[0], strict=True))
    assert repaired([]) == ([], [])


def test_results_stored_in_the_order_in_which_calls_ended_are_put_in_the_order_of_the_calls() -> None:
    fixed, notes = repaired([asks("a", "c1", "c2", "c3"), result("r3", "c3"), result("r1", "c1"), result("r2", "c2")])
    assert ids(fixed) == ["a", "r1", "r2", "r3"]
    assert notes == []


def test_a_call_without_a_result_is_answered_by_an_error_that_says_the_outcome_is_unknown() -> None:
    fixed, notes = repaired([asks("a", "c1", "c2"), result("r2", "c2"), user("u")])
    made_up = fixed[1]
    assert isinstance(made_up, ToolResultMessage)
    assert (made_up.tool_call_id, made_up.tool_name, made_up.is_error) == ("c1", "search", True)
    assert made_up.details == {"ending": "unknown"}
    assert "outcome of this call is unknown" in made_up.text
    assert (made_up.run_id, made_up.timestamp) == ("run", 7.0)
    assert ids(fixed)[2:] == ["r2", "u"]
    assert notes == ["call 'c1' (search) had no result and got one that says so"]


@pytest.mark.parametrize("stop_reason", ["length", "error", "aborted"])
def test_a_call_of_a_message_that_was_cut_is_answered_by_saying_that_it_never_ran(stop_reason: str) -> None:
    made_up = repaired([asks("a", "c1", stop_reason=stop_reason)])[0][1]
    assert isinstance(made_up, ToolResultMessage)
    assert (made_up.text, made_up.details) == (
        "This call was not run: the message that made it was cut short.",
        {"ending": "refused"},
    )


def test_the_id_of_a_made_up_result_follows_from_its_call() -> None:
    first, again, other = (
        repaired([asks(message, call)])[0][1].id for message, call in (("a", "c1"), ("a", "c1"), ("b", "c1"))
    )
    assert first == again
    assert first != other
    assert len({message.id for message in repaired([asks("a", "same", "same")])[0]}) == 3


def test_storing_the_repair_and_repairing_again_changes_nothing() -> None:
    stored: list[Message] = [asks("a", "c1", "c2"), result("r2", "c2"), user("u")]
    fixed, _ = repaired(stored)
    appended = [*stored, *(message for message in fixed if message not in stored)]
    again, notes = repaired(appended)
    assert again == fixed
    assert notes == [f"result {fixed[1].id!r} stood apart from its call 'c1' and was moved"]


def test_a_result_without_a_call_is_dropped_with_a_note() -> None:
    fixed, notes = repaired([user("u"), result("r", "gone"), says("b", "3")])
    assert ids(fixed) == ["u", "b"]
    assert notes == ["result 'r' answers no call ('gone') and was dropped"]


def test_the_first_result_of_a_call_stands() -> None:
    fixed, notes = repaired([asks("a", "c"), result("r1", "c"), result("r2", "c")])
    assert ids(fixed) == ["a", "r1"]
    assert notes == ["result 'r2' is the second one of 'c' and was dropped"]


def test_a_message_that_is_there_twice_is_kept_once() -> None:
    fixed, notes = repaired([user("u", "one"), user("u", "two"), user("", "nameless"), user("", "nameless")])
    assert [message.text for message in fixed] == ["one", "nameless", "nameless"]
    assert notes == ["message 'u' was there twice; the first one stands"]


@pytest.mark.parametrize("content", [[], [TextContent(text="")]])
def test_an_assistant_message_without_content_is_dropped(content: list[TextContent]) -> None:
    fixed, notes = repaired([user("u"), AssistantMessage(id="a", content=[*content], stop_reason="error"), user("v")])
    assert ids(fixed) == ["u", "v"]
    assert notes == ["assistant message 'a' has no content and was dropped"]


def test_signed_thinking_alone_is_content() -> None:
    message = AssistantMessage(id="a", content=[ThinkingContent(thinking="hm", signature="s")])
    assert repaired([message]) == ([message], [])


def test_a_result_that_stands_apart_from_its_call_is_moved_to_it() -> None:
    fixed, notes = repaired([asks("a", "c1"), user("u"), result("r", "c1")])
    assert ids(fixed) == ["a", "r", "u"]
    assert notes == ["result 'r' stood apart from its call 'c1' and was moved"]


def test_calls_numbered_anew_in_each_message_are_told_apart() -> None:
    fixed, _ = repaired([asks("a", "call_0"), result("r1", "call_0"), asks("b", "call_0"), result("r2", "call_0")])
    assert ids(fixed) == ["a", "r1", "b", "r2"]
    fixed, _ = repaired([asks("a", "call_0"), asks("b", "call_0"), result("r2", "call_0")])
    assert ids(fixed)[0::2] == ["a", "b"]
    assert ids(fixed)[3] == "r2"


def test_calls_of_the_last_batch_that_wait_for_a_person_stay_unanswered() -> None:
    messages: list[Message] = [user("u"), asks("a", "c1", "c2", "c3"), result("r3", "c3")]
    fixed, notes = repaired(messages, waiting={"c1"})
    assert [m.tool_call_id for m in fixed if isinstance(m, ToolResultMessage)] == ["c2", "c3"]
    assert len(notes) == 1
    assert repaired(fixed, waiting=["c1"]) == (fixed, [])


def test_a_call_waits_for_nobody_once_the_conversation_went_on() -> None:
    fixed, _ = repaired([asks("a", "c1"), user("u")], waiting={"c1"})
    assert tool_cycle_faults(fixed) == []
    assert len(fixed) == 3


_names = st.sampled_from(["1", "2", "3", "4", "5", "6"])
_calls = st.sampled_from(["x", "y", "z"])
_messages = st.one_of(
    _names.map(user),
    st.builds(lambda name, calls: asks(name, *calls), _names, st.lists(_calls, max_size=3)),
    st.builds(result, _names, _calls),
    st.builds(says, _names, st.sampled_from(["", "word"])),
)


@given(st.lists(_messages, max_size=12), st.sets(_calls))
def test_whatever_was_left_becomes_valid_and_stays_as_it_is(messages: list[Message], waiting: set[str]) -> None:
    fixed, _ = repaired(messages)
    assert tool_cycle_faults(fixed) == []
    assert repaired(fixed) == (fixed, [])
    suspended, _ = repaired(messages, waiting=waiting)
    assert repaired(suspended, waiting=waiting) == (suspended, [])
    assert tool_cycle_faults(repaired(suspended)[0]) == []


def test_the_cost_of_repairing_grows_with_the_number_of_messages_only() -> None:
    def calls(count: int) -> int:
        made = 0

        def note(*_: object) -> None:
            nonlocal made
            made += 1

        messages: list[Message] = []
        for turn in range(count):
            messages += [asks(f"a{turn}", f"c{turn}", f"d{turn}"), result(f"r{turn}", f"d{turn}")]
        sys.setprofile(note)
        try:
            repaired(messages)
        finally:
            sys.setprofile(None)
        return made

    assert calls(800) < 8.1 * calls(100)
