"""Chat Completions chunks, read into a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    IncompleteStream,
    MalformedResponse,
    ModelNotFound,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderPermissionDenied,
    ProviderUnavailable,
    RateLimited,
)
from cubepi_anyio.providers.http.classify import classify_response
from cubepi_anyio.providers.openai_chat.presets import Quirks
from cubepi_anyio.types import (
    ImageContent,
    OpaqueContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from tests.recordings import Recording, body_of, recording_params

from .reading import DONE, calls, check_against, chunk, end, entry, event, read, text

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
ANSWER = text("Hel", "lo 🍏") + chunk(finish_reason="stop") + event({"choices": [], "usage": USAGE}) + DONE


def test_an_answer_becomes_well_formed_events_and_a_message() -> None:
    answer = read(ANSWER)
    assert answer.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]
    assert answer.message.content == [TextContent(text="Hello 🍏")]
    assert (answer.message.response_id, answer.message.request_id) == ("chatcmpl-1", "req_1")
    assert answer.message.api == "openai-chat"
    assert answer.stop_reason == "stop"
    assert answer.usage == Usage(input_tokens=10, output_tokens=5)


def test_an_answer_cut_at_any_byte_is_the_same() -> None:
    for cut in range(len(ANSWER) + 1):
        assert read(ANSWER[:cut], ANSWER[cut:]).message.text == "Hello 🍏"


def test_an_answer_that_stops_before_its_finish_reason_is_never_done() -> None:
    until = ANSWER.index(b'"finish_reason": "stop"')
    for length in range(until):
        answer = read(ANSWER[:length])
        assert isinstance(answer.error, MalformedResponse), length
        assert "done" not in answer.types, length
        assert "Hello 🍏".startswith(answer.message.text.rstrip("\ufffd")), length


# --- how it ends -----------------------------------------------------------------------------


def test_a_finish_reason_is_the_end_although_done_is_missing() -> None:
    answer = read(text("x") + chunk(finish_reason="stop"))
    assert (answer.error, answer.stop_reason, answer.message.text) == (None, "stop", "x")


def test_done_is_the_end_although_the_finish_reason_is_missing() -> None:
    answer = read(text("x") + DONE)
    assert (answer.error, answer.stop_reason) == (None, "stop")
    answer = read(calls(entry("{}", name="a", id="1", index=0)) + DONE)
    assert (answer.error, answer.stop_reason) == (None, "tool_use")


def test_nothing_after_done_is_read() -> None:
    assert read(text("x") + end() + text("y") + b"data: nonsense\n\n").message.text == "x"


@pytest.mark.parametrize(
    "wire", [b"", b": ping\n\n", text("x"), event({"choices": [], "usage": USAGE}), DONE, chunk() + DONE]
)
def test_an_answer_without_any_end_or_any_choice_is_incomplete(wire: bytes) -> None:
    answer = read(wire)
    assert type(answer.error) is IncompleteStream
    assert "done" not in answer.types


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("length", "length"),
        ("model_length", "length"),
        ("something_new", "something_new"),
        ("", "stop"),
        (None, "stop"),
    ],
)
def test_finish_reasons_are_ours_or_kept_raw(theirs: str | None, ours: str) -> None:
    assert read(text("x") + end(theirs)).stop_reason == ours


def test_a_finish_reason_that_is_repeated_or_followed_by_null_counts_once() -> None:
    answer = read(text("x") + chunk(finish_reason="length") * 2 + chunk(finish_reason=None) + DONE)
    assert answer.stop_reason == "length"
    assert answer.types.count("done") == 1


@pytest.mark.parametrize("reason", ["stop", "tool_calls", None])
def test_the_message_calls_tools_whatever_the_finish_reason_says(reason: str | None) -> None:
    answer = read(calls(entry("{}", name="a", id="1", index=0)) + end(reason))
    assert (answer.stop_reason, answer.types[-2:]) == ("tool_use", ["toolcall_end", "done"])


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", ProviderUnavailable),
        ("network_error", ProviderUnavailable),
        ("insufficient_system_resource", ProviderOverloaded),
        ("abort", IncompleteStream),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", MalformedResponse),
    ],
)
def test_a_finish_reason_that_means_failure_is_an_error(reason: str, kind: type[ProviderError]) -> None:
    answer = read(text("so far") + calls(entry("{}", name="a", id="1", index=0)) + end(reason))
    assert type(answer.error) is kind
    assert answer.broken.text == "so far"
    assert answer.broken.tool_calls == []
    assert "done" not in answer.types


# --- filters and refusals --------------------------------------------------------------------


def test_a_filter_that_leaves_text_is_a_stop_reason_of_its_own() -> None:
    answer = read(text("Well, ") + end("content_filter"))
    assert (answer.error, answer.stop_reason, answer.message.text) == (None, "content_filter", "Well, ")
    assert read(text("x") + end("SAFETY")).stop_reason == "content_filter"


@pytest.mark.parametrize(
    "wire",
    [
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "hm"}),
        text("x") + calls(entry("{}", name="a", id="1", index=0)),
    ],
)
@pytest.mark.parametrize("reason", ["content_filter", "content_filter: RECITATION", "PROHIBITED_CONTENT"])
def test_a_filter_that_leaves_nothing_or_a_call_is_an_error(wire: bytes, reason: str) -> None:
    answer = read(wire + end(reason))
    assert type(answer.error) is ContentFiltered
    assert reason in str(answer.error)


@pytest.mark.parametrize("reason", ["stop", "content_filter", None])
def test_a_refusal_is_marked_text_and_a_stop_reason_of_its_own(reason: str | None) -> None:
    answer = read(text("Hm. ") + chunk({"refusal": "I "}) + chunk({"refusal": "won't."}) + end(reason))
    assert answer.message.content == [
        TextContent(text="Hm. "),
        TextContent(text="I won't.", vendor={"refusal": True}),
    ]
    assert answer.stop_reason == "refusal"
    assert answer.types.count("text_end") == 2


def test_marks_of_one_refusal_do_not_reach_another() -> None:
    wire = chunk({"refusal": "no"}) + end()
    first = read(wire).message.content[0]
    assert isinstance(first, TextContent)
    assert first.vendor is not None
    first.vendor["x"] = 1
    assert read(wire).message.content == [TextContent(text="no", vendor={"refusal": True})]


# --- thinking --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": None},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
    ],
)
def test_thinking_is_found_wherever_vendors_put_it(delta: dict[str, Any]) -> None:
    answer = read(chunk(delta) + text("4") + end())
    assert answer.message.content[:2] == [ThinkingContent(thinking="hm"), TextContent(text="4")]
    assert answer.types[:6] == [
        "start",
        "thinking_start",
        "thinking_delta",
        "thinking_end",
        "text_start",
        "text_delta",
    ]


def test_content_may_come_as_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "refusal", "refusal": "no"},
    ]
    assert read(chunk({"content": parts}) + end()).message.content == [
        ThinkingContent(thinking="hm"),
        TextContent(text="4"),
        TextContent(text="no", vendor={"refusal": True}),
    ]


def test_reasoning_details_are_put_together_and_kept_for_their_vendor() -> None:
    def details(**fields: Any) -> bytes:
        return chunk({"reasoning": fields.get("text", ""), "reasoning_details": [{"index": 0, **fields}]})

    answer = read(
        details(type="reasoning.text", text="a", format="f")
        + details(type="reasoning.text", text="b")
        + details(type="reasoning.text", signature="sig")
        + chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz", "index": 1}]})
        + text("4")
        + end()
    )
    assert answer.message.content == [
        ThinkingContent(thinking="ab"),
        TextContent(text="4"),
        OpaqueContent(
            kind="reasoning_details",
            data={
                "reasoning_details": [
                    {"index": 0, "type": "reasoning.text", "format": "f", "text": "ab", "signature": "sig"},
                    {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
                ]
            },
        ),
    ]


# --- what comes beside -----------------------------------------------------------------------


def test_annotations_audio_and_extra_content_are_kept_as_they_came() -> None:
    answer = read(
        chunk({"content": "x", "audio": {"id": "au", "data": "QU", "transcript": "he"}})
        + chunk({"audio": {"data": "FB", "transcript": "llo"}, "annotations": [{"type": "url_citation"}]})
        + chunk({"audio": {"expires_at": 7}, "extra_content": {"google": {"thought_signature": "s"}}})
        + end()
    )
    audio = {"id": "au", "expires_at": 7, "data": "QUFB", "transcript": "hello"}
    assert answer.message.content == [
        TextContent(text="x"),
        OpaqueContent(kind="annotations", data={"annotations": [{"type": "url_citation"}]}),
        OpaqueContent(kind="audio", data={"audio": audio}),
        OpaqueContent(kind="extra_content", data={"extra_content": {"google": {"thought_signature": "s"}}}),
    ]


def test_empty_extras_leave_nothing() -> None:
    empty: dict[str, Any] = {"annotations": None, "audio": {"id": "", "data": ""}, "tool_calls": None, "images": []}
    assert read(chunk({"content": "x", **empty, "function_call": {"name": "", "arguments": ""}}) + end()).types == [
        "start",
        "text_start",
        "text_delta",
        "text_end",
        "done",
    ]


def test_images_become_image_blocks() -> None:
    images = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUFB"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    assert read(chunk({"images": images}) + end()).message.content == [
        ImageContent(source="QUFB", media_type="image/png"),
        ImageContent(url="https://example.org/a.png"),
    ]


def test_only_the_first_of_several_choices_is_read() -> None:
    other = event({"id": "c", "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]})
    both = event({"id": "c", "choices": [{"index": 1, "delta": {"content": "no"}}, {"delta": {"content": "b"}}]})
    answer = read(other + text("a") + both + other + end())
    assert (answer.message.text, answer.stop_reason) == ("ab", "stop")


def test_a_choice_without_a_delta_or_with_a_whole_message_is_read() -> None:
    bare = event({"choices": [{"index": 0, "delta": None}]})
    whole = event({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]})
    assert read(bare + whole + DONE).message.text == "x"


def test_a_final_message_beside_an_empty_delta_does_not_repeat_the_text() -> None:
    last = event({"choices": [{"index": 0, "delta": {}, "message": {"content": "x"}, "finish_reason": "stop"}]})
    assert read(text("x") + last + DONE).message.text == "x"


def test_signs_of_life_are_passed_over_and_said_to_be_none() -> None:
    noise = b": OPENROUTER PROCESSING\n\n:\n\ndata: : OPENROUTER PROCESSING\n\ndata:\n\ndata: {}\n\n"
    answer = read(noise + text("x") + noise + end())
    assert (answer.error, answer.message.text) == (None, "x")
    assert answer.heard == [False, False, False, True, False, False, False, True, True]


def test_a_prelude_without_choices_is_not_the_message() -> None:
    prelude = event({"id": "", "choices": [], "model": "", "prompt_filter_results": [{"prompt_index": 0}]})
    assert read(prelude + text("x") + end()).message.response_id == "chatcmpl-1"


# --- usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wire",
    [
        text("x") + chunk(finish_reason="stop") + event({"choices": [], "usage": USAGE}) + DONE,
        text("x") + chunk(finish_reason="stop") + event({"usage": USAGE}) + DONE,
        text("x") + chunk(finish_reason="stop") + event({"choices": None, "usage": USAGE}) + DONE,
        event({"choices": [], "usage": USAGE}) + text("x") + end(),
        text("x") + chunk(finish_reason="stop", usage=USAGE) + chunk(usage=None) + DONE,
        chunk({"content": "x"}, usage={**USAGE, "completion_tokens": 1}) + chunk({}, "stop", usage=USAGE) + DONE,
        text("x") + chunk(finish_reason="stop", x_groq={"usage": USAGE}) + DONE,
        text("x") + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}) + DONE,
    ],
)
def test_usage_is_the_last_report_wherever_it_stands(wire: bytes) -> None:
    answer = read(wire)
    assert answer.message.text == "x"
    assert answer.usage == Usage(input_tokens=10, output_tokens=5)
    assert answer.events[-1].usage == answer.usage


def test_a_field_a_report_lacks_keeps_its_value() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}
    answer = read(
        chunk({"content": "x"}, usage={**USAGE, **details})
        + chunk({}, "stop", usage={"completion_tokens": 9, "prompt_tokens": None, "prompt_tokens_details": None})
        + DONE
    )
    assert answer.usage == Usage(input_tokens=3, output_tokens=9, cache_read_tokens=4, cache_write_tokens=3)


@pytest.mark.parametrize("cached", [{"prompt_cache_hit_tokens": 4}, {"cached_tokens": 4}])
def test_cached_tokens_are_found_where_vendors_put_them(cached: dict[str, int]) -> None:
    usage = {**USAGE, **cached, "completion_tokens_details": {"reasoning_tokens": 2}}
    assert read(text("x") + chunk({}, "stop", usage=usage) + DONE).usage == Usage(
        input_tokens=6, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2
    )


@pytest.mark.parametrize("details", [{"completion_tokens_details": {"reasoning_tokens": 20}}, {}])
def test_reasoning_that_a_vendor_counts_apart_is_part_of_the_output(details: dict[str, Any]) -> None:
    wire = text("x") + chunk({}, "stop", usage={**USAGE, "total_tokens": 35, **details}) + DONE
    apart = read(wire, quirks=Quirks(reasoning_counted_apart=True))
    assert apart.usage == Usage(input_tokens=10, output_tokens=25, reasoning_tokens=20)


def test_an_answer_that_breaks_off_reports_what_it_used() -> None:
    assert read(chunk({"content": "x"}, usage=USAGE)).usage == Usage(input_tokens=10, output_tokens=5)
    assert read(text("x") + end()).usage is None


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", text("so far")])
@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (event({"error": {"message": "m", "type": "server_error", "code": None}}), ProviderUnavailable),
        (event({"error": {"message": "Rate limit", "code": "rate_limit_exceeded"}}), RateLimited),
        (event({"error": {"message": "m", "code": 429}, "choices": [{"delta": {"content": ""}}]}), RateLimited),
        (event({"error": {"message": "m", "code": 502}, "choices": [{"finish_reason": "error"}]}), ProviderUnavailable),
        (event({"choices": [{"delta": {}, "error": {"message": "m", "code": 429}}]}), RateLimited),
        (event({"error": "the model is overloaded"}), ProviderOverloaded),
        (event({"error_type": "overloaded_error", "error_message": "m"}), ProviderOverloaded),
        (event({"object": "error", "message": "maximum context length is 8", "code": 400}), ContextLengthExceeded),
        (event([{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}]), RateLimited),
        (b"event: error\n" + event({"message": "m", "type": "server_error"}), ProviderUnavailable),
        (b"event: error\ndata: overloaded, come back\n\n", ProviderOverloaded),
    ],
)
def test_an_error_in_a_stream_is_the_error_it_would_be_as_an_answer(
    before: bytes, wire: bytes, kind: type[ProviderError]
) -> None:
    answer = read(before + wire + end())
    assert type(answer.error) is kind
    assert "done" not in answer.types
    assert answer.broken.text == ("so far" if before else "")


@pytest.mark.parametrize(
    "wire",
    [
        b"data: {nonsense\n\n",
        event([1]),
        event("text"),
        event(3),
        event({"choices": [1]}),
        event({"choices": 1}),
        chunk({"content": 3}),
        chunk({"content": [1]}),
        chunk({"content": [{"type": "text"}]}),
        chunk({"tool_calls": [1]}),
        chunk({"tool_calls": [{"function": "f"}]}),
        chunk({"tool_calls": [{"id": "1", "index": [], "function": {"name": "a"}}]}),
        chunk({"audio": "x"}),
        chunk({"images": [{}]}),
        chunk({"reasoning_details": [1]}),
        chunk({}, usage=[1]),
        event({"choices": [{"delta": "x"}]}),
        event({"choices": [{"delta": {}, "finish_reason": 3}]}),
    ],
)
def test_what_does_not_fit_the_format_is_malformed(wire: bytes) -> None:
    answer = read(text("so far") + wire + end())
    assert type(answer.error) is MalformedResponse
    assert answer.broken.text == "so far"
    assert "done" not in answer.types


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)))
def test_no_field_of_a_chunk_can_raise_anything_but_a_provider_error(value: Any) -> None:
    for field in ("content", "refusal", "reasoning", "tool_calls", "function_call", "audio", "images", "annotations"):
        answer = read(chunk({field: value}) + end())
        assert answer.error is not None or answer.types[-1] == "done"
    for field in ("choices", "usage", "error", "x_groq", "id"):
        answer = read(event({"choices": [{"delta": {}}], field: value}) + end())
        assert answer.error is not None or answer.types[-1] == "done"


# --- answers that were not streamed ----------------------------------------------------------


def body(message: Any, finish_reason: str | None = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"id": "chatcmpl-1", "choices": [choice], "usage": USAGE, **fields}).encode()


def test_a_whole_answer_is_read_like_a_streamed_one() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}}
    answer = read(body({"content": "hi", "reasoning_content": "hm", "tool_calls": [call]}, "tool_calls"), whole=True)
    assert answer.error is None
    assert answer.message.content == [
        ThinkingContent(thinking="hm"),
        TextContent(text="hi"),
        ToolCall(id="1", name="a", arguments={"x": 1}),
    ]
    assert (answer.stop_reason, answer.usage) == ("tool_use", Usage(input_tokens=10, output_tokens=5))
    assert read(body({"content": ""}, ""), whole=True).stop_reason == "stop"


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b'{"error": {"message": "m", "code": "content_filter", "status": 400}}', ContentFiltered),
        (b'{"object": "error", "message": "m", "code": 401}', ProviderAuthFailed),
        (b"{}", MalformedResponse),
        (b'{"detail": "x"}', MalformedResponse),
        (b'{"choices": []}', MalformedResponse),
        (b'{"choices": {}}', MalformedResponse),
        (b'{"choices": [{"message": "x"}]}', MalformedResponse),
        (b"[]", MalformedResponse),
        (body({"content": None}, "content_filter"), ContentFiltered),
        (body({"content": "x"}, "error"), ProviderUnavailable),
    ],
)
def test_a_whole_answer_that_is_none_is_a_typed_error(wire: bytes, kind: type[ProviderError]) -> None:
    answer = read(wire, whole=True)
    assert type(answer.error) is kind
    assert "done" not in answer.types


# --- recordings ------------------------------------------------------------------------------


def _ways(wire: bytes) -> dict[str, tuple[bytes, ...]]:
    """One body, sent in the ways servers send it."""
    crlf = wire.replace(b"\n", b"\r\n")
    return {
        "whole": (wire,),
        "byte by byte": tuple(wire[at : at + 1] for at in range(len(wire))),
        "crlf": (crlf,),
        "crlf byte by byte": tuple(crlf[at : at + 1] for at in range(len(crlf))),
        "byte order mark": (b"\xef\xbb\xbf", wire),
        "odd pieces": tuple(wire[at : at + 37] for at in range(0, len(wire), 37)),
    }


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-chat", streamed=True, status=200))
def test_a_recorded_stream_is_read_as_its_vendor_meant_it(recording: Recording) -> None:
    failed = recording["expected"]["outcome"] != "ok"
    for pieces in _ways(body_of(recording)).values():
        answer = read(*pieces)
        assert (answer.error is not None) is failed
        assert answer.types[-1:] != ["done"] if failed else answer.types[-1] == "done"
        check_against(recording, answer.message, answer.usage, answer.stop_reason)


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-chat", streamed=False, status=200))
def test_a_recorded_answer_is_read_as_its_vendor_meant_it(recording: Recording) -> None:
    answer = read(body_of(recording), whole=True)
    kinds = {"ok": type(None), "error_in_200_body": ContentFiltered, "invalid_response": MalformedResponse}
    assert type(answer.error) is kinds[recording["expected"]["outcome"]]
    check_against(recording, answer.message, answer.usage, answer.stop_reason)


STREAM_ERRORS = {
    "chat-groq-test-tool-use-failed-error-streaming": ProviderBadRequest,
    "chat-openai-recon-stream-first-chunk-error": ProviderUnavailable,
    "chat-openai-recon-truncated-no-done": IncompleteStream,
    "chat-openrouter-test-openrouter-stream-error": ContextLengthExceeded,
}

HTTP_ERRORS: dict[str, type[ProviderError]] = {
    "chat-azure-ast-non-reasoning-handles-context-length-exceeded-errors": RateLimited,
    "chat-deepseek-blocking-pdf-document-part-reaches-the-wire": ProviderBadRequest,
    "chat-doubleword-invalid-key-streaming": ProviderPermissionDenied,
    "chat-doubleword-unknown-model-blocking": ModelNotFound,
    "chat-llamacpp-image-without-mmproj": ProviderUnavailable,
    "chat-mistral-stral-mistral-small-latest-raises-appropriate-auth-error": ProviderAuthFailed,
    "chat-openai-recon-429-insufficient-quota": RateLimited,
    "chat-openai-recon-429-requests": RateLimited,
    "chat-openai-recon-500-server-error": ProviderUnavailable,
    "chat-openai-recon-503-engine-overloaded": ProviderOverloaded,
    "chat-openrouter-penrouter-claude-haiku-4-5-raises-appropriate-auth-error": ProviderAuthFailed,
    "chat-openrouter-routed-failure-error-shape": ModelNotFound,
    "chat-openrouter-test-openrouter-errors-raised": RateLimited,
    "chat-perplexity-ling-with-perplexity-sonar-raises-appropriate-auth-error": ProviderAuthFailed,
    "chat-venice-nonexistent-model-error-preserves-status-and-body": ModelNotFound,
}
"""The error of each recorded one; a recording that is new and not here fails."""


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", recording_params("openai-chat"))
def test_a_recorded_error_is_of_the_kind_that_fits(recording: Recording) -> None:
    response, wanted = recording["response"], recording["expected"]
    if response["status"] != 200:
        error = classify_response(response["status"], body_of(recording), response["headers"])
        assert type(error) is HTTP_ERRORS[recording["id"]]
        assert error.status_code == response["status"]
        assert wanted["error"]["message"][:200] in error.message
    elif wanted["outcome"] in ("stream_error", "truncated"):
        assert type(read(body_of(recording)).error) is STREAM_ERRORS[recording["id"]]


def _whole_streams() -> list[Any]:
    """The recorded streams that end well, as parameters."""
    params = recording_params("openai-chat", streamed=True, status=200)
    return [each for each in params if each.values[0] is None or each.values[0]["expected"]["outcome"] == "ok"]


@pytest.mark.needs_shared
@pytest.mark.parametrize("recording", _whole_streams())
def test_a_recorded_stream_that_is_cut_is_never_taken_for_a_whole_one(recording: Recording) -> None:
    wire = body_of(recording)
    whole = read(wire).message
    finished = _end_of_answer(wire)
    for percent in range(1, 100, 7):
        length = len(wire) * percent // 100
        answer = read(wire[:length])
        if length < finished:
            assert isinstance(answer.error, MalformedResponse), percent
            assert "done" not in answer.types, percent
            assert whole.text.startswith(answer.broken.text.rstrip("\ufffd")), percent
        elif answer.error is None:
            assert answer.message.text == whole.text, percent


def _end_of_answer(wire: bytes) -> int:
    """Where the chunk with the first finish reason ends, or ``[DONE]`` if there is none."""
    at = 0
    for piece in wire.split(b"\n\n"):
        at += len(piece) + 2
        for line in piece.split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:]).get("choices") or []
            if any(choice.get("finish_reason") and not choice.get("index") for choice in choices):
                return at - 2
    return wire.index(b"[DONE]")
