"""Messages, models, usage: what they accept, and that they survive JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from cubepi_anyio.types import (
    AssistantContent,
    AssistantMessage,
    DocumentContent,
    ImageContent,
    Message,
    Model,
    ModelCost,
    OpaqueContent,
    ReasoningControl,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDefinition,
    ToolResultMessage,
    Usage,
    UserMessage,
    message_adapter,
    text_of,
)

EVERY_MESSAGE: list[Message] = [
    UserMessage(
        id="u",
        timestamp=1.5,
        metadata={"k": [1, None]},
        run_id="r",
        content=[
            TextContent(text="é🌍\u2028"),
            ImageContent(source="AA==", media_type="image/png"),
            DocumentContent(source="AA==", title="t"),
        ],
    ),
    AssistantMessage(
        content=[
            ThinkingContent(thinking="t", signature="s", vendor={"v": 1}),
            ThinkingContent(redacted="r"),
            TextContent(text="a"),
            ToolCall(id="1", name="t", arguments={"a": {"b": [1, 2.5, None, True]}}),
            ToolCall(id="2", name="t", invalid_arguments='{"cut'),
            ImageContent(url="https://example.org/x.png"),
            OpaqueContent(kind="k", data={"d": {}}),
        ],
        stop_reason="error",
        error_message="m",
        error_type="E",
        usage=Usage(input_tokens=1),
        provider_id="p",
        model_id="m",
        api="w",
        response_id="r",
        request_id="q",
    ),
    ToolResultMessage(
        tool_call_id="1", tool_name="t", content=[TextContent(text="x")], details={"raw": [1]}, is_error=True
    ),
]


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: message.role)
def test_a_message_survives_json(message: Message) -> None:
    assert message_adapter.validate_json(message_adapter.dump_json(message)) == message


def test_details_that_are_a_model_are_written_as_what_they_are() -> None:
    class Details(BaseModel):
        found: int

    message = ToolResultMessage(tool_call_id="1", tool_name="t", details=Details(found=3))
    assert message_adapter.dump_python(message)["details"] == {"found": 3}
    assert ToolResultMessage.model_validate_json(message.model_dump_json()).details == {"found": 3}


@pytest.mark.parametrize(
    "build",
    [
        lambda: TextContent(txt="x"),  # type: ignore[reportCallIssue]
        lambda: UserMessage(contents=[]),  # type: ignore[reportCallIssue]
        lambda: Usage(tokens=1),  # type: ignore[reportCallIssue]
        lambda: Model(id="m", max_token=1),  # type: ignore[reportCallIssue]
        lambda: ToolDefinition(name="t", schema={}),  # type: ignore[reportCallIssue]
        lambda: UserMessage(content=[ToolCall(id="1", name="t")]),  # type: ignore[reportArgumentType]
        lambda: message_adapter.validate_python({"role": "system", "content": []}),
    ],
)
def test_what_is_misspelt_or_misplaced_is_refused(build: Any) -> None:
    with pytest.raises(ValidationError):
        build()


def test_the_text_of_a_message_is_its_text_blocks() -> None:
    blocks: list[AssistantContent] = [TextContent(text="a"), ThinkingContent(thinking="no"), TextContent(text="b")]
    assert AssistantMessage(content=blocks).text == "ab"
    assert text_of(blocks) == "ab"
    assert UserMessage(content=[ImageContent(), TextContent(text="c")]).text == "c"
    assert ToolResultMessage(tool_call_id="1", tool_name="t", content=[TextContent(text="d")]).text == "d"


def test_two_messages_share_no_list_and_no_dict() -> None:
    first, second = AssistantMessage(), AssistantMessage()
    first.content.append(TextContent(text="x"))
    first.metadata["k"] = 1
    assert (second.content, second.metadata) == ([], {})
    assert ToolCall(id="1", name="t").arguments is not ToolCall(id="2", name="t").arguments


def test_provider_and_provider_id_of_a_model_are_the_same_field() -> None:
    assert Model(id="m", provider="p") == Model(id="m", provider_id="p")  # type: ignore[reportCallIssue]
    assert Model(id="m", provider="p").provider_id == "p"
    assert Model.model_validate({"id": "m", "provider": "p", "provider_id": "p"}).provider == "p"
    with pytest.raises(ValidationError, match="same field"):
        Model.model_validate({"id": "m", "provider": "p", "provider_id": "q"})


def test_validating_a_model_leaves_the_callers_dict_as_it_was() -> None:
    given: dict[str, Any] = {"id": "m", "provider_id": "p"}
    Model.model_validate(given)
    assert given == {"id": "m", "provider_id": "p"}


def test_models_cannot_be_changed_under_a_running_agent() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Model(id="m").id = "other"
    with pytest.raises(ValidationError, match="frozen"):
        ReasoningControl().mode = "on"


usages = st.builds(Usage, **{name: st.integers(0, 10**9) for name in Usage.model_fields})


@given(usages, usages, usages)
def test_usage_adds_up(first: Usage, second: Usage, third: Usage) -> None:
    assert first + second == second + first
    assert (first + second) + third == first + (second + third)
    assert first + Usage() == first
    assert (
        sum([first, second, third], Usage()).total_tokens
        == first.total_tokens + second.total_tokens + third.total_tokens
    )
    assert first.total_tokens == first.context_tokens + first.output_tokens


def test_reasoning_is_part_of_the_output_and_cached_tokens_are_part_of_the_context() -> None:
    usage = Usage(
        input_tokens=1, cache_read_tokens=10, cache_write_tokens=100, output_tokens=1000, reasoning_tokens=900
    )
    assert (usage.context_tokens, usage.total_tokens) == (111, 1111)


def test_cost_is_in_dollars_for_a_million_tokens_and_counts_reasoning_once() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        output_tokens=2_000_000,
        cache_read_tokens=3_000_000,
        cache_write_tokens=4_000_000,
        reasoning_tokens=1_000_000,
    )
    cost = ModelCost(input=1.0, output=10.0, cache_read=0.1, cache_write=1.25)
    assert cost.of(usage) == pytest.approx(1 + 20 + 0.3 + 5)
    assert ModelCost().of(usage) == 0
