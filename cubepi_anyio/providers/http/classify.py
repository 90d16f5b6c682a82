"""What a vendor said went wrong, turned into the error class that fits. Pure.

The same words mean the same error wherever they arrive: as an HTTP error, as the first event of a stream, or in the
middle of one after a 200. So the code and the wording of the body are asked first, and the HTTP status only where
the body says nothing: gateways put other vendors' errors into statuses of their own.

Codes are the vendors' own: Anthropic's ``error.type`` ("Errors" in its API reference), OpenAI's ``error.code`` and
``error.type`` ("Error codes"), and what compatible servers make of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from pydantic_core import from_json

from ...errors import (
    ContentFiltered,
    ContextLengthExceeded,
    ModelNotFound,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderPermissionDenied,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from ...types.json import JsonObject, JsonValue
from .retry_after import retry_after_seconds

__all__ = ("classify_error", "classify_response", "redact", "request_id_of")

_MAX_MESSAGE_CHARACTERS = 2000

_BY_CODE: dict[str, type[ProviderError]] = {
    # Anthropic
    "authentication_error": ProviderAuthFailed,
    "billing_error": ProviderPermissionDenied,
    "permission_error": ProviderPermissionDenied,
    "not_found_error": ModelNotFound,
    "rate_limit_error": RateLimited,
    "timeout_error": ProviderTimeout,
    "overloaded_error": ProviderOverloaded,
    "api_error": ProviderUnavailable,
    "request_too_large": ContextLengthExceeded,
    # OpenAI and compatible servers
    "invalid_api_key": ProviderAuthFailed,
    "invalid_authentication": ProviderAuthFailed,
    "insufficient_permissions": ProviderPermissionDenied,
    "unsupported_country_region_territory": ProviderPermissionDenied,
    "forbidden": ProviderPermissionDenied,
    "model_not_found": ModelNotFound,
    "deploymentnotfound": ModelNotFound,
    "context_length_exceeded": ContextLengthExceeded,
    "string_above_max_length": ContextLengthExceeded,
    "content_filter": ContentFiltered,
    "content_policy_violation": ContentFiltered,
    "responsibleaipolicyviolation": ContentFiltered,
    "rate_limit_exceeded": RateLimited,
    "ratelimitreached": RateLimited,
    "insufficient_quota": RateLimited,
    "tokens": RateLimited,
    "requests": RateLimited,
    "engine_overloaded": ProviderOverloaded,
    "server_is_overloaded": ProviderOverloaded,
    "slow_down": ProviderOverloaded,
    "server_error": ProviderUnavailable,
    "internal_server_error": ProviderUnavailable,
    "vector_store_timeout": ProviderTimeout,
}

# Said by vendors that answer a request that is too long with a general code.
_TOO_LONG = (
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the available context size",
    "too many total text bytes",
    "input token count exceeds",
    "reduce the length of the messages",
    "input length and `max_tokens` exceed",
    "token limit reached",
)
_BAD_KEY = ("incorrect api key", "invalid api key", "api key is invalid", "api key not valid", "missing authentication")
_OVERLOADED = ("overloaded", "at capacity", "over capacity")
_NO_SUCH_MODEL = ("not a valid model id", "model not found", "unknown model")

_BY_STATUS: dict[int, type[ProviderError]] = {
    401: ProviderAuthFailed,
    402: ProviderPermissionDenied,
    403: ProviderPermissionDenied,
    404: ModelNotFound,
    408: ProviderTimeout,
    409: ProviderUnavailable,
    413: ContextLengthExceeded,
    425: ProviderUnavailable,
    429: RateLimited,
    504: ProviderTimeout,
    529: ProviderOverloaded,
}


def classify_response(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    provider: str = "",
    model: str = "",
    secrets: Collection[str] = (),
) -> ProviderError:
    """Make the error of an HTTP answer whose status is not 2xx.

    ``headers`` have lower-case names. ``body`` may be JSON of any shape, HTML, text or nothing. ``secrets`` are masked
    in the message, because some vendors repeat the key they were sent.
    """
    try:
        said: JsonValue = from_json(body)
    except ValueError:
        said = body.decode("utf-8", "replace")
    return classify_error(said, status=status, headers=headers, provider=provider, model=model, secrets=secrets)


def classify_error(
    said: JsonValue,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    provider: str = "",
    model: str = "",
    secrets: Collection[str] = (),
) -> ProviderError:
    """Make the error of a decoded error body or error event: ``{"error": {...}}``, its inside, or any other value.

    ``status`` is that of an HTTP error; for an event inside a stream leave it out, and a status the event itself names
    is used. An error whose kind nothing tells is a ``ProviderUnavailable``: it came from the vendor's side.
    """
    headers = headers or {}
    codes, message = _codes_of(said), _message_of(said)
    if status is None:
        status = next((int(code) for code in codes if code.isdecimal() and 400 <= int(code) < 600), None)
    words = [code for code in codes if not code.isdecimal()]
    kind = _kind_of(words, message.lower(), status)
    return kind(
        redact(message or _nothing_said(status), secrets),
        provider=provider,
        model=model,
        status_code=status,
        error_code=words[0] if words else None,
        request_id=request_id_of(headers, said),
        retry_after_seconds=retry_after_seconds(headers),
    )


def request_id_of(headers: Mapping[str, str], said: JsonValue = None) -> str | None:
    """The id under which the vendor can find the request, from the headers (lower-case names) or an error body."""
    for name in ("request-id", "x-request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"):
        if headers.get(name):
            return headers[name]
    for level in _levels(said):
        if isinstance(level.get("request_id"), str) and level["request_id"]:
            return level["request_id"]
    return None


def redact(text: str, secrets: Collection[str]) -> str:
    """Mask each of ``secrets`` in ``text``."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def _kind_of(codes: list[str], message: str, status: int | None) -> type[ProviderError]:
    """Choose the class: the wording that is beyond doubt, then the codes, then the status."""
    kinds = [_BY_CODE[code.lower()] for code in codes if code.lower() in _BY_CODE]
    refused = status is None or 400 <= status < 500
    # A limit on tokens per minute speaks of tokens too, so a rate limit is never taken for a full window.
    if refused and RateLimited not in kinds and status != 429 and any(words in message for words in _TOO_LONG):
        return ContextLengthExceeded
    if ContentFiltered in kinds:
        return ContentFiltered
    if kinds:
        return ProviderOverloaded if kinds[0] is ProviderUnavailable and _says(message, _OVERLOADED) else kinds[0]
    if refused and _says(message, _BAD_KEY):
        return ProviderAuthFailed
    if refused and status != 429 and _says(message, _NO_SUCH_MODEL):
        return ModelNotFound
    if any(code.lower() == "invalid_request_error" for code in codes) and (status is None or status in (400, 422)):
        return ProviderBadRequest
    return _kind_of_status(message, status)


def _kind_of_status(message: str, status: int | None) -> type[ProviderError]:
    kind = _BY_STATUS.get(status) if status is not None else None
    if kind is not None:
        return kind
    if status is not None and 300 <= status < 500:
        return ProviderBadRequest
    return ProviderOverloaded if _says(message, _OVERLOADED) else ProviderUnavailable


def _says(message: str, wordings: tuple[str, ...]) -> bool:
    return any(words in message for words in wordings)


def _nothing_said(status: int | None) -> str:
    return "the vendor sent an error without a reason" if status is None else f"the vendor answered HTTP {status}"


def _codes_of(said: JsonValue) -> list[str]:
    """Everything in the body that names the kind of error, the most precise first."""
    codes: list[str] = []
    for level in _levels(said):
        for key in ("code", "type", "error_type", "status", "status_code"):
            value = level.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and value not in ("", "error"):
                codes.append(str(value))
    return codes


def _levels(said: JsonValue) -> list[JsonObject]:
    """The objects of an error body, from the inside out: some vendors nest them, some wrap them in a list."""
    levels: list[JsonObject] = []
    inner: JsonValue = said
    while len(levels) < 4:
        if isinstance(inner, list) and inner:
            inner = cast("list[JsonValue]", inner)[0]
        if not isinstance(inner, dict):
            break
        level = cast("JsonObject", inner)
        levels.append(level)
        inner = level.get("error") or level.get("innererror")
    return levels[::-1]


def _message_of(said: JsonValue) -> str:
    for level in _levels(said):
        for key in ("message", "error_message", "detail", "error", "msg"):
            value = level.get(key)
            if value and not isinstance(value, dict):
                return _shortened(value if isinstance(value, str) else str(value))
    if isinstance(said, str):
        return _shortened(said)
    return _shortened(str(said)) if said else ""


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[:_MAX_MESSAGE_CHARACTERS] + " …"
