"""What is sent to Anthropic."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from cubepi_anyio.providers.anthropic import request
from cubepi_anyio.providers.anthropic.request import API, convert_messages
from cubepi_anyio.types import (
    AssistantMessage,
    Content,
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
from tests.recordings import MISSING, Recording, body_of, recordings

from ..payloads import asking
from .reading import read

build_payload = asking(request.build_payload)

MODEL = Model(id="claude", provider="anthropic", max_tokens=4000)
THINKING = ThinkingContent(thinking="hm", signature="c2ln+/==")
REDACTED = ThinkingContent(redacted="ZW5j+/==")


def user(*content: Any) -> UserMessage:
    return UserMessage(content=[TextContent(text=part) if isinstance(part, str) else part for part in content])


def assistant(*content: Any, **fields: Any) -> AssistantMessage:
    blocks = [TextContent(text=part) if isinstance(part, str) else part for part in content]
    known: dict[str, Any] = {"api": API, "provider_id": "anthropic", **fields}
    return AssistantMessage(content=blocks, **known)


def result(call_id: str, *content: Any, is_error: bool = False) -> ToolResultMessage:
    blocks = user(*content).content
    return ToolResultMessage(tool_call_id=call_id, tool_name="t", content=blocks, is_error=is_error)


def call(call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name="t", arguments=arguments)


def sent(*messages: Message) -> list[Any]:
    return convert_messages(messages, provider_id="anthropic")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool_use(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "t", "input": arguments}


def tool_result(call_id: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": list(content)}


def test_a_plain_request_is_complete() -> None:
    payload = build_payload(MODEL, [user("hi")], system_prompt="Be brief.", cache_retention="none")
    assert payload == {
        "model": "claude",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "system": "Be brief.",
        "stream": True,
    }


def test_options_win_over_the_model() -> None:
    model = MODEL.model_copy(update={"temperature": 0.5})
    payload = build_payload(model, [user("hi")], max_output_tokens=10, temperature=0.0)
    assert (payload["max_tokens"], payload["temperature"]) == (10, 0.0)
    assert build_payload(model, [user("hi")])["temperature"] == 0.5


def test_results_of_a_batch_are_one_turn_before_what_the_user_says_next() -> None:
    assert sent(
        user("go"),
        assistant("I will", call("a", n=1), call("b")),
        result("a", "1"),
        result("b", "2"),
        user("and then"),
        user("more"),
    ) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [text("I will"), tool_use("a", n=1), tool_use("b")]},
        {
            "role": "user",
            "content": [tool_result("a", text("1")), tool_result("b", text("2")), text("and then"), text("more")],
        },
    ]


def test_results_carry_pictures_documents_and_whether_they_are_errors() -> None:
    picture = ImageContent(source="iVBORw0=", media_type="image/png")
    blocks = sent(
        assistant(call("a"), call("b"), call("c"), call("d")),
        result("a", "see", picture, DocumentContent(source="JVBERg==")),
        result("b", "bad", is_error=True),
        result("c"),
        result("d", is_error=True),
    )[1]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    assert blocks == [
        tool_result("a", text("see"), {"type": "image", "source": source}, {"type": "document", "source": pdf}),
        {**tool_result("b", text("bad")), "is_error": True},
        {"type": "tool_result", "tool_use_id": "c"},
        {**tool_result("d", text("the tool failed and gave no reason")), "is_error": True},
    ]


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (ImageContent(url="https://x/y.png"), {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
        (
            ImageContent(source="/9j/4AAQ"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}},
        ),
        (
            ImageContent(source="????"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "????"}},
        ),
        (
            DocumentContent(url="https://x/y.pdf", title="Y", vendor={"citations": {"enabled": True}}),
            {
                "type": "document",
                "source": {"type": "url", "url": "https://x/y.pdf"},
                "title": "Y",
                "citations": {"enabled": True},
            },
        ),
        (
            DocumentContent(source=base64.b64encode("é".encode()).decode(), media_type="text/markdown"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
        ),
        (
            DocumentContent(source="plain words", media_type="text/plain"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain words"}},
        ),
    ],
)
def test_pictures_and_documents_have_their_source(content: Any, block: dict[str, Any]) -> None:
    assert sent(user(content)) == [{"role": "user", "content": [block]}]


def test_what_is_empty_is_not_sent() -> None:
    assert sent(user("", "  \n"), user(), assistant(), assistant(" "), user("hi", "")) == [
        {"role": "user", "content": [text("hi")]}
    ]


def test_notes_of_the_application_are_never_sent() -> None:
    noted = user("hi").model_copy(update={"id": "m1", "metadata": {"secret": 1}, "timestamp": 1.0})
    answered = ToolResultMessage(
        tool_call_id="a", tool_name="t", content=[TextContent(text="x")], details={"secret": 1}, metadata={"secret": 1}
    )
    said = assistant(call("a")).model_copy(update={"metadata": {"secret": 1}, "request_id": "secret"})
    assert "secret" not in repr(sent(noted, said, answered))


def test_thinking_goes_back_as_it_came_and_in_its_place() -> None:
    blocks = sent(user("hi"), assistant(THINKING, REDACTED, "so", call("a")), result("a", "1"))[1]["content"]
    assert blocks == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln+/=="},
        {"type": "redacted_thinking", "data": "ZW5j+/=="},
        text("so"),
        tool_use("a"),
    ]


def test_unsigned_thinking_and_thinking_alone_stay_here() -> None:
    assert sent(user("hi"), assistant(ThinkingContent(thinking="hm"), "so"), user("go"))[1]["content"] == [text("so")]
    assert sent(user("hi"), assistant(THINKING), user("go")) == [{"role": "user", "content": [text("hi"), text("go")]}]


@pytest.mark.parametrize("origin", [{"api": "openai-responses"}, {"api": ""}, {"provider_id": "gateway"}])
def test_what_another_vendor_signed_or_alone_understands_stays_here(origin: dict[str, str]) -> None:
    cited = TextContent(text="so", vendor={"citations": [{"type": "x"}]})
    program = ToolCall(id="a", name="t", vendor={"caller": {"type": "program"}})
    opaque = OpaqueContent(kind="server_tool_use", data={"type": "server_tool_use"})
    message = assistant(THINKING, REDACTED, opaque, cited, program, **origin)
    assert sent(user("hi"), message, result("a", "1"))[1]["content"] == [text("so"), tool_use("a")]


def test_citations_callers_and_vendor_blocks_go_back_to_their_vendor() -> None:
    cited = TextContent(text="so", vendor={"citations": [{"type": "x"}]})
    program = ToolCall(id="a", name="t", vendor={"caller": {"type": "program"}})
    data = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}
    opaque = OpaqueContent(kind="server_tool_use", data=data)
    assert sent(user("hi"), assistant(opaque, cited, program), result("a", "1"))[1]["content"] == [
        data,
        {**text("so"), "citations": [{"type": "x"}]},
        {**tool_use("a"), "caller": {"type": "program"}},
    ]


@pytest.mark.parametrize("stop_reason", ["aborted", "error", "length"])
def test_of_a_broken_answer_only_what_is_whole_is_sent(stop_reason: str) -> None:
    server_call = OpaqueContent(kind="server_tool_use", data={"type": "server_tool_use", "id": "s"})
    answered = OpaqueContent(kind="mcp_tool_use", data={"type": "mcp_tool_use", "id": "m"})
    answer = OpaqueContent(kind="mcp_tool_result", data={"type": "mcp_tool_result", "tool_use_id": "m"})
    broken = assistant("so", answered, answer, call("a"), call("b"), server_call, stop_reason=stop_reason)
    turns = sent(user("hi"), broken, result("a", "not run", is_error=True), user("again"))
    assert turns[1]["content"] == [text("so"), answered.data, answer.data, tool_use("a")]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]


def test_a_broken_answer_of_which_nothing_is_left_vanishes() -> None:
    assert sent(user("hi"), assistant(THINKING, call("a"), stop_reason="aborted"), user("again")) == [
        {"role": "user", "content": [text("hi"), text("again")]}
    ]


def test_a_paused_turn_goes_back_with_its_open_call() -> None:
    data = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    paused = assistant("so", OpaqueContent(kind="server_tool_use", data=data), stop_reason="pause_turn")
    assert sent(user("hi"), paused)[1]["content"] == [text("so"), data]


def test_the_text_the_model_goes_on_from_has_no_white_space_at_its_end() -> None:
    assert sent(user("hi"), assistant("so \n"))[1]["content"] == [text("so")]
    assert sent(user("hi"), assistant("so \n"), user("go"))[1]["content"] == [text("so \n")]


def test_ids_of_other_vendors_are_written_in_the_letters_this_one_takes() -> None:
    turns = sent(user("hi"), assistant(call("call_1|fc/2"), api="openai-responses"), result("call_1|fc/2", "1"))
    assert turns[1]["content"][0]["id"] == turns[2]["content"][0]["tool_use_id"] == "call_1_fc_2"


def test_tools_have_a_schema_and_a_description_if_there_is_one() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = [ToolDefinition(name="a", description="Adds.", parameters=schema), ToolDefinition(name="b")]
    assert build_payload(MODEL, [user("hi")], tools=tools, cache_retention="none")["tools"] == [
        {"name": "a", "description": "Adds.", "input_schema": {"type": "object", **schema}},
        {"name": "b", "input_schema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("add", {"type": "tool", "name": "add"}),
    ],
)
def test_the_choice_of_tools_is_sent_with_tools_only(choice: str, wire: dict[str, Any]) -> None:
    tools = [ToolDefinition(name="add")]
    assert build_payload(MODEL, [user("hi")], tools=tools, tool_choice=choice)["tool_choice"] == wire
    assert "tool_choice" not in build_payload(MODEL, [user("hi")], tool_choice=choice)


# --- thinking --------------------------------------------------------------------------------


def thinking(reasoning: ReasoningControl, **options: Any) -> dict[str, Any]:
    options = {"cache_retention": "none", **options}
    payload = build_payload(
        options.pop("model", MODEL), options.pop("messages", [user("hi")]), reasoning=reasoning, **options
    )
    return {key: payload[key] for key in ("max_tokens", "thinking", "temperature", "output_config") if key in payload}


@pytest.mark.parametrize(
    ("effort", "budget_tokens"), [("minimal", 1024), ("low", 2048), ("medium", 8192), ("high", 16384), ("max", 32768)]
)
def test_thinking_has_its_tokens_on_top_of_the_answers(effort: Any, budget_tokens: int) -> None:
    assert thinking(ReasoningControl(mode="on", effort=effort), temperature=0.5) == {
        "max_tokens": 4000 + budget_tokens,
        "thinking": {"type": "enabled", "budget_tokens": budget_tokens},
    }


def test_a_budget_is_at_least_what_the_vendor_takes_and_leaves_room_for_an_answer() -> None:
    small = MODEL.model_copy(update={"context_window": 10_000})
    assert thinking(ReasoningControl(mode="on", budget_tokens=1))["thinking"]["budget_tokens"] == 1024
    assert thinking(ReasoningControl(mode="on", budget_tokens=50_000), model=small) == {
        "max_tokens": 10_000,
        "thinking": {"type": "enabled", "budget_tokens": 10_000 - 1024},
    }
    tiny = MODEL.model_copy(update={"context_window": 2000, "max_tokens": 500})
    assert thinking(ReasoningControl(mode="on"), model=tiny) == {"max_tokens": 500}


def test_thinking_left_to_the_model_says_how_hard() -> None:
    assert thinking(ReasoningControl(mode="auto", effort="minimal", summary="auto")) == {
        "max_tokens": 4000,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low"},
    }


def test_thinking_is_switched_off_only_where_it_could_be_on() -> None:
    assert thinking(ReasoningControl(mode="off")) == {"max_tokens": 4000}
    able = MODEL.model_copy(update={"reasoning": True})
    assert thinking(ReasoningControl(mode="off"), model=able)["thinking"] == {"type": "disabled"}


def test_thinking_gives_way_to_a_forced_call_and_to_a_turn_begun_without_it() -> None:
    tools = [ToolDefinition(name="t")]
    on = ReasoningControl(mode="on")
    assert "thinking" not in thinking(on, tools=tools, tool_choice="t", temperature=0.5)
    foreign = [user("hi"), assistant(call("a"), api="openai-chat"), result("a", "1")]
    assert "thinking" not in thinking(on, tools=tools, messages=foreign)
    own = [user("hi"), assistant(THINKING, call("a")), result("a", "1")]
    assert "thinking" in thinking(on, tools=tools, messages=own)
    assert "thinking" in thinking(on, tools=tools, messages=[*foreign, assistant("so"), user("go")])


# --- the prompt cache ------------------------------------------------------------------------


def marked(payload: dict[str, Any]) -> list[str]:
    """Where marks stand: ``tools[-1]``, ``system`` and ``messages[i][j]``."""
    return list(_marks(payload, ""))


def _marks(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if "cache_control" in value:
            yield path
        for key, inner in value.items():
            yield from _marks(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _marks(inner, f"{path}[{index}]")


def test_the_prefix_and_the_last_two_user_turns_are_marked() -> None:
    transcript = [user("1"), assistant(call("a"), call("b")), result("a", "1"), result("b", "2"), user("2", "3")]
    tools = [ToolDefinition(name="a"), ToolDefinition(name="b")]
    payload = build_payload(MODEL, transcript, system_prompt="s", tools=tools)
    assert set(marked(payload)) == {
        ".tools[1]",
        ".system[0]",
        ".messages[0].content[0]",
        ".messages[2].content[3]",
    }
    assert payload["system"] == [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
    long = build_payload(MODEL, transcript, system_prompt="s", cache_retention="long")
    assert long["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert marked(build_payload(MODEL, transcript, system_prompt="s", tools=tools, cache_retention="none")) == []


def test_nothing_that_was_given_is_changed() -> None:
    data = {"type": "server_tool_use", "id": "s"}
    transcript = [
        user("1", DocumentContent(source="JVBERg==", vendor={"citations": {"enabled": True}})),
        assistant("so ", OpaqueContent(kind="server_tool_use", data=data), call("a", n=[1])),
        result("a", "x"),
        assistant("end "),
    ]
    tools = [ToolDefinition(name="a", parameters={"type": "object"}), ToolDefinition(name="b")]
    before = copy.deepcopy((transcript, tools))
    payloads = [build_payload(MODEL, transcript, system_prompt="s", tools=tools) for _ in range(2)]
    assert (transcript, tools) == before
    assert payloads[0] == payloads[1]


# --- recordings ------------------------------------------------------------------------------


def recorded_sequences() -> dict[str, list[Recording]]:
    groups: dict[str, list[Recording]] = {}
    for recording in recordings("anthropic-messages"):
        if recording.get("sequence"):
            groups.setdefault(recording["sequence"]["group"], []).append(recording)
    return {name: sorted(group, key=lambda each: each["sequence"]["index"]) for name, group in groups.items()}


def normal(value: Any) -> Any:
    """Undo what differs between clients and means the same: nulls, texts as strings, marks, blanks, false flags."""
    if isinstance(value, list):
        return [normal(item) for item in value if not (isinstance(item, dict) and item.get("text", "x").isspace())]
    if not isinstance(value, dict):
        return value
    kept = {key: normal(item) for key, item in value.items() if item is not None and key != "cache_control"}
    if isinstance(kept.get("content"), str):
        kept["content"] = [{"type": "text", "text": kept["content"]}]
    if kept.get("is_error") is False:
        del kept["is_error"]
    return kept


def _results(turn: dict[str, Any]) -> list[Message]:
    """Our messages for the tool results of a recorded turn."""
    messages: list[Message] = []
    for block in normal(turn)["content"]:
        if block["type"] == "tool_result":
            content: list[Content] = [TextContent(text=part["text"]) for part in block.get("content", [])]
            failed = block.get("is_error", False)
            messages.append(
                ToolResultMessage(tool_call_id=block["tool_use_id"], tool_name="t", content=content, is_error=failed)
            )
        else:
            messages.append(user(block["text"]))
    return messages


@pytest.mark.needs_shared
def test_a_recorded_conversation_is_sent_back_as_its_own_client_did() -> None:
    sequences = recorded_sequences()
    if not sequences:
        pytest.skip(MISSING)
    compared = 0
    for group in sequences.values():
        transcript = _results(group[0]["request"]["json"]["messages"][0])
        for before, after in pairwise(group):
            answer = read(body_of(before), whole=not before["response"]["stream"]).message
            transcript.append(answer.model_copy(update={"provider_id": "anthropic"}))
            wanted = normal(after["request"]["json"]["messages"])
            transcript += _results(wanted[-1])
            assert normal(sent(*transcript)) == wanted, after["id"]
            compared += 1
    assert compared >= 6
