"""What a vendor said went wrong, and the error it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cubepi_anyio import errors
from cubepi_anyio.providers.http.classify import classify_error, classify_response, request_id_of
from cubepi_anyio.providers.http.retry_after import retry_after_seconds
from tests.recordings import recordings

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0.0),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "86401"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "99999999999", "retry-after": "3"}, 3.0),
    ],
)
def test_retry_after_is_read_in_its_three_forms_and_absurd_ones_are_ignored(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_seconds(headers, now=NOW) == seconds


def anthropic(code: str, message: str = "m") -> dict[str, Any]:
    return {"type": "error", "error": {"type": code, "message": message}}


def openai(code: str | None = None, kind: str | None = None, message: str = "m") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, anthropic("authentication_error"), errors.ProviderAuthFailed),
        (403, anthropic("permission_error"), errors.ProviderPermissionDenied),
        (404, anthropic("not_found_error"), errors.ModelNotFound),
        (413, anthropic("request_too_large"), errors.ContextLengthExceeded),
        (429, anthropic("rate_limit_error"), errors.RateLimited),
        (500, anthropic("api_error"), errors.ProviderUnavailable),
        (504, anthropic("timeout_error"), errors.ProviderTimeout),
        (529, anthropic("overloaded_error"), errors.ProviderOverloaded),
        (400, anthropic("invalid_request_error"), errors.ProviderBadRequest),
        (
            400,
            anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            errors.ContextLengthExceeded,
        ),
        (400, openai("context_length_exceeded", "invalid_request_error"), errors.ContextLengthExceeded),
        (
            400,
            openai(None, "invalid_request_error", "This model's maximum context length is 8192 tokens."),
            errors.ContextLengthExceeded,
        ),
        (429, openai("rate_limit_exceeded", "tokens", "Limit 8000 tokens; context length 9000"), errors.RateLimited),
        (429, openai("insufficient_quota", "insufficient_quota"), errors.RateLimited),
        (401, openai("invalid_api_key", "invalid_request_error"), errors.ProviderAuthFailed),
        (404, openai("model_not_found", "invalid_request_error"), errors.ModelNotFound),
        (400, openai("content_filter"), errors.ContentFiltered),
        (503, openai(None, "server_error", "The engine is currently overloaded"), errors.ProviderOverloaded),
        (500, openai(None, "server_error"), errors.ProviderUnavailable),
        (400, {"code": "invalid-argument", "error": "Incorrect API key provided"}, errors.ProviderAuthFailed),
        (401, {"detail": "Invalid API Key"}, errors.ProviderAuthFailed),
        (422, {"detail": [{"loc": ["body"], "msg": "bad"}]}, errors.ProviderBadRequest),
        (404, {"error": "Specified model not found: x"}, errors.ModelNotFound),
        (408, "", errors.ProviderTimeout),
        (402, "pay", errors.ProviderPermissionDenied),
        (302, "", errors.ProviderBadRequest),
        (418, None, errors.ProviderBadRequest),
        (502, "<html><body>Bad Gateway</body></html>", errors.ProviderUnavailable),
        (503, "upstream connect error", errors.ProviderUnavailable),
        # What arrives inside a stream, after a 200.
        (None, anthropic("overloaded_error", "Overloaded"), errors.ProviderOverloaded),
        (None, anthropic("invalid_request_error", "prompt is too long"), errors.ContextLengthExceeded),
        (None, {"error": {"code": 429, "message": "Provider returned error"}}, errors.RateLimited),
        (None, {"error": {"code": 400, "message": "Token limit reached"}}, errors.ContextLengthExceeded),
        (None, {"error_type": "overloaded_error", "error_message": "busy"}, errors.ProviderOverloaded),
        (None, {"type": "error", "code": "server_error", "message": "m", "param": None}, errors.ProviderUnavailable),
        (None, {"error": {}}, errors.ProviderUnavailable),
        (None, None, errors.ProviderUnavailable),
    ],
)
def test_status_and_words_choose_the_class(status: int | None, said: Any, kind: type[errors.ProviderError]) -> None:
    assert type(classify_error(said, status=status)) is kind


RECORDED_BY_STATUS = {
    400: (errors.ProviderBadRequest, errors.ProviderAuthFailed, errors.ModelNotFound),
    401: (errors.ProviderAuthFailed,),
    403: (errors.ProviderPermissionDenied,),
    404: (errors.ModelNotFound,),
    413: (errors.ContextLengthExceeded,),
    429: (errors.RateLimited,),
    500: (errors.ProviderUnavailable,),
    502: (errors.ProviderUnavailable,),
    503: (errors.ProviderUnavailable, errors.ProviderOverloaded),
    529: (errors.ProviderOverloaded,),
}


@pytest.mark.needs_shared
@pytest.mark.parametrize("api", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_recorded_errors_have_their_class_their_words_and_their_request(api: str) -> None:
    recorded = [recording for recording in recordings(api) if recording["response"]["status"] >= 400]
    if not recorded:
        pytest.skip("the wire recordings are not there")
    for recording in recorded:
        answer = recording["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        error = classify_response(answer["status"], answer["body_text"].encode(), headers)
        assert type(error) in RECORDED_BY_STATUS[answer["status"]], recording["id"]
        assert error.status_code == answer["status"]
        assert error.message.split()[:3] == str(recording["expected"]["error"]["message"]).split()[:3], recording["id"]
        named = headers.get("request-id") or headers.get("x-request-id")
        assert error.request_id == (named or recording["expected"]["error"].get("request_id")), recording["id"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"true", b"1", b'"text"', b"[]", b"[[[]]]", b'{"error": []}', b'{"error": {"message": null}}',
        b'{"error": {"message": {"a": 1}, "code": [1]}}', b'{"error": 5}', b"\xff\xfe\x00", b"{", b"<!doctype html>",
        b'{"error": {"error": {"error": {"error": {"error": "deep"}}}}}', b'{"message": "\\ud83c"}',
        b'[{"error": {"code": 503, "message": "listed"}}]',
    ],
)  # fmt: skip
def test_no_shape_of_body_is_too_odd(body: bytes) -> None:
    error = classify_response(503, body, {}, provider="p", model="m")
    assert type(error) is errors.ProviderUnavailable
    assert (error.provider, error.model, error.status_code) == ("p", "m", 503)
    assert error.message
    assert str(error).startswith("[p/m] ")


def test_an_error_keeps_what_the_vendor_sent() -> None:
    headers = {"request-id": "req_1", "retry-after": "7"}
    body = json.dumps(anthropic("rate_limit_error", "slow  down\n")).encode()
    error = classify_response(429, body, headers, provider="anthropic", model="m")
    assert (error.error_code, error.request_id, error.retry_after_seconds) == ("rate_limit_error", "req_1", 7.0)
    assert str(error) == "[anthropic/m] slow down (HTTP 429, rate_limit_error, request req_1, retry after 7 s)"


def test_a_long_message_is_cut() -> None:
    assert len(classify_response(500, b"x" * 1_000_000, {}).message) < 2100


def test_a_key_the_vendor_repeats_is_masked() -> None:
    body = b'{"error": {"message": "Incorrect API key provided: sk-123."}}'
    assert classify_response(401, body, {}, secrets=["sk-123", ""]).message == "Incorrect API key provided: ***."


def test_the_request_id_stands_in_a_header_or_in_the_body() -> None:
    assert request_id_of({"x-request-id": "a", "request-id": "b"}) == "b"
    assert request_id_of({}, {"request_id": "c", "error": {"message": "m"}}) == "c"
    assert request_id_of({}, {"request_id": None}) is None
    assert request_id_of({}, "text") is None
