"""Joins request, HTTP and response of OpenAI's Responses API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ...stream.message_stream import MessageStream
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ..http.client import AsyncHttpClient, Timeouts, checked_base_url
from ..http.provider import HttpProvider
from ..model_call import ModelCall, StreamOptions
from ..strict_schema import StrictTools, strict_schemas
from .request import API, SystemPromptPlace, build_payload
from .response import ResponsesReader

__all__ = ("OpenAIResponsesProvider",)

_KEY_VARIABLE = "OPENAI_API_KEY"
_DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIResponsesProvider(HttpProvider):
    """Models behind OpenAI's Responses API, or behind whatever imitates it.

    ``api_key`` is by default the environment variable ``OPENAI_API_KEY``, ``base_url`` is ``OPENAI_BASE_URL`` or
    OpenAI's own address; ``/responses`` is appended to it, as OpenAI's SDK does, before its query if it has one.
    ``http_client`` is an ``httpx.AsyncClient`` (or ``httpx2``'s) to use instead of our own; it is not closed.
    ``organization`` and ``project`` are OpenAI's headers of these names. ``extra_headers`` and ``extra_body`` go with
    every request, the body merged key by key.

    ``store`` says whether the vendor keeps the answers. Without it the vendor is asked for reasoning in encrypted form,
    which is sent back with the next request. ``system_prompt_place`` says where the system prompt goes.
    ``parallel_tool_calls`` says whether a model may call several tools at once; ``None`` leaves it to the vendor.
    ``strict_tools`` says for which tools the vendor must keep to the schema: ``never``, where it is ``possible``, or
    ``always``, where a tool whose schema does not allow it raises ``ToolDefinitionError``.

    Constructing it needs neither a key nor an event loop. Close its connections with ``aclose()`` or by using it as a
    context manager; it can be used again afterwards, also in another event loop.
    """

    api = API
    takes_response_schema = True

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider_id: str = "openai",
        http_client: AsyncHttpClient | None = None,
        timeouts: Timeouts | None = None,
        max_concurrent_requests: int = 256,
        organization: str | None = None,
        project: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        store: bool = False,
        system_prompt_place: SystemPromptPlace = "instructions",
        parallel_tool_calls: bool | None = None,
        strict_tools: StrictTools = "never",
    ) -> None:
        named = {
            "openai-organization": organization or os.environ.get("OPENAI_ORG_ID"),
            "openai-project": project or os.environ.get("OPENAI_PROJECT_ID"),
        }
        super().__init__(
            provider_id=provider_id,
            api_key=api_key,
            key_variable=_KEY_VARIABLE,
            http_client=http_client,
            timeouts=timeouts,
            max_concurrent_requests=max_concurrent_requests,
            extra_headers={name: value for name, value in named.items() if value} | dict(extra_headers or {}),
            extra_body=extra_body,
        )
        self._url = _endpoint(checked_base_url(base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_BASE_URL))
        self._store = store
        self._system_prompt_place: SystemPromptPlace = system_prompt_place
        self._parallel_tool_calls = parallel_tool_calls
        self._strict_tools: StrictTools = strict_tools

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

        What goes wrong is an ``error`` event with a ``ProviderError``, a missing key included; a tool that cannot be
        sent is one with a ``ToolDefinitionError``.
        """
        call = ModelCall.of(messages, system_prompt, tools, tool_choice, options)
        payload = partial(
            build_payload,
            model,
            call,
            parallel_tool_calls=self._parallel_tool_calls,
            strict_tools=self._strict_tools,
            store=self._store,
            system_prompt_place=self._system_prompt_place,
        )
        reader = partial(ResponsesReader, strict_schemas=strict_schemas(tools or (), self._strict_tools))
        return self._answer(model, call, url=self._url, payload=payload, reader=reader)


def _endpoint(base_url: str) -> str:
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/responses", parts.query, ""))
