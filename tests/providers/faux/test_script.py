"""The helpers that write a script, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio.providers import (
    FauxProvider,
    FauxResponse,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.types import AssistantMessage, TextContent, ThinkingContent, ToolCall, Usage


def test_the_block_helpers_make_the_blocks_they_name() -> None:
    assert faux_text("Hi") == TextContent(text="Hi")
    assert faux_thinking("Hm") == ThinkingContent(thinking="Hm")
    assert faux_thinking("Hm", "sig").signature == "sig"
    assert faux_tool_call("add", {"a": 1}, id="c1") == ToolCall(id="c1", name="add", arguments={"a": 1})


def test_calls_without_an_id_get_different_ones() -> None:
    assert len({faux_tool_call("add", {}).id for _ in range(100)}) == 100


def test_arguments_given_as_text_are_what_the_model_writes() -> None:
    assert faux_tool_call("add", "{oops", id="c1").invalid_arguments == "{oops"


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("Hi", [TextContent(text="Hi")]),
        (faux_text("Hi"), [TextContent(text="Hi")]),
        (["Hi", faux_thinking("Hm")], [TextContent(text="Hi"), ThinkingContent(thinking="Hm")]),
        ([], []),
    ],
)
def test_a_message_is_made_from_a_text_a_block_or_a_list(content: Any, blocks: list[Any]) -> None:
    message = faux_assistant_message(content)
    assert message.content == blocks
    assert message.stop_reason == "stop"


def test_the_stop_reason_follows_from_the_content_unless_it_is_given() -> None:
    call = faux_tool_call("add", {})
    assert faux_assistant_message(["Hi", call]).stop_reason == "tool_use"
    assert faux_assistant_message(call, stop_reason="length").stop_reason == "length"
    assert faux_assistant_message("Hi", error_message="down").stop_reason == "error"


def test_a_message_keeps_the_usage_and_the_error_message_it_was_given() -> None:
    message = faux_assistant_message("Hi", error_message="down", usage=Usage(input_tokens=7))
    assert (message.error_message, message.usage) == ("down", Usage(input_tokens=7))


@pytest.mark.parametrize("field", ["stall_after_deltas", "end_after_deltas"])
def test_a_fault_before_the_first_delta_is_at_zero_and_never_below(field: str) -> None:
    faults: dict[str, Any] = {field: -1}
    with pytest.raises(ValueError, match="0 or more"):
        FauxResponse("Hi", **faults)


def test_a_place_to_fail_needs_an_error_to_fail_with() -> None:
    with pytest.raises(ValueError, match="fail_with="):
        FauxResponse("Hi", fail_after_deltas=1)


def test_a_response_gives_its_message_whatever_it_was_given_as() -> None:
    message = AssistantMessage(content=[faux_text("Hi")], stop_reason="length")
    assert FauxResponse(message).answer() is message
    assert FauxResponse("Hi").answer() == faux_assistant_message("Hi")


@pytest.mark.parametrize("wrong", [3, None, {"text": "Hi"}])
def test_what_no_model_can_say_is_refused_when_it_is_queued(wrong: Any) -> None:
    provider = FauxProvider()
    provider.set_responses(["Hi"])
    with pytest.raises(TypeError, match=type(wrong).__name__):
        provider.set_responses([wrong])
    with pytest.raises(TypeError, match=type(wrong).__name__):
        provider.append_responses(["there", wrong])
    assert provider.pending_response_count == 1


def test_a_single_text_in_place_of_the_list_is_refused() -> None:
    with pytest.raises(TypeError, match="list of responses"):
        FauxProvider().set_responses("Hi")


@pytest.mark.parametrize("sizes", [(0, 5), (5, 4)])
def test_token_sizes_that_make_no_sense_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="token sizes"):
        FauxProvider(token_size_min=sizes[0], token_size_max=sizes[1])


@pytest.mark.parametrize("pace", [0, -1.0, float("nan")])
def test_a_pace_that_never_arrives_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="tokens_per_second"):
        FauxProvider(tokens_per_second=pace)
