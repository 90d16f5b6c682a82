"""What goes out to the Responses API, and what never does."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from cubepi_anyio.errors import ToolDefinitionError
from cubepi_anyio.providers.openai_responses import request
from cubepi_anyio.providers.openai_responses.request import API
from cubepi_anyio.types import (
    AssistantMessage,
    DocumentContent,
    ImageContent,
    Message,
    Model,
    OpaqueContent,
    ReasoningControl,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDefinition,
    ToolResultMessage,
    UserMessage,
)

from ..payloads import asking
from .reading import call, created, done, end, message, read, reasoning

build_payload = asking(request.build_payload)

MODEL = Model(id="gpt", provider="openai")
THINKER = Model(id="gpt", provider="openai", reasoning=True)
PIXEL = "iVBORw0KGgo="


def user(*content: Any) -> UserMessage:
    return UserMessage(content=[TextContent(text=each) if isinstance(each, str) else each for each in content])


def said(*content: Any, provider_id: str = "openai", api: str = API, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=list(content), provider_id=provider_id, api=api, **fields)


def result(call_id: str, *content: Any, **fields: Any) -> ToolResultMessage:
    blocks = [TextContent(text=each) if isinstance(each, str) else each for each in content]
    return ToolResultMessage(tool_call_id=call_id, tool_name="f", content=blocks, **fields)


def answer(*pieces: bytes, **fields: Any) -> AssistantMessage:
    """The message that these events make."""
    found = read(created() + b"".join(pieces) + end()).message
    return found.model_copy(update={"provider_id": "openai", "model_id": "gpt", **fields})


def items(*messages: Message, model: Model = MODEL, **options: Any) -> list[dict[str, Any]]:
    return build_payload(model, messages, **options)["input"]


def kinds(*messages: Message, **options: Any) -> list[str]:
    """The items of a request in a word each: type or role, and whether the vendor would know it again."""
    return [
        f"{each.get('type', each.get('role'))}{' ' + each['id'] if 'id' in each else ''}"
        for each in items(*messages, **options)
    ]


# --- the payload -----------------------------------------------------------------------------


def test_a_payload_says_no_more_than_it_has_to() -> None:
    assert build_payload(MODEL, [user("hi")]) == {
        "model": "gpt",
        "stream": True,
        "store": False,
        "input": [{"role": "user", "content": "hi"}],
    }


def test_the_system_prompt_goes_where_it_is_told_to() -> None:
    assert build_payload(MODEL, [user("hi")], system_prompt="Be brief.")["instructions"] == "Be brief."
    for place in ("developer", "system"):
        payload = build_payload(MODEL, [user("hi")], system_prompt="Be brief.", system_prompt_place=place)
        assert payload["input"][0] == {"role": place, "content": "Be brief."}
        assert "instructions" not in payload
    assert "instructions" not in build_payload(MODEL, [user("hi")], system_prompt=" \n")


def test_tokens_are_limited_where_call_or_model_say_so() -> None:
    def limit(model: Model, asked: int | None = None) -> Any:
        return build_payload(model, [user("hi")], max_output_tokens=asked).get("max_output_tokens")

    small = Model(id="gpt", provider="openai", max_tokens=100)
    assert [limit(MODEL), limit(small), limit(small, 50), limit(MODEL, 8192)] == [None, 100, 50, 8192]


@pytest.mark.parametrize(
    ("model", "control", "expected"),
    [
        (MODEL, None, {}),
        (MODEL, ReasoningControl(), {}),
        (THINKER, None, {"include": ["reasoning.encrypted_content"]}),
        (THINKER, ReasoningControl(), {"reasoning": {"effort": "none"}, "include": ["reasoning.encrypted_content"]}),
        (
            MODEL,
            ReasoningControl(mode="on", effort="minimal"),
            {"reasoning": {"effort": "minimal"}, "include": ["reasoning.encrypted_content"]},
        ),
        (
            MODEL,
            ReasoningControl(mode="auto", effort="max", summary="summarized"),
            {"reasoning": {"effort": "xhigh", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        ),
        (
            MODEL,
            ReasoningControl(mode="on", effort="high", summary="detailed"),
            {"reasoning": {"effort": "high", "summary": "detailed"}, "include": ["reasoning.encrypted_content"]},
        ),
    ],
)
def test_reasoning_is_asked_for_and_wanted_back_encrypted(
    model: Model, control: ReasoningControl | None, expected: dict[str, Any]
) -> None:
    payload = build_payload(model, [user("hi")], reasoning=control)
    assert {name: payload[name] for name in ("reasoning", "include") if name in payload} == expected


def test_a_stored_answer_needs_no_encrypted_reasoning() -> None:
    payload = build_payload(THINKER, [user("hi")], store=True)
    assert (payload["store"], "include" in payload) == (True, False)


def test_a_model_that_reasons_is_told_no_temperature() -> None:
    on, off = ReasoningControl(mode="on"), ReasoningControl()
    assert build_payload(MODEL, [user("hi")], temperature=0.5)["temperature"] == 0.5
    assert build_payload(THINKER, [user("hi")], temperature=0.5, reasoning=off)["temperature"] == 0.5
    assert "temperature" not in build_payload(THINKER, [user("hi")], temperature=0.5)
    assert "temperature" not in build_payload(MODEL, [user("hi")], temperature=0.5, reasoning=on)


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def test_tools_are_flat_and_say_that_they_are_not_strict() -> None:
    tools = [ToolDefinition(name="f", description="Does f.", parameters=SCHEMA), ToolDefinition(name="g")]
    payload = build_payload(MODEL, [user("hi")], tools=tools)
    assert payload["tools"] == [
        {"type": "function", "name": "f", "description": "Does f.", "parameters": SCHEMA, "strict": False},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ]
    assert payload.keys().isdisjoint({"tool_choice", "parallel_tool_calls"})


def test_strict_tools_are_strict_where_that_can_hold() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "object"}}}
    tools = [ToolDefinition(name="f", parameters=SCHEMA), ToolDefinition(name="g", parameters=loose)]
    sent = build_payload(MODEL, [user("hi")], tools=tools, strict_tools="possible")["tools"]
    assert [tool["strict"] for tool in sent] == [True, False]
    assert sent[0]["parameters"]["required"] == ["a"]
    with pytest.raises(ToolDefinitionError, match="'g'"):
        build_payload(MODEL, [user("hi")], tools=tools, strict_tools="always")


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", "auto"), ("none", "none"), ("required", "required"), ("f", {"type": "function", "name": "f"})],
)
def test_a_choice_of_tools_is_flat_too(choice: str, sent: Any) -> None:
    payload = build_payload(MODEL, [user("hi")], tools=[ToolDefinition(name="f")], tool_choice=choice)
    assert payload["tool_choice"] == sent


def test_without_tools_nothing_is_said_of_their_choice() -> None:
    payload = build_payload(MODEL, [user("hi")], tool_choice="required", parallel_tool_calls=False)
    assert payload.keys().isdisjoint({"tool_choice", "parallel_tool_calls", "tools"})
    payload = build_payload(MODEL, [user("hi")], tools=[ToolDefinition(name="f")], parallel_tool_calls=False)
    assert payload["parallel_tool_calls"] is False


def test_nothing_of_the_transcript_is_changed_and_the_payload_is_the_same_each_time() -> None:
    transcript = [
        user("hi", ImageContent(source=PIXEL)),
        answer(reasoning(0, encrypted_content="x", status=None), message(1, "a"), call(2, "{}")),
        result("call_2", "r"),
    ]
    before = copy.deepcopy(transcript)
    payloads = [json.dumps(build_payload(THINKER, transcript)) for _ in range(2)]
    assert payloads[0] == payloads[1]
    assert transcript == before


# --- what people and tools say ---------------------------------------------------------------


def test_empty_text_never_goes_out() -> None:
    assert items(user(" ", "\n"), user("hi", ""), said(TextContent(text=" "))) == [{"role": "user", "content": "hi"}]


def test_pictures_and_documents_go_out_in_the_vendors_form() -> None:
    notes = base64.b64encode("Ålesund".encode()).decode()
    parts = items(
        user(
            "see",
            ImageContent(source=PIXEL),
            ImageContent(source="AAAA", media_type="image/webp"),
            ImageContent(url="https://example.org/a.png"),
            DocumentContent(source="JVBERi0=", title="a.pdf"),
            DocumentContent(url="https://example.org/a.pdf"),
            DocumentContent(source=notes, media_type="text/plain", title="notes"),
            DocumentContent(source="as it is", media_type="text/markdown"),
        )
    )[0]["content"]
    assert parts == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        {"type": "input_image", "image_url": "data:image/webp;base64,AAAA", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_text", "text": "notes:\nÅlesund"},
        {"type": "input_text", "text": "as it is"},
    ]


def test_a_result_is_text_or_parts_and_never_empty() -> None:
    calls = [ToolCall(id=each, name="f") for each in "abcd"]
    picture = ImageContent(source=PIXEL)
    results = [result("a", "1", "2"), result("b", "see", picture), result("c"), result("d", is_error=True)]
    assert [each["output"] for each in items(said(*calls), *results) if "output" in each] == [
        "1\n2",
        [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        ],
        "(no output)",
        "the tool failed and gave no reason",
    ]


# --- what the model said ---------------------------------------------------------------------


def test_an_answer_goes_back_as_the_items_it_came_in() -> None:
    cited = [{"type": "url_citation", "url": "https://example.org"}]
    content = [{"type": "output_text", "text": "Hi", "annotations": cited}]
    searched = {"id": "ws_2", "status": "completed", "action": {"query": "q"}, "results": None}
    message_ = answer(
        reasoning(0, encrypted_content="c2VhbGVk"),
        message(1, "Hi", content=content, phase="commentary"),
        done(2, "web_search_call", **searched),
        call(3, '{"a": 1}'),
    )
    assert items(message_, result("call_3", "r")) == [
        {"type": "reasoning", "summary": [], "id": "rs_0", "encrypted_content": "c2VhbGVk"},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "phase": "commentary",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi", "annotations": cited}],
        },
        {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"query": "q"}},
        {"type": "function_call", "id": "fc_3", "call_id": "call_3", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_3", "output": "r"},
    ]


def test_several_texts_of_one_item_are_one_item_again() -> None:
    content = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    sent = items(answer(done(0, "message", id="msg_0", content=content)))
    assert [each["content"] for each in sent] == [content]
    assert sent[0]["id"] == "msg_0"


def test_reasoning_is_the_items_own_to_the_byte() -> None:
    summary = [{"type": "summary_text", "text": "Hm  é\u2028"}]
    item = {"id": "rs_0", "summary": summary, "format": "x", "encrypted_content": "gAAAA+/=="}
    sent = items(answer(reasoning(0, **item), message(1, "x")))[0]
    assert sent == {"type": "reasoning", **item}
    assert "status" not in items(answer(reasoning(0, status=None, **item), message(1, "x")))[0]


@pytest.mark.parametrize(
    ("sent_back", "pieces"),
    [
        # Each with its reasoning, which stands directly before it.
        (["reasoning rs_0", "message msg_1"], [reasoning(0, encrypted_content="x"), message(1, "a")]),
        (
            ["reasoning rs_0", "function_call fc_1", "reasoning rs_2", "function_call fc_3"],
            [
                reasoning(0, encrypted_content="x"),
                call(1, "{}"),
                reasoning(2, encrypted_content="y"),
                call(3, "{}"),
            ],
        ),
        (
            ["reasoning rs_0", "reasoning rs_1", "message msg_2"],
            [reasoning(0, encrypted_content="x"), reasoning(1, encrypted_content="y"), message(2, "a")],
        ),
        # Reasoning without a follower stays, and nothing else does.
        (["message msg_0"], [message(0, "a"), reasoning(1, encrypted_content="x")]),
        ([], [reasoning(0, encrypted_content="x")]),
        # Reasoning that came unencrypted cannot go back, and what it led to goes back without its id.
        (["assistant"], [reasoning(0), message(1, "a")]),
        (["function_call", "function_call"], [reasoning(0), call(1, "{}"), call(2, "{}")]),
        (
            ["function_call", "reasoning rs_2", "function_call fc_3"],
            [reasoning(0), call(1, "{}"), reasoning(2, encrypted_content="x"), call(3, "{}")],
        ),
        (["assistant"], [reasoning(0), reasoning(1, encrypted_content="x"), message(2, "a")]),
        (["assistant"], [reasoning(0), done(1, "web_search_call", id="ws"), message(2, "a")]),
        # An item that came without an id cannot be the follower.
        (["assistant"], [reasoning(0, encrypted_content="x"), message(1, "a", id=None)]),
    ],
)
def test_reasoning_and_what_it_led_to_go_back_together_or_apart_from_each_other_unknown(
    sent_back: list[str], pieces: list[bytes]
) -> None:
    assert [each for each in kinds(answer(*pieces)) if each != "function_call_output"] == sent_back


def test_a_vendor_that_stores_its_answers_knows_reasoning_by_its_id() -> None:
    message_ = answer(reasoning(0), message(1, "a"))
    assert kinds(message_, store=True) == ["reasoning rs_0", "message msg_1"]
    assert kinds(message_, store=False) == ["assistant"]


def test_a_model_that_cannot_reason_is_not_shown_the_reasoning_of_another() -> None:
    message_ = answer(reasoning(0, encrypted_content="x"), message(1, "a"), model_id="o9")
    assert kinds(message_, model=MODEL) == ["assistant"]
    assert kinds(message_, model=THINKER) == ["reasoning rs_0", "message msg_1"]


@pytest.mark.parametrize("fields", [{"provider_id": "xai"}, {"api": "openai-chat"}])
def test_reasoning_ids_and_vendor_items_never_go_to_another_vendor(fields: dict[str, Any]) -> None:
    message_ = answer(
        reasoning(0, encrypted_content="x"),
        message(1, "a", phase="commentary"),
        done(2, "web_search_call", id="ws"),
        call(3, "{}"),
        **fields,
    )
    assert items(message_, result("call_3", "r")) == [
        {"role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "call_3", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_3", "output": "r"},
    ]


def test_another_vendors_answer_is_what_an_assistant_said() -> None:
    other = said(
        ThinkingContent(thinking="Hm", signature="theirs"),
        TextContent(text="a"),
        TextContent(text="b"),
        OpaqueContent(kind="server_tool_use"),
        ToolCall(id="toolu_1", name="f", arguments={"é": [1]}),
        provider_id="anthropic",
        api="anthropic-messages",
    )
    assert items(other, result("toolu_1", "r")) == [
        {"role": "assistant", "content": "ab"},
        {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": '{"é":[1]}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "r"},
    ]


# --- answers that were cut -------------------------------------------------------------------


def broken(*pieces: bytes, stop_reason: str = "aborted") -> AssistantMessage:
    """What is kept of an answer that these events began."""
    found = read(created() + b"".join(pieces)).broken
    return found.model_copy(update={"provider_id": "openai", "model_id": "gpt", "stop_reason": stop_reason})


def test_of_a_cut_answer_the_text_goes_back_without_its_reasoning_and_id() -> None:
    cut = message(1, "Hel", "lo").partition(b"event: response.output_item.done")[0]
    assert items(broken(reasoning(0, encrypted_content="x"), cut)) == [{"role": "assistant", "content": "Hello"}]


def test_of_a_cut_answer_reasoning_that_led_nowhere_does_not_go_back() -> None:
    assert items(broken(message(0, "a"), reasoning(1, encrypted_content="x"))) == items(broken(message(0, "a")))
    begun = call(1, '{"a').partition(b"event: response.output_item.done")[0]
    assert items(broken(reasoning(0, encrypted_content="x"), begun)) == []


@pytest.mark.parametrize("stop_reason", ["aborted", "error", "length"])
def test_of_a_cut_answer_only_calls_that_have_results_go_back(stop_reason: str) -> None:
    cut = broken(reasoning(0, encrypted_content="x"), call(1, "{}"), call(2, "{}"), stop_reason=stop_reason)
    assert kinds(cut, result("call_1", "r"), result("call_2", "r")) == [
        "reasoning rs_0",
        "function_call fc_1",
        "function_call fc_2",
        "function_call_output",
        "function_call_output",
    ]
    assert kinds(cut, result("call_1", "r"), user("go on"))[:3] == [
        "reasoning rs_0",
        "function_call fc_1",
        "function_call_output",
    ]
    # The first call is what the reasoning led to; without it, the other one goes alone.
    assert kinds(cut, result("call_2", "r")) == ["function_call", "function_call_output"]
    assert kinds(cut, user("go on")) == ["user"]


# --- ids -------------------------------------------------------------------------------------


def test_ids_of_other_vendors_that_are_too_long_are_replaced_alike_in_call_and_result() -> None:
    long = "x" * 65
    sent = items(said(ToolCall(id=long, name="f"), provider_id="other"), result(long, "r"))
    assert sent[0]["call_id"] == sent[1]["call_id"]
    assert 0 < len(sent[0]["call_id"]) <= 64
    own = items(said(ToolCall(id=long, name="f")), result(long, "r"))
    assert [each["call_id"] for each in own] == [long, long]


def test_ids_that_a_vendor_gives_again_in_its_next_answer_are_told_apart() -> None:
    sent = items(
        said(ToolCall(id="call_0", name="f"), ToolCall(id="call_1", name="f")),
        result("call_0", "a"),
        result("call_1", "b"),
        said(ToolCall(id="call_0", name="f")),
        result("call_0", "c"),
        said(ToolCall(id="call_0", name="f")),
        result("call_0", "d"),
    )
    called = [each["call_id"] for each in sent if each["type"] == "function_call"]
    answered = [each["call_id"] for each in sent if each["type"] == "function_call_output"]
    assert called == answered == ["call_0", "call_1", "call_0_2", "call_0_3"]


def test_a_call_of_a_free_text_tool_and_its_result_go_back_in_their_form() -> None:
    message_ = answer(done(0, "custom_tool_call", id="ctc_0", call_id="c", name="say", input='"é"'))
    assert items(message_, result("c", "r")) == [
        {"type": "custom_tool_call", "id": "ctc_0", "call_id": "c", "name": "say", "input": '"é"'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "r"},
    ]


def test_a_call_whose_arguments_were_no_json_goes_back_as_json() -> None:
    sent = items(answer(call(0, '{"a": [1')), result("call_0", "r", is_error=True))
    assert sent[0]["arguments"] == "{}"


def test_a_picture_goes_back_inside_its_item() -> None:
    item = {"type": "image_generation_call", "id": "ig_0", "status": "completed", "result": "UklGRg=="}
    assert items(answer(done(0, item["type"], **{k: v for k, v in item.items() if k != "type"}))) == [item]


def test_a_result_whose_call_is_not_there_keeps_its_id() -> None:
    assert items(result("c", "r")) == [{"type": "function_call_output", "call_id": "c", "output": "r"}]


def test_an_id_that_comes_back_thousands_of_times_is_another_each_time() -> None:
    turn = [answer(reasoning(0, encrypted_content="x"), call(1, "{}")), result("call_1", "r")]
    sent = items(*(turn * 3000))
    assert len({each["call_id"] for each in sent if each["type"] == "function_call"}) == 3000
