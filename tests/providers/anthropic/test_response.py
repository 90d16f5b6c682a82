"""Anthropic's events, read into a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import (
    IncompleteStream,
    MalformedResponse,
    ProviderError,
    ProviderOverloaded,
    ProviderUnavailable,
    RateLimited,
)
from cubepi_anyio.types import OpaqueContent, TextContent, ThinkingContent, ToolCall, Usage
from tests.recordings import MISSING, Recording, body_of, recording_params

from .reading import block, check_against, end, event, read, start, text

ANSWER = start(input_tokens=3) + text(0, "Hel", "lo 🍏") + end(output_tokens=5)


def test_an_answer_becomes_well_formed_events_and_a_message() -> None:
    answer = read(ANSWER)
    assert answer.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]
    assert answer.message.content == [TextContent(text="Hello 🍏")]
    assert (answer.message.response_id, answer.message.request_id) == ("msg_1", "req_1")
    assert answer.message.api == "anthropic-messages"
    assert answer.stop_reason == "stop"
    assert answer.usage == Usage(input_tokens=3, output_tokens=5)


def test_an_answer_cut_at_any_byte_is_the_same() -> None:
    for cut in range(len(ANSWER) + 1):
        assert read(ANSWER[:cut], ANSWER[cut:]).message.text == "Hello 🍏"


def test_an_answer_that_stops_at_any_byte_is_incomplete_or_malformed_but_never_done() -> None:
    for length in range(len(ANSWER) - 5):
        answer = read(ANSWER[:length])
        assert isinstance(answer.error, MalformedResponse), length
        assert "done" not in answer.types, length


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_use"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
        (None, None),
    ],
)
def test_stop_reasons_are_ours_or_kept_raw(theirs: str | None, ours: str | None) -> None:
    assert read(start() + text(0, "x") + end(theirs)).stop_reason == ours


def test_usage_is_the_last_report_of_each_counter() -> None:
    answer = read(
        start(input_tokens=10, output_tokens=1, cache_read_input_tokens=4, cache_creation_input_tokens=None)
        + event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7, "input_tokens": None}})
        + end(output_tokens=9, cache_creation_input_tokens=2, output_tokens_details={"thinking_tokens": 3})
    )
    assert answer.usage == Usage(
        input_tokens=10, output_tokens=9, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3
    )


def test_signs_of_life_unknown_events_and_gateway_leftovers_are_passed_over() -> None:
    noise = event({"type": "ping"}) + event({"type": "tomorrow", "x": 1}) + b": c\n\ndata: : PROCESSING\n\n"
    answer = read(noise + start() + noise + text(0, "x") + noise + end() + b"data: [DONE]\n\n" + noise)
    assert answer.error is None
    assert answer.message.text == "x"


def test_the_type_may_stand_in_the_name_of_the_event_alone() -> None:
    wire = start() + text(0, "x") + end()
    bare = wire.replace(b'"type": "message_stop"', b"").replace(b'"type": "content_block_stop", ', b"")
    assert bare != wire
    assert read(bare).stop_reason == "stop"


def call_block(*partial: str, given: Any = None) -> bytes:
    start_block = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {} if given is None else given}
    return block(0, start_block, *({"type": "input_json_delta", "partial_json": piece} for piece in partial))


@pytest.mark.parametrize(
    ("wire", "arguments"),
    [
        (call_block('{"a"', ': 1, "b": "x\\ud83c\\udf4f', '"}'), {"a": 1, "b": "x🍏"}),
        (call_block(""), {}),
        (call_block(), {}),
        (call_block("{}"), {}),
        (call_block("null"), {}),
        (call_block(given={"a": 1}), {"a": 1}),
        (call_block("", given={"a": 1}), {"a": 1}),
        (call_block('{"a": 2}', given={"a": 1}), {"a": 2}),
        (call_block(given='{"a": 1}'), {"a": 1}),
    ],
)
def test_arguments_arrive_whole_in_pieces_or_not_at_all(wire: bytes, arguments: dict[str, Any]) -> None:
    answer = read(start() + wire + end("tool_use"))
    assert answer.message.tool_calls == [ToolCall(id="toolu_1", name="add", arguments=arguments)]
    assert answer.types[-2:] == ["toolcall_end", "done"]


@pytest.mark.parametrize("partial", ['{"a": 1', "[1]", "nonsense", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_kept_as_text_and_not_repaired(partial: str) -> None:
    call = read(start() + call_block(partial) + end("tool_use")).message.tool_calls[0]
    assert (call.arguments, call.invalid_arguments) == ({}, partial)


def test_a_whole_input_that_is_no_object_is_not_taken_for_none() -> None:
    call = read(start() + call_block(given=[1]) + end("tool_use")).message.tool_calls[0]
    assert (call.arguments, call.invalid_arguments) == ({}, "[1]")


def test_a_call_remembers_what_the_vendor_says_of_it_unless_it_is_the_usual() -> None:
    common = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    program = {"type": "code_execution_20260120", "tool_id": "srv"}
    answer = read(
        start() + block(0, {**common, "caller": program}) + block(1, {**common, "caller": {"type": "direct"}}) + end()
    )
    assert [call.vendor for call in answer.message.tool_calls] == [{"caller": program}, None]


def test_thinking_keeps_its_signature_and_redacted_thinking_its_data() -> None:
    answer = read(
        start()
        + block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "thinking_delta", "thinking": ""},
            {"type": "signature_delta", "signature": "c2ln+"},
            {"type": "signature_delta", "signature": "/=="},
        )
        + block(1, {"type": "redacted_thinking", "data": "ZW5j/+=="})
        + text(2, "ok")
        + end()
    )
    assert answer.message.content == [
        ThinkingContent(thinking="hm", signature="c2ln+/=="),
        ThinkingContent(redacted="ZW5j/+=="),
        TextContent(text="ok"),
    ]


def test_citations_stay_with_their_text() -> None:
    cited = [{"type": "char_location", "cited_text": "a"}, {"type": "char_location", "cited_text": "b"}]
    answer = read(
        start()
        + block(
            0,
            {"type": "text", "text": "", "citations": []},
            {"type": "citations_delta", "citation": cited[0]},
            {"type": "text_delta", "text": "x"},
            {"type": "citations_delta", "citation": cited[1]},
        )
        + end()
    )
    assert answer.message.content == [TextContent(text="x", vendor={"citations": cited})]


def test_blocks_only_the_vendor_understands_are_kept_whole() -> None:
    result = {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [{"url": "u", "encrypted_content": "e"}],
    }
    answer = read(
        start()
        + block(
            0,
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"query": '},
            {"type": "input_json_delta", "partial_json": '"q"}'},
        )
        + block(1, result)
        + block(
            2, {"type": "compaction", "content": None, "n": 1}, {"type": "compaction_delta", "content": "short", "n": 2}
        )
        + block(3, {"type": "compaction", "content": "a"}, {"type": "compaction_delta", "content": "b"})
        + end("pause_turn")
    )
    assert answer.message.content == [
        OpaqueContent(
            kind="server_tool_use",
            data={"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        ),
        OpaqueContent(kind="web_search_tool_result", data=result),
        OpaqueContent(kind="compaction", data={"type": "compaction", "content": "short", "n": 2}),
        OpaqueContent(kind="compaction", data={"type": "compaction", "content": "ab"}),
    ]
    assert answer.types.count("opaque_start") == answer.types.count("opaque_end") == 4


def test_blocks_may_grow_by_turns() -> None:
    def grow(index: int, more: str) -> bytes:
        delta = {"type": "text_delta", "text": more}
        return event({"type": "content_block_delta", "index": index, "delta": delta})

    opened = b"".join(
        event({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}})
        for index in (0, 7)
    )
    answer = read(start() + opened + grow(0, "a") + grow(7, "x") + grow(0, "b") + grow(7, "y") + end())
    assert answer.message.content == [TextContent(text="ab"), TextContent(text="xy")]


def test_a_block_nobody_ended_is_ended_by_the_end_of_the_message() -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    answer = read(start() + event({"type": "content_block_start", "index": 0, "content_block": signed}) + end())
    assert answer.types == ["start", "thinking_start", "thinking_delta", "thinking_end", "done"]
    assert answer.message.content == [ThinkingContent(thinking="hm", signature="sig")]


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), ProviderOverloaded),
        (b'data: {"error": {"message": "slow down", "code": 429}}\n\n', RateLimited),
        (b"event: error\ndata: upstream failed\n\n", ProviderUnavailable),
    ],
)
def test_an_error_event_is_the_same_error_first_or_in_the_middle(wire: bytes, kind: type[ProviderError]) -> None:
    first = read(wire)
    assert (type(first.error), first.events) == (kind, [])
    later = read(start(input_tokens=3) + text(0, "kept") + wire + text(1, "late") + end())
    assert type(later.error) is kind
    assert later.message.text == "kept"
    assert later.usage == Usage(input_tokens=3)


@pytest.mark.parametrize(
    "wire",
    [
        b"data: <html>\n\n",
        b"data: 5\n\n",
        b"data: []\n\n",
        b"data: null\n\n",
        b'data: {"type": "message_start"}\n\n',
        b'data: {"type": "message_start", "message": []}\n\n',
        b'data: {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}}\n\n',
        b'data: {"type": ["x"]}\n\n',
        event({"type": "content_block_start", "index": 0, "content_block": {}}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": None}}),
        event(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": None, "name": "n"}}
        ),
        event({"type": "content_block_start", "index": [], "content_block": {"type": "text"}}),
        event({"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}}),
        event({"type": "content_block_delta", "index": 0, "delta": None}),
        block(0, {"type": "text", "text": ""}, {"type": "text_delta"}),
        block(0, {"type": "text", "text": ""}, {"type": "thinking_delta", "thinking": "x"}),
        block(0, {"type": "tool_use", "id": "i", "name": "n", "input": {}}, {"type": "text_delta", "text": "x"}),
        block(0, {"type": "server_tool_use", "id": "i"}, {"type": "input_json_delta", "partial_json": "{"}),
        block(0, {"type": "server_tool_use", "id": "i"}, {"type": "input_json_delta", "partial_json": "[]"}),
    ],
)
def test_what_does_not_fit_the_format_is_malformed_and_what_came_before_is_kept(wire: bytes) -> None:
    answer = read(start() + text(9, "kept") + wire + end())
    assert type(answer.error) is MalformedResponse
    assert answer.message.text == "kept"
    assert "done" not in answer.types


def test_a_start_that_names_no_message_is_malformed() -> None:
    assert type(read(b'data: {"type": "message_start", "message": {"id": 5}}\n\n' + end()).error) is MalformedResponse


def test_a_second_start_changes_nothing_but_the_counts() -> None:
    again = event({"type": "message_start", "message": {"id": "msg_2", "usage": {"input_tokens": 4}}})
    answer = read(start(input_tokens=3) + again + text(0, "x") + end())
    assert (answer.message.response_id, answer.usage) == ("msg_1", Usage(input_tokens=4))


KEYS = st.sampled_from(["type", "index", "delta", "content_block", "message", "usage", "error", "text", "id"])
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
NAMES = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"]


@given(junk=JUNK, name=st.sampled_from([*NAMES, "unknown"]))
def test_no_junk_raises_anything_but_our_errors(junk: Any, name: str) -> None:
    wire = f"event: {name}\ndata: {json.dumps(junk)}\n\n".encode()
    answer = read(start() + wire)
    assert isinstance(answer.error, ProviderError)


WHOLE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}},
        {"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 5},
}


def test_an_answer_that_was_not_streamed_is_read_like_one_that_was() -> None:
    answer = read(json.dumps(WHOLE).encode(), whole=True)
    assert answer.message.content == [
        ThinkingContent(thinking="hm", signature="sig"),
        TextContent(text="Hello"),
        ToolCall(id="t", name="add", arguments={"a": 1}),
        OpaqueContent(kind="web_fetch_tool_result", data=WHOLE["content"][3]),
    ]
    assert (answer.stop_reason, answer.usage) == ("tool_use", Usage(input_tokens=3, output_tokens=5))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, ProviderOverloaded),
        ({"error": "busy"}, ProviderUnavailable),
        ({}, MalformedResponse),
        ({"content": "text"}, MalformedResponse),
        ({"content": None}, MalformedResponse),
    ],
)
def test_a_body_that_is_no_answer_is_an_error(body: dict[str, Any], kind: type[ProviderError]) -> None:
    answer = read(json.dumps(body).encode(), whole=True)
    assert type(answer.error) is kind
    assert "done" not in answer.types


# --- recordings ------------------------------------------------------------------------------


def chopped(body: bytes, size_bytes: int) -> list[bytes]:
    return [body[index : index + size_bytes] for index in range(0, len(body), size_bytes)]


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("anthropic-messages", status=200))
def test_a_recorded_answer_is_read_as_its_vendor_meant_it(recording: Recording) -> None:
    body, streamed = body_of(recording), recording["response"]["stream"]
    whole = read(body, whole=not streamed)
    expected = recording["expected"]
    if expected["outcome"] == "ok":
        assert whole.error is None
        check_against(recording, whole.message, whole.usage, whole.stop_reason)
    elif expected["outcome"] == "truncated":
        assert type(whole.error) is IncompleteStream
        assert whole.message.text == (expected["text"] or "")
    else:
        assert expected["outcome"] == "stream_error"
        assert whole.error is not None
        assert whole.error.error_code == expected["error"]["type"]
        assert whole.message.text == (expected["text"] or "")
    if streamed:
        crlf = b"\xef\xbb\xbf" + body.replace(b"\n", b"\r\n")
        for chunks in (chopped(body, 1), chopped(body, 37), [crlf], chopped(crlf, 3)):
            again = read(*chunks)
            assert (again.message, again.usage, again.types) == (whole.message, whole.usage, whole.types)


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("anthropic-messages", streamed=True, status=200))
def test_a_recorded_answer_that_stops_early_is_an_error_and_keeps_what_came(recording: Recording) -> None:
    body = body_of(recording)
    text_ = recording["expected"]["text"] or ""
    for cut in sorted({int(len(body) * share / 24) for share in range(24)}):
        answer = read(body[:cut])
        assert isinstance(answer.error, ProviderError)
        assert "done" not in answer.types
        assert text_.startswith(answer.message.text)


def test_the_reason_recordings_are_missing_is_said() -> None:
    assert "beside the repository" in MISSING
