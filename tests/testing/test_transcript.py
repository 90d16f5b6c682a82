from __future__ import annotations

import pytest

from cubepi_anyio import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from cubepi_anyio.testing import check_transcript

ASKED = UserMessage(content=[TextContent(text="Go.")])
CALL = ToolCall(id="c1", name="echo")
CALLED = AssistantMessage(content=[CALL], stop_reason="tool_use")
RESULT = ToolResultMessage(tool_call_id="c1", tool_name="echo", content=[TextContent(text="echoed")])


def test_a_whole_transcript_has_no_faults() -> None:
    assert check_transcript([ASKED, CALLED, RESULT, AssistantMessage(content=[TextContent(text="Done.")])]) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([ASKED, CALLED], "message 2: call 'c1' (echo) has no result"),
        ([ASKED, RESULT], "message 1: result 'c1' answers no call before it"),
        ([ASKED, AssistantMessage()], "message 1 (assistant): it has no content"),
        (
            [ASKED, AssistantMessage(content=[TextContent(text=" ")])],
            "message 1 (assistant): the text of block 0 is empty",
        ),
        (
            [ASKED, AssistantMessage(content=[ThinkingContent(thinking="hm")], stop_reason="aborted")],
            "message 1 (assistant): the message was cut, and the thinking of block 0 has no signature",
        ),
        (
            [
                ASKED,
                AssistantMessage(
                    content=[ToolCall(id="c1", name="echo", invalid_arguments='{"a')], stop_reason="error"
                ),
                RESULT,
            ],
            "message 1 (assistant): the message was cut in the arguments of call 'c1'",
        ),
        (
            [UserMessage(id="1", content=ASKED.content), UserMessage(id="1", content=ASKED.content)],
            "two messages have the id '1'",
        ),
    ],
)
def test_each_fault_is_said(messages: list[Message], fault: str) -> None:
    assert check_transcript(messages) == [fault]


def test_whole_thinking_without_a_signature_is_no_fault() -> None:
    assert (
        check_transcript([ASKED, AssistantMessage(content=[ThinkingContent(thinking="hm"), TextContent(text="Hi.")])])
        == []
    )
