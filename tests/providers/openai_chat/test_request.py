"""What is sent to Chat Completions."""

from __future__ import annotations

import base64
import copy
import re
from itertools import pairwise
from typing import Any

import pytest

from cubepi_anyio.errors import ProviderBadRequest, ToolDefinitionError
from cubepi_anyio.providers.openai_chat import request
from cubepi_anyio.providers.openai_chat.presets import PRESETS, Quirks
from cubepi_anyio.providers.openai_chat.request import API, convert_messages
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

MODEL = Model(id="gpt", provider="openai")
PNG = "iVBORw0KGgo="


def user(*content: str | Content) -> UserMessage:
    return UserMessage(content=[TextContent(text=each) if isinstance(each, str) else each for each in content])


def assistant(*content: Any, vendor: str = "openai", api: str = API, **fields: Any) -> AssistantMessage:
    blocks = [TextContent(text=each) if isinstance(each, str) else each for each in content]
    return AssistantMessage(content=blocks, provider_id=vendor, api=api, **fields)


def call(id: str = "1", name: str = "a", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def result(id: str, *content: str | Content, is_error: bool = False) -> ToolResultMessage:
    blocks: list[Content] = [TextContent(text=each) if isinstance(each, str) else each for each in content]
    return ToolResultMessage(tool_call_id=id, tool_name="a", content=blocks, is_error=is_error)


def sent(*messages: Message, vendor: str = "openai", **options: Any) -> list[dict[str, Any]]:
    quirks = PRESETS[vendor].quirks
    return convert_messages(messages, provider_id=vendor, quirks=quirks, **options)


def payload(**options: Any) -> dict[str, Any]:
    model = options.pop("model", MODEL)
    return build_payload(model, [user("hi")], **options)


# --- the request as a whole ------------------------------------------------------------------


def test_a_plain_request_asks_for_a_stream_with_usage_and_sets_no_limits() -> None:
    assert payload(system_prompt="Be brief.") == {
        "model": "gpt",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert payload(system_prompt=" ")["messages"] == [{"role": "user", "content": "hi"}]
    assert "stream_options" not in payload(quirks=PRESETS["mistral"].quirks)


def test_the_most_tokens_are_those_of_the_call_or_of_the_model_if_it_says_any() -> None:
    small = Model(id="m", provider="openai", max_tokens=100)
    assert payload(model=small)["max_completion_tokens"] == 100
    assert payload(model=small, max_output_tokens=5)["max_completion_tokens"] == 5
    assert payload(max_output_tokens=5, quirks=PRESETS["deepseek"].quirks)["max_tokens"] == 5


def test_a_temperature_is_not_said_to_a_model_of_openai_that_thinks() -> None:
    thinker = Model(id="o", provider="openai", reasoning=True, temperature=0.5)
    assert payload(temperature=0)["temperature"] == 0
    assert payload(model=Model(id="m", temperature=0.5))["temperature"] == 0.5
    assert "temperature" not in payload(model=thinker)
    assert payload(model=thinker, reasoning=ReasoningControl(mode="off"))["temperature"] == 0.5
    assert payload(model=thinker, quirks=PRESETS["vllm"].quirks)["temperature"] == 0.5


@pytest.mark.parametrize(
    ("vendor", "control", "said"),
    [
        ("openai", {"mode": "on", "effort": "high"}, {"reasoning_effort": "high"}),
        ("openai", {"mode": "auto", "effort": "max"}, {"reasoning_effort": "xhigh"}),
        ("openai", {"mode": "off"}, {"reasoning_effort": "none"}),
        ("openrouter", {"mode": "on", "effort": "low"}, {"reasoning": {"effort": "low"}}),
        ("openrouter", {"mode": "on", "budget_tokens": 2000}, {"reasoning": {"max_tokens": 2000}}),
        ("openrouter", {"mode": "off", "budget_tokens": 2000}, {"reasoning": {"effort": "none"}}),
        ("deepseek", {"mode": "on"}, {"thinking": {"type": "enabled"}}),
        ("deepseek", {"mode": "off"}, {"thinking": {"type": "disabled"}}),
        ("vllm", {"mode": "off"}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("llamacpp", {"mode": "on"}, {"chat_template_kwargs": {"enable_thinking": True}}),
    ],
)
def test_thinking_is_asked_for_in_the_vendors_words(vendor: str, control: Any, said: dict[str, Any]) -> None:
    thinker = Model(id="m", provider=vendor, reasoning=True)
    quirks = PRESETS[vendor].quirks
    with_it = payload(model=thinker, reasoning=ReasoningControl(**control), quirks=quirks)
    assert with_it == payload(model=thinker, quirks=quirks) | said


def test_a_model_that_cannot_think_is_not_told_not_to() -> None:
    assert payload(reasoning=ReasoningControl(mode="off")) == payload()


# --- tools -----------------------------------------------------------------------------------

TOOL = ToolDefinition(
    name="a",
    description="Does a.",
    parameters={"type": "object", "properties": {"x": {"type": "integer", "default": 1}}},
)
FREE = ToolDefinition(name="free", parameters={"type": "object", "additionalProperties": True, "properties": {}})


def test_tools_are_functions_that_are_not_strict_unless_asked_for() -> None:
    assert payload(tools=[TOOL, ToolDefinition(name="b")])["tools"] == [
        {
            "type": "function",
            "function": {"name": "a", "description": "Does a.", "parameters": TOOL.parameters},
        },
        {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {}}}},
    ]


def test_tools_are_strict_where_it_is_possible_or_an_error_where_it_must_be() -> None:
    functions = [each["function"] for each in payload(tools=[TOOL, FREE], strict_tools="possible")["tools"]]
    assert functions[0]["strict"] is True
    assert functions[0]["parameters"] == {
        "type": "object",
        "properties": {"x": {"type": ["integer", "null"]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert functions[1] == {"name": "free", "parameters": FREE.parameters}
    with pytest.raises(ToolDefinitionError, match=r"'free'.*strict mode"):
        payload(tools=[TOOL, FREE], strict_tools="always")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("a", {"type": "function", "function": {"name": "a"}}),
    ],
)
def test_the_choice_of_a_tool_is_said_only_where_there_are_tools(choice: str, said: Any) -> None:
    assert payload(tools=[TOOL], tool_choice=choice)["tool_choice"] == said
    assert payload(tools=[], tool_choice=choice, parallel_tool_calls=False) == payload()


def test_parallel_calls_can_be_turned_off() -> None:
    assert payload(tools=[TOOL], parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in payload(tools=[TOOL])


# --- what people and tools say ---------------------------------------------------------------


def test_text_alone_is_a_string_and_empty_text_is_never_sent() -> None:
    assert sent(user("a", " ", "b"), user(""), user()) == [{"role": "user", "content": "a\nb"}]


def test_images_are_parts_with_their_data_or_their_address() -> None:
    images = [
        ImageContent(source=PNG),
        ImageContent(source="/9j/4A", media_type="image/jpeg"),
        ImageContent(url="https://example.org/a"),
    ]
    [message] = sent(user("look", *images))
    assert [part.get("image_url", part).get("url") for part in message["content"]] == [
        None,
        f"data:image/png;base64,{PNG}",
        "data:image/jpeg;base64,/9j/4A",
        "https://example.org/a",
    ]
    assert message["content"][0] == {"type": "text", "text": "look"}


def test_documents_are_files_and_texts_are_text() -> None:
    pdf = DocumentContent(source="JVBERg==", title="a.pdf")
    note = DocumentContent(source=base64.b64encode(b"inside").decode(), media_type="text/plain", title="note")
    bare = DocumentContent(source="not base64!", media_type="text/plain")
    [message] = sent(user(pdf, note, bare))
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
    assert message["content"] == [
        {"type": "file", "file": file},
        {"type": "text", "text": "note:\ninside"},
        {"type": "text", "text": "not base64!"},
    ]
    [message] = sent(user(pdf), vendor="mistral")
    assert message["content"] == [{"type": "document_url", "document_url": file["file_data"]}]


def test_a_document_is_sent_by_its_address_only_to_vendors_that_fetch_it() -> None:
    document = DocumentContent(url="https://example.org/a.pdf")
    assert sent(user(document), vendor="openrouter")[0]["content"] == [
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "https://example.org/a.pdf"}}
    ]
    assert sent(user(document), vendor="mistral")[0]["content"] == [
        {"type": "document_url", "document_url": "https://example.org/a.pdf"}
    ]
    with pytest.raises(ProviderBadRequest, match="give its content"):
        sent(user(document))


def test_each_result_is_a_message_and_pictures_are_shown_after_the_batch() -> None:
    assert sent(
        assistant(call("1"), call("2"), call("3"), call("4")),
        result("1", "one", "more"),
        result("2", ImageContent(source=PNG)),
        result("3"),
        result("4", is_error=True),
        user("and?"),
    )[1:] == [
        {"role": "tool", "tool_call_id": "1", "content": "one\nmore"},
        {"role": "tool", "tool_call_id": "2", "content": "(shown in the next message)"},
        {"role": "tool", "tool_call_id": "3", "content": "(no output)"},
        {"role": "tool", "tool_call_id": "4", "content": "the tool failed and gave no reason"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What a returned for call 2:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
        {"role": "user", "content": "and?"},
    ]


def test_pictures_of_the_last_batch_are_shown_too() -> None:
    messages = sent(assistant(call()), result("1", "see", ImageContent(url="https://example.org/a")))
    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]
    assert messages[1]["content"] == "see"


def test_a_vendor_that_lets_no_user_speak_after_a_tool_is_given_a_word_between() -> None:
    batch = [assistant(call("abcdefghi")), result("abcdefghi", "x"), user("stop")]
    assert [message["role"] for message in sent(*batch)] == ["assistant", "tool", "user"]
    messages = sent(*batch, assistant("ok"), user("a"), vendor="mistral")
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "user", "assistant", "user"]
    assert messages[2]["content"] == "I have the results."
    shown = sent(batch[0], result("abcdefghi", ImageContent(source=PNG)), vendor="mistral")
    assert [message["role"] for message in shown] == ["assistant", "tool", "assistant", "user"]


# --- what the model said ---------------------------------------------------------------------


def test_an_answer_is_its_text_and_its_calls() -> None:
    assert sent(assistant("so", " be it", call(x=[1, {"é": None}])), result("1", "ok"))[0] == {
        "role": "assistant",
        "content": "so be it",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x":[1,{"é":null}]}'}}],
    }
    assert sent(assistant(call()), result("1", "ok"))[0]["content"] is None


def test_arguments_that_were_no_json_go_back_as_none() -> None:
    bad = ToolCall(id="1", name="a", invalid_arguments='{"x": ')
    assert sent(assistant(bad), result("1", "no"))[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_answer_that_would_be_empty_vanishes() -> None:
    empty = [
        assistant(),
        assistant(" "),
        assistant(ThinkingContent(thinking="hm")),
        assistant(OpaqueContent(kind="annotations", data={"annotations": [1]})),
    ]
    assert sent(user("a"), *empty, user("b")) == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


@pytest.mark.parametrize("reason", ["aborted", "error", "length"])
def test_of_a_broken_answer_only_calls_with_a_result_go_back(reason: str) -> None:
    messages = sent(assistant("x", call("1"), call("2"), stop_reason=reason), result("2", "cancelled"))
    assert [each["id"] for each in messages[0]["tool_calls"]] == ["2"]
    assert sent(assistant("x", call("1"), stop_reason=reason), user("y"))[0] == {"role": "assistant", "content": "x"}


def test_thinking_and_vendor_data_of_others_never_go_out() -> None:
    foreign = [
        ThinkingContent(thinking="hm", signature="s"),
        OpaqueContent(kind="reasoning_details", data={"reasoning_details": [{"text": "hm"}]}),
        OpaqueContent(kind="extra_content", data={"extra_content": {"google": 1}}),
        OpaqueContent(kind="server_tool_use", data={"id": "s"}),
        "text",
        ToolCall(id="1", name="a", vendor={"extra_content": 1}),
    ]
    plain = sent(assistant("text", call()), result("1", "ok"))
    for vendor, api in (("anthropic", "anthropic-messages"), ("deepseek", API), ("openrouter", "anthropic-messages")):
        assert sent(assistant(*foreign, vendor=vendor, api=api), result("1", "ok")) == plain
        openrouter = sent(assistant(*foreign, vendor="other", api=api), result("1", "ok"), vendor="openrouter")
        assert openrouter == plain


def test_deepseek_gets_its_own_thinking_with_every_answer() -> None:
    thought = assistant(ThinkingContent(thinking="hm"), call("1"), vendor="deepseek")
    foreign = assistant("hello", ThinkingContent(thinking="not yours"), vendor="openai")
    messages = sent(user("a"), foreign, user("b"), thought, result("1", "ok"), vendor="deepseek")
    assert [each.get("reasoning_content") for each in messages] == [None, "", None, "hm", None]
    assert "reasoning_content" not in sent(foreign, vendor="deepseek")[0]
    assert sent(foreign, vendor="deepseek", thinks=True)[0]["reasoning_content"] == ""
    assert "reasoning_content" not in sent(assistant(ThinkingContent(thinking="hm"), "x"), thinks=True)[0]


def test_mistral_gets_its_own_thinking_as_parts_of_the_content() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    messages = sent(
        assistant(ThinkingContent(thinking="hm"), "4", vendor="mistral"),
        assistant(ThinkingContent(thinking="hm"), call("abcdefghi"), vendor="mistral"),
        result("abcdefghi", "ok"),
        vendor="mistral",
    )
    assert messages[0]["content"] == [thinking, {"type": "text", "text": "4"}]
    assert messages[1]["content"] == [thinking]


def test_openrouter_gets_its_reasoning_details_and_google_its_signatures() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    opaque = OpaqueContent(kind="reasoning_details", data={"reasoning_details": details})
    assert sent(assistant("x", opaque, vendor="openrouter"), vendor="openrouter")[0]["reasoning_details"] == details
    extra = {"google": {"thought_signature": "s"}}
    kept = OpaqueContent(kind="extra_content", data={"extra_content": extra})
    signed = ToolCall(id="1", name="a", vendor={"extra_content": extra})
    [message, _] = sent(assistant(kept, signed, vendor="gemini"), result("1", "ok"), vendor="gemini")
    assert message["extra_content"] == extra
    assert message["tool_calls"][0]["extra_content"] == extra


def test_audio_goes_back_by_its_id() -> None:
    audio = OpaqueContent(kind="audio", data={"audio": {"id": "au", "data": "QUFB"}})
    assert sent(assistant(audio)) == [{"role": "assistant", "content": None, "audio": {"id": "au"}}]


@pytest.mark.parametrize(("vendor", "pattern"), [("openai", ".{1,40}"), ("mistral", "[a-zA-Z0-9]{9}")])
def test_ids_are_made_such_as_the_vendor_takes_and_stay_pairs(vendor: str, pattern: str) -> None:
    ids = ["call_" + "x" * 60, "toolu_01/…", "", "abcdefghi"]
    foreign = assistant(*map(call, ids), vendor="anthropic", api="anthropic-messages")
    messages = sent(foreign, *(result(each, "ok") for each in ids), vendor=vendor)
    called = [each["id"] for each in messages[0]["tool_calls"]]
    assert called == [each["tool_call_id"] for each in messages[1:]]
    assert len({*called}) == len(ids)
    assert all(re.fullmatch(pattern, each) for each in called)
    assert called[3] == "abcdefghi"


def test_ids_that_the_vendor_gave_go_back_as_they_came() -> None:
    long = "chatcmpl-tool-" + "x" * 40
    messages = sent(assistant(call(long), vendor="mistral"), result(long, "ok"), vendor="mistral")
    assert (messages[0]["tool_calls"][0]["id"], messages[1]["tool_call_id"]) == (long, long)


def test_nothing_that_was_given_is_changed_and_the_same_comes_out_twice() -> None:
    transcript = [
        user("1", ImageContent(source=PNG)),
        assistant("so", OpaqueContent(kind="extra_content", data={"extra_content": {"g": [1]}}), call(n=[1])),
        result("1", "x", ImageContent(source=PNG)),
        assistant("end"),
    ]
    before = copy.deepcopy((transcript, TOOL))
    payloads = [
        build_payload(MODEL, transcript, system_prompt="s", tools=[TOOL], strict_tools="possible") for _ in range(2)
    ]
    assert (transcript, TOOL) == before
    assert payloads[0] == payloads[1]


def test_a_vendor_of_your_own_is_described_by_its_quirks() -> None:
    quirks = Quirks(max_tokens_field="max_tokens", stream_usage=False)
    assert payload(max_output_tokens=1, quirks=quirks) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 1,
    }


# --- recordings ------------------------------------------------------------------------------

VENDORS: dict[str, str] = {"google": "gemini", "copilot": "openai"}
"""Our preset for a recording's vendor, where it has another name."""


def preset_of(recording: Recording) -> str:
    vendor: str = recording["vendor"]
    return VENDORS.get(vendor, vendor)


def _sequences() -> dict[str, list[Recording]]:
    groups: dict[str, list[Recording]] = {}
    for recording in recordings("openai-chat"):
        if recording.get("sequence"):
            groups.setdefault(recording["sequence"]["group"], []).append(recording)
    return {name: sorted(group, key=lambda each: each["sequence"]["index"]) for name, group in groups.items()}


def normal(message: dict[str, Any]) -> dict[str, Any]:
    """Undo what differs between clients and means the same.

    Content that is null, absent or empty; text as a string or as one part; arguments as the model wrote them or in
    our spacing, and ``null`` for none; the call's ``index``, which belongs to answers; Mistral's ``prefix: false``;
    Ollama's ``reasoning``, which its client sends back and the server ignores.
    """
    kept = {key: value for key, value in message.items() if value not in (None, "", False)}
    if message.get("reasoning_content") == "":
        kept["reasoning_content"] = ""
    if "reasoning" in message:
        del kept["reasoning"], kept["reasoning_content"]
    if isinstance(kept.get("content"), list) and all(part["type"] == "text" for part in kept["content"]):
        kept["content"] = "\n".join(part["text"] for part in kept["content"])
    if "tool_calls" in kept:
        kept["tool_calls"] = [_normal_call(each) for each in kept["tool_calls"]]
    return kept


def _normal_call(wire: dict[str, Any]) -> dict[str, Any]:
    function = wire["function"]
    arguments = function["arguments"].replace('": ', '":')
    kept = {key: value for key, value in wire.items() if key != "index"}
    return {**kept, "function": {**function, "arguments": "{}" if arguments == "null" else arguments}}


def _with_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with ids by their order: where the vendor gave none, each client makes its own."""
    ids: dict[str, str] = {}
    for message in messages:
        for each in message.get("tool_calls", ()):
            each["id"] = ids.setdefault(each["id"], f"id{len(ids)}")
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
    return messages


def _said_after(recorded: list[dict[str, Any]], answered: int) -> list[Message]:
    """Our messages for what a recorded request says after its first ``answered`` answers."""
    seen, said = 0, list[Message]()
    for message in recorded:
        if message["role"] == "assistant":
            seen += 1
            if seen > answered:  # one the client made up
                function = message["tool_calls"][0]["function"]
                arguments = {"queries": ["DICE_ROLL"]}
                made_up = ToolCall(id=message["tool_calls"][0]["id"], name=function["name"], arguments=arguments)
                said.append(assistant(made_up))
        elif seen >= answered and message["role"] == "tool":
            said.append(result(message["tool_call_id"], message["content"]))
        elif seen >= answered and message["role"] == "user":
            said.append(user(normal(message)["content"]))
    return said


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", sorted(_sequences()) or ["missing"])
def test_a_recorded_conversation_is_sent_back_as_its_own_client_did(name: str) -> None:
    group = _sequences().get(name)
    if not group:
        pytest.skip(MISSING)
    vendor = preset_of(group[0])
    transcript = _said_after(group[0]["request"]["json"]["messages"], 0)
    answered = 0
    for before, after in pairwise(group):
        answer = read(body_of(before), whole=not before["response"]["stream"]).message
        transcript.append(answer.model_copy(update={"provider_id": vendor}))
        answered += 1
        wanted = after["request"]["json"]["messages"]
        said = _said_after(wanted, answered)
        answered += sum(isinstance(message, AssistantMessage) for message in said)
        for call_made, answer_given in zip(answer.tool_calls, said, strict=False):
            assert isinstance(answer_given, ToolResultMessage)
            answer_given.tool_call_id = call_made.id
        transcript += said
        ours = [normal(message) for message in sent(*transcript, vendor=vendor)]
        theirs = [normal(message) for message in wanted if message["role"] != "system"]
        assert _with_ids(_without_vendor_data(ours)) == _with_ids(theirs), after["id"]


def _without_vendor_data(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out Google's signatures: its newer models demand them back, and the recording's client is older."""
    return [{key: value for key, value in message.items() if key != "extra_content"} for message in messages]
