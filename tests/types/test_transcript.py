"""Each call is answered exactly once, in order, at once."""

from __future__ import annotations

import pytest

from cubepi_anyio.types import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool_cycle_faults,
)


def says(*ids: str) -> AssistantMessage:
    return AssistantMessage(content=[TextContent(text="x"), *(ToolCall(id=each, name="t") for each in ids)])


def answers(id: str) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=id, tool_name="t")


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
