"""Joins request, HTTP and response of Anthropic's Messages API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...stream.message_stream import MessageStream
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ..http.client import AsyncHttpClient, Timeouts, checked_base_url
from ..http.provider import HttpProvider
from ..model_call import ModelCall, StreamOptions
from .cache import CacheRetention
from .request import API, build_payload
from .response import AnthropicReader

__all__ = ("AnthropicProvider",)

_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_DEFAULT_BASE_URL = "https://api.anthropic.com"


class AnthropicProvider(HttpProvider):
    """Models behind Anthropic's Messages API, or behind whatever speaks it.

    ``api_key`` is by default the environment variable ``ANTHROPIC_API_KEY``, ``base_url`` is ``ANTHROPIC_BASE_URL`` or
    Anthropic's own address; ``/v1/messages`` is appended to it, as Anthropic's SDK does. ``http_client`` is an
    ``httpx.AsyncClient`` (or ``httpx2``'s) to use instead of our own; it is not closed. ``extra_headers`` and
    ``extra_body`` go with every request, the body merged key by key. ``cache_retention`` is how long the vendor keeps
    prompts.

    Constructing it needs neither a key nor an event loop. Close its connections with ``aclose()`` or by using it as a
    context manager; it can be used again afterwards, also in another event loop.
    """

    api = API
    _auth_header = "x-api-key"
    _key_headers = frozenset({"x-api-key", "authorization"})

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider_id: str = "anthropic",
        http_client: AsyncHttpClient | None = None,
        timeouts: Timeouts | None = None,
        max_concurrent_requests: int = 256,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        anthropic_version: str = "2023-06-01",
        cache_retention: CacheRetention = "short",
    ) -> None:
        super().__init__(
            provider_id=provider_id,
            api_key=api_key,
            key_variable=_KEY_VARIABLE,
            http_client=http_client,
            timeouts=timeouts,
            max_concurrent_requests=max_concurrent_requests,
            extra_headers={"anthropic-version": anthropic_version, **(extra_headers or {})},
            extra_body=extra_body,
        )
        self._url = checked_base_url(base_url or os.environ.get("ANTHROPIC_BASE_URL") or _DEFAULT_BASE_URL)
        self._url += "/v1/messages"
        self._cache_retention: CacheRetention = cache_retention

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> MessageStream:
        """Return the stream of one answer; the request is sent when the stream is entered.

        What goes wrong is an ``error`` event with a ``ProviderError``, a missing key included.
        """
        call = ModelCall.of(messages, system_prompt, tools, tool_choice, options)
        payload = partial(build_payload, model, call, cache_retention=self._cache_retention)
        return self._answer(model, call, url=self._url, payload=payload, reader=AnthropicReader)
