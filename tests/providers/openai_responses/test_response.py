"""Responses answers, read without a network: recorded ones, and what no recording holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cubepi_anyio.errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderUnavailable,
    RateLimited,
)
from cubepi_anyio.types import ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall, Usage
from tests.recordings import Recording, body_of, recording_params

from .reading import (
    ENCRYPTED_ANEW,
    added,
    call,
    check_against,
    created,
    done,
    encrypted_when_done,
    end,
    event,
    is_refusal,
    message,
    read,
    reasoning,
    text,
)

# --- recordings ------------------------------------------------------------------------------

BROKEN = {
    "resp-openai-openai-error-1": RateLimited,
    "resp-openai-recon-midstream-error-event": ProviderUnavailable,
    "resp-openai-recon-truncated-no-terminal-event": IncompleteStream,
}


def _check(recording: Recording, *chunks: bytes) -> None:
    answer = read(*chunks, whole=not recording["response"]["stream"])
    if recording["id"] in BROKEN:
        assert type(answer.error) is BROKEN[recording["id"]]
        assert answer.broken.text == recording["expected"]["text"]
        assert answer.broken.tool_calls == []
        return
    assert answer.error is None
    check_against(recording, answer.message, answer.usage, answer.stop_reason)


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-responses", status=200))
def test_a_recorded_answer_is_read_as_expected(recording: Recording) -> None:
    _check(recording, body_of(recording))


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-responses", streamed=True, status=200))
def test_a_recorded_answer_is_read_the_same_in_any_chunks(recording: Recording) -> None:
    body = body_of(recording)
    _check(recording, *(body[at : at + 1] for at in range(len(body))))
    crlf = body.replace(b"\n", b"\r\n")
    _check(recording, b"\xef\xbb\xbf" + crlf)
    _check(recording, *(crlf[at : at + 5] for at in range(0, len(crlf), 5)))


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-responses", streamed=True, status=200))
def test_a_recorded_answer_cut_between_any_two_events_is_an_error(recording: Recording) -> None:
    if recording["id"] in BROKEN:
        return
    events = body_of(recording).split(b"\n\n")
    terminal = next(at for at, each in enumerate(events) if b'"response.completed"' in each or b".incomplete" in each)
    step = max(1, terminal // 40)
    for cut in range(0, terminal + 1, step):
        answer = read(b"".join(each + b"\n\n" for each in events[:cut]))
        assert type(answer.error) is IncompleteStream
        assert recording["expected"]["text"].startswith("".join(_plain(answer.broken.content)))
        assert not (set(answer.types) & {"done", "error"})


def _plain(content: list[Any]) -> list[str]:
    return [block.text for block in content if isinstance(block, TextContent) and not is_refusal(block)]


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-responses", streamed=True, status=200))
def test_what_the_terminal_event_repeats_is_what_the_items_said(recording: Recording) -> None:
    """The terminal event alone gives the same message, where it repeats the items, so neither is read wrongly."""
    body = body_of(recording)
    last = [each for each in body.split(b"\n\n") if b'"response.completed"' in each or b"response.incomplete" in each][
        -1:
    ]
    if not last or b'"output":[]' in last[0].replace(b" ", b""):
        return
    repeated, streamed = read(last[0] + b"\n\n").message, read(body).message
    assert (repeated.text, [_bare(each) for each in repeated.content]) == (
        streamed.text,
        [_bare(each) for each in streamed.content],
    )


def _bare(block: Any) -> Any:
    left_out = {"signature", "vendor"} if isinstance(block, ThinkingContent) else {"vendor"}
    return block.model_dump(exclude=left_out)


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-responses", streamed=True, status=200))
def test_encrypted_reasoning_is_kept_to_the_byte(recording: Recording) -> None:
    if recording["id"] not in ENCRYPTED_ANEW:
        return
    kept = [block.signature for block in read(body_of(recording)).message.content if isinstance(block, ThinkingContent)]
    assert kept == encrypted_when_done(recording)
    assert all(kept)


# --- messages --------------------------------------------------------------------------------


def test_the_events_of_a_text_are_in_order() -> None:
    answer = read(created() + message(0, "Hel", "lo") + end(usage={"input_tokens": 3, "output_tokens": 2}))
    assert answer.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]
    assert (answer.message.text, answer.stop_reason) == ("Hello", "stop")
    assert (answer.message.response_id, answer.message.request_id) == ("resp_1", "req_1")
    assert answer.usage == Usage(input_tokens=3, output_tokens=2)


def test_each_part_of_a_message_is_a_block_and_empty_ones_are_none() -> None:
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "output_text", "text": ""},
        {"type": "output_text", "text": "b"},
    ]
    body = added(0, "message") + text(0, "a") + text(0, "", content_index=1) + text(0, "b", content_index=2)
    answer = read(created() + body + done(0, "message", id="msg_1", content=parts) + end())
    assert [block.model_dump()["text"] for block in answer.message.content] == ["a", "b"]


def test_a_message_keeps_its_id_phase_and_citations() -> None:
    cited = [{"type": "url_citation", "url": "https://example.org"}]
    content = [{"type": "output_text", "text": "Hi", "annotations": cited, "logprobs": []}]
    answer = read(created() + message(0, "Hi", content=content, phase="commentary") + end())
    assert answer.message.content == [
        TextContent(text="Hi", vendor={"item": {"id": "msg_0", "phase": "commentary"}, "annotations": cited})
    ]


def test_a_message_that_was_cut_has_no_id_so_that_it_is_not_taken_for_a_whole_one() -> None:
    answer = read(created() + added(0, "message", id="msg_1") + text(0, "Hel"))
    assert type(answer.error) is IncompleteStream
    assert answer.broken.content == [TextContent(text="Hel")]


def test_text_that_no_delta_brought_is_taken_from_its_item() -> None:
    content = [{"type": "output_text", "text": "Hello"}, {"type": "refusal", "refusal": "No."}]
    answer = read(created() + added(0, "message") + done(0, "message", content=content) + end())
    assert [block.model_dump(exclude={"type"}) for block in answer.message.content] == [
        {"text": "Hello", "vendor": None},
        {"text": "No.", "vendor": {"refusal": True}},
    ]
    assert answer.stop_reason == "refusal"


def test_text_that_nothing_announced_is_text() -> None:
    answer = read(created() + text(0, "Hel", "lo") + end())
    assert (answer.error, answer.message.text) == (None, "Hello")


def test_a_refusal_is_marked_from_its_start() -> None:
    refusal = event("response.refusal.delta", output_index=0, content_index=0, delta="I can't")
    answer = read(created() + added(0, "message") + refusal)
    assert answer.broken.content == [TextContent(text="I can't", vendor={"refusal": True})]
    answer = read(created() + added(0, "message") + refusal + end())
    assert answer.stop_reason == "refusal"


def test_servers_that_count_nothing_are_understood_by_the_ids_of_their_items() -> None:
    body = b"".join(
        event(f"response.{kind}", **fields)
        for kind, fields in [
            ("output_item.added", {"item": {"type": "message", "id": "m"}}),
            ("output_item.added", {"item": {"type": "function_call", "id": "c", "call_id": "call_1", "name": "f"}}),
            ("output_text.delta", {"item_id": "m", "delta": "Hi"}),
            ("function_call_arguments.delta", {"item_id": "c", "delta": "{}"}),
            ("output_item.done", {"item": {"type": "message", "id": "m"}}),
        ]
    )
    answer = read(created() + body + end())
    assert (answer.message.text, [call.id for call in answer.message.tool_calls]) == ("Hi", ["call_1"])


def test_items_that_all_have_the_same_index_stay_apart() -> None:
    answer = read(created() + message(0, "a") + call(0, "{}") + message(0, "b", id="msg_x") + end())
    assert [block.type for block in answer.message.content] == ["text", "tool_call", "text"]
    assert answer.message.text == "ab"


def test_an_item_that_is_said_to_be_done_twice_is_there_once() -> None:
    answer = read(created() + call(0, "{}") + done(0, "function_call", id="fc_0", call_id="call_0", name="f") + end())
    assert len(answer.message.tool_calls) == 1


# --- reasoning -------------------------------------------------------------------------------


def test_reasoning_keeps_its_item_with_an_empty_summary() -> None:
    answer = read(created() + reasoning(0, encrypted_content="c2VhbGVk", content=[]) + message(1, "x") + end())
    assert answer.message.content[0] == ThinkingContent(
        signature="c2VhbGVk", vendor={"item": {"type": "reasoning", "id": "rs_0", "summary": [], "content": []}}
    )


def test_reasoning_that_was_cut_is_not_signed_by_what_its_start_said() -> None:
    delta = event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="Hm")
    answer = read(created() + added(0, "reasoning", id="rs_1", encrypted_content="early") + delta)
    assert answer.message.content == [ThinkingContent(thinking="Hm")]
    assert answer.broken.content == []
    answer = read(created() + added(0, "reasoning", id="rs_1", encrypted_content="early") + delta + end())
    assert answer.message.content == [ThinkingContent(thinking="Hm", vendor={"item": {"type": "reasoning"}})]


def test_reasoning_that_no_delta_brought_is_taken_from_its_item() -> None:
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    answer = read(created() + reasoning(0, summary=summary) + end())
    assert [block.model_dump()["thinking"] for block in answer.message.content] == ["One.\n\nTwo."]


# --- calls -----------------------------------------------------------------------------------


def test_a_call_that_was_not_announced_is_known_when_it_is_done() -> None:
    delta = event("response.function_call_arguments.delta", output_index=0, delta='{"a":')
    answer = read(created() + delta + done(0, "function_call", call_id="c", name="f", arguments='{"a":1}') + end())
    assert [(each.id, each.name, each.arguments) for each in answer.message.tool_calls] == [("c", "f", {"a": 1})]
    assert answer.types == ["start", "toolcall_start", "toolcall_delta", "toolcall_end", "done"]


@pytest.mark.parametrize(("arguments", "read_as"), [("", {}), ("null", {}), (None, {}), ({"a": 1}, {"a": 1})])
def test_arguments_in_other_forms_are_understood(arguments: Any, read_as: dict[str, Any]) -> None:
    item = {"call_id": "c", "name": "f", "arguments": arguments}
    answer = read(created() + added(0, "function_call", **item) + done(0, "function_call", **item) + end())
    assert [(each.arguments, each.invalid_arguments) for each in answer.message.tool_calls] == [(read_as, None)]


def test_arguments_that_are_no_object_are_kept_as_they_came() -> None:
    answer = read(created() + call(0, '{"a": [1') + end())
    assert [(each.arguments, each.invalid_arguments) for each in answer.message.tool_calls] == [({}, '{"a": [1')]


def test_calls_always_have_ids_of_their_own() -> None:
    body = call(0, "{}", call_id="c") + call(1, "{}", call_id="c") + done(2, "function_call", name="f", call_id="")
    ids = [each.id for each in read(created() + body + end()).message.tool_calls]
    assert ids[0] == "c"
    assert len({*ids, ""}) == 4


def test_a_call_without_a_name_is_malformed() -> None:
    answer = read(created() + done(0, "function_call", call_id="c", arguments="{}") + end())
    assert type(answer.error) is MalformedResponse


def test_a_call_that_goes_on_after_its_end_is_malformed() -> None:
    late = event("response.function_call_arguments.delta", output_index=0, delta="{}")
    assert type(read(created() + call(0, "{}") + late + end()).error) is MalformedResponse


def test_a_call_of_a_free_text_tool_is_a_call_with_its_input() -> None:
    deltas = b"".join(
        event("response.custom_tool_call_input.delta", output_index=0, delta=each) for each in ('say "', 'é"\n')
    )
    item = {"id": "ctc_1", "call_id": "c", "name": "say"}
    answer = read(
        created()
        + added(0, "custom_tool_call", **item)
        + deltas
        + done(0, "custom_tool_call", input='say "é"\n', **item)
        + end()
    )
    assert answer.message.content == [
        ToolCall(
            id="c",
            name="say",
            arguments={"input": 'say "é"\n'},
            vendor={"item": {"type": "custom_tool_call", "id": "ctc_1"}},
        )
    ]
    grown = "".join(each.delta or "" for each in answer.events if each.type == "toolcall_delta")
    assert json.loads(grown) == {"input": 'say "é"\n'}
    empty = read(
        created() + added(0, "custom_tool_call", **item) + done(0, "custom_tool_call", input="", **item) + end()
    )
    assert [each.arguments for each in empty.message.tool_calls] == [{"input": ""}]


def test_nulls_that_strictness_added_are_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    answer = read(
        created() + call(0, '{"a":"x","b":null}') + call(1, '{"b":null}', name="g") + end(), strict={"f": schema}
    )
    assert [each.arguments for each in answer.message.tool_calls] == [{"a": "x"}, {"b": None}]


# --- what only the vendor understands ---------------------------------------------------------


def test_what_tools_at_the_vendors_did_is_kept_as_it_came() -> None:
    item = {"id": "ws_1", "status": "completed", "action": {"query": "q"}}
    answer = read(created() + added(0, "web_search_call", id="ws_1") + done(0, "web_search_call", **item) + end())
    assert answer.message.content == [OpaqueContent(kind="web_search_call", data={"type": "web_search_call", **item})]
    assert answer.types == ["start", "opaque_start", "opaque_end", "done"]


def test_a_picture_is_a_block_of_its_own() -> None:
    item = {"id": "ig_1", "status": "completed", "output_format": "webp"}
    answer = read(created() + done(0, "image_generation_call", result="UklGRg==", **item) + end())
    assert answer.message.content == [
        OpaqueContent(kind="image_generation_call", data={"type": "image_generation_call", **item}),
        ImageContent(source="UklGRg==", media_type="image/webp"),
    ]


# --- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "stop_reason"),
    [
        (message(0, "x") + end(), "stop"),
        (call(0, "{}") + end(), "tool_use"),
        (message(0, "x") + end("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (call(0, "{}") + end("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (call(0, "{}") + end("incomplete", incomplete_details={"reason": "who knows"}), "length"),
        (call(0, "{}") + end("incomplete", incomplete_details=None), "length"),
        (message(0, "x") + end("incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
        (end(), "stop"),
    ],
)
def test_how_an_answer_ended_is_its_stop_reason(body: bytes, stop_reason: str) -> None:
    assert read(created() + body).stop_reason == stop_reason


@pytest.mark.parametrize(
    ("kind", "status", "stop_reason", "error"),
    [
        ("completed", None, "stop", type(None)),
        ("completed", "in_progress", "stop", type(None)),
        ("completed", "incomplete", "length", type(None)),
        ("incomplete", "completed", "length", type(None)),
        ("completed", "failed", None, ProviderUnavailable),
        ("failed", "completed", None, ProviderUnavailable),
        ("incomplete", "cancelled", None, IncompleteStream),
    ],
)
def test_where_event_and_response_disagree_the_worse_one_counts(
    kind: str, status: str | None, stop_reason: str | None, error: type
) -> None:
    answer = read(created() + message(0, "x") + event(f"response.{kind}", response={"status": status}))
    assert (answer.stop_reason, type(answer.error)) == (stop_reason, error)


@pytest.mark.parametrize("body", [b"", call(0, "{}"), message(0, "x") + call(1, "{}")])
def test_a_filtered_answer_that_is_empty_or_calls_tools_is_an_error(body: bytes) -> None:
    answer = read(created() + body + end("incomplete", incomplete_details={"reason": "content_filter"}))
    assert type(answer.error) is ContentFiltered


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (event("error", code="server_error", message="m"), ProviderUnavailable, "server_error"),
        (event("error", error={"code": "rate_limit_exceeded", "message": "m"}), RateLimited, "rate_limit_exceeded"),
        (
            event("error", error={"type": "server_error", "message": "we are overloaded"}),
            ProviderOverloaded,
            "server_error",
        ),
        (b'data: {"error": {"message": "m"}}\n\n', ProviderUnavailable, None),
        (b"event: error\ndata: out of order\n\n", ProviderUnavailable, None),
        (end("failed", error={"code": "server_error", "message": "m"}), ProviderUnavailable, "server_error"),
        (end("failed", error={"code": "invalid_prompt", "message": "m"}), ProviderBadRequest, "invalid_prompt"),
        (
            end("failed", error={"code": "image_content_policy_violation"}),
            ContentFiltered,
            "image_content_policy_violation",
        ),
        (end("failed", error=None), ProviderUnavailable, None),
        (end("cancelled"), IncompleteStream, None),
        (end("completed", error={"code": "server_error", "message": "m"}), ProviderUnavailable, "server_error"),
    ],
)
def test_an_error_inside_the_stream_is_typed_and_keeps_what_came(
    body: bytes, kind: type[ProviderError], code: str | None
) -> None:
    answer = read(created() + call(0, "{}") + added(1, "message") + text(1, "Hel") + body)
    assert isinstance(answer.error, ProviderError)
    assert (type(answer.error), answer.error.error_code) == (kind, code)
    assert answer.broken.text == "Hel"
    assert answer.stop_reason is None


def test_what_a_failed_answer_cost_is_counted() -> None:
    usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 2}
    answer = read(created() + end("failed", error={"code": "server_error"}, usage=usage))
    assert answer.usage == Usage(input_tokens=2, output_tokens=2, cache_read_tokens=3)


def test_items_that_only_the_terminal_event_tells_are_taken_from_there() -> None:
    output = [
        {"type": "message", "id": "msg_0", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    streamed = created() + added(0, "message", id="msg_0") + text(0, "a")
    answer = read(streamed + end(output=output))
    assert answer.message.content == [
        TextContent(text="a", vendor={"item": {"id": "msg_0"}}),
        ToolCall(id="c", name="f", vendor={"item": {"type": "function_call", "id": "fc_1"}}),
    ]
    assert answer.stop_reason == "tool_use"


def test_only_what_the_model_or_its_tools_do_is_progress() -> None:
    quiet = b': hi\n\ndata: {"type": "keepalive"}\n\ndata: {"type": "response.queued"}\n\ndata: : PING\n\ndata:\n\n'
    searching = event("response.web_search_call.searching", output_index=0)
    answer = read(quiet + created() + searching + message(0, "x") + end())
    assert answer.heard == [False] * 4 + [True] * (len(answer.heard) - 4)
    assert answer.message.text == "x"


def test_nothing_after_the_end_matters() -> None:
    answer = read(created() + message(0, "x") + end() + event("error", code="server_error") + b"data: [DONE]\n\n")
    assert (answer.error, answer.message.text) == (None, "x")


def test_an_end_mark_before_the_end_is_an_incomplete_answer() -> None:
    answer = read(created() + message(0, "x") + b"data: [DONE]\n\n" + end())
    assert type(answer.error) is IncompleteStream


@pytest.mark.parametrize(
    "garbled",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: 1\n\n",
        b'data: "x"\n\n',
        b"data: null\n\n",
        event("response.output_item.added", output_index=0),
        event("response.output_item.added", output_index=0, item=None),
        event("response.output_item.added", output_index=0, item={"id": "x"}),
        event("response.output_text.delta", output_index=0, content_index=0, delta=1),
        event("response.output_text.delta", output_index=0, content_index=0),
        event("response.output_text.delta", output_index=[], content_index=0, delta="x"),
        event("response.completed"),
        event("response.completed", response=[]),
        event("response.completed", response={"usage": {"input_tokens": "many"}}),
        done(0, "message", content=[1]),
        done(0, "message", content=[{"type": "output_text", "text": 1}]),
        done(0, "custom_tool_call", name="f", input=1),
    ],
)
def test_what_does_not_fit_the_format_is_malformed(garbled: bytes) -> None:
    answer = read(created() + garbled + end())
    assert type(answer.error) is MalformedResponse, answer.error


def test_an_answer_that_was_not_streamed_is_read_as_if_it_had_been() -> None:
    body = {
        "id": "resp_9",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
    }
    answer = read(json.dumps(body).encode(), whole=True)
    assert [block.type for block in answer.message.content] == ["thinking", "text"]
    assert (answer.message.response_id, answer.stop_reason) == ("resp_9", "stop")
    assert answer.usage == Usage(input_tokens=1, output_tokens=2, reasoning_tokens=1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, MalformedResponse),
        ({"choices": []}, MalformedResponse),
        ({"error": {"code": "server_is_overloaded", "message": "m"}}, ProviderOverloaded),
        ({"output": [], "status": "failed", "error": {"code": "server_error"}}, ProviderUnavailable),
        ({"output": [], "status": "queued"}, IncompleteStream),
        ({"output": 1, "status": "completed"}, MalformedResponse),
    ],
)
def test_a_whole_answer_that_is_none_is_an_error(body: dict[str, Any], kind: type[ProviderError]) -> None:
    assert type(read(json.dumps(body).encode(), whole=True).error) is kind
