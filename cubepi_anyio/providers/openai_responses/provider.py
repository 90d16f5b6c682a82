"""Joins request, HTTP and response of OpenAI's Responses API."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from ...errors import ProviderAuthFailed, ToolDefinitionError
from ...stream.message_stream import MessageStream
from ...types.json import JsonObject
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ..base import BaseProvider, StreamOptions
from ..exchange import Exchange
from ..http import AsyncHttpClient, HttpClient, Timeouts, checked_base_url
from ..openai_chat.request import parameters_of
from .request import API, StrictTools, SystemPromptPlace, build_payload
from .response import ResponsesReader

__all__ = ("OpenAIResponsesProvider",)

_KEY_VARIABLE = "OPENAI_API_KEY"
_DEFAULT_BASE_URL = "https://api.openai.com/v1"
_KEY_HEADERS = ("authorization", "api-key")


class OpenAIResponsesProvider(BaseProvider):
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
        super().__init__(provider_id=provider_id)
        key = api_key if api_key is not None else os.environ.get(_KEY_VARIABLE, "")
        self._api_key = SecretStr(key.strip())
        self._url = _endpoint(checked_base_url(base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_BASE_URL))
        self._extra_headers: dict[str, str] = {}
        self._add_header("openai-organization", organization or os.environ.get("OPENAI_ORG_ID"))
        self._add_header("openai-project", project or os.environ.get("OPENAI_PROJECT_ID"))
        self._extra_headers |= {name.lower(): value for name, value in (extra_headers or {}).items()}
        self._extra_body = dict(extra_body or {})
        self._store = store
        self._system_prompt_place: SystemPromptPlace = system_prompt_place
        self._parallel_tool_calls = parallel_tool_calls
        self._strict_tools: StrictTools = strict_tools
        self._http = HttpClient(
            http_client=http_client, timeouts=timeouts, max_concurrent_requests=max_concurrent_requests
        )

    def _add_header(self, name: str, value: str | None) -> None:
        if value:
            self._extra_headers[name] = value

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. A checkpoint."""
        await self._http.aclose()

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
        options = options if options is not None else StreamOptions()
        payload = partial(
            build_payload,
            model,
            list(messages),
            system_prompt=system_prompt,
            tools=tools,
            tool_choice=tool_choice,
            reasoning=options.reasoning,
            max_output_tokens=options.max_output_tokens,
            temperature=options.temperature,
            response_schema=options.response_schema,
            parallel_tool_calls=self._parallel_tool_calls,
            strict_tools=self._strict_tools,
            store=self._store,
            system_prompt_place=self._system_prompt_place,
        )
        exchange = Exchange(
            client=self._http,
            url=self._url,
            model=model,
            provider_id=self.provider_id,
            api=self.api,
            options=options,
            observers=self.observers,
            payload=payload,
            extra_body=self._extra_body,
            headers=partial(self._headers, options.extra_headers or {}),
            reader=partial(ResponsesReader, strict_schemas=self._strict_schemas(tools or ())),
            key_hint=_KEY_VARIABLE,
        )
        return MessageStream(exchange.run)

    def _strict_schemas(self, tools: Sequence[ToolDefinition]) -> dict[str, JsonObject]:
        """The schemas of the tools that go out as strict ones, by name."""
        if self._strict_tools == "never" and not any(tool.strict for tool in tools):
            return {}
        with suppress(ToolDefinitionError):  # making the payload says it
            return {tool.name: tool.parameters for tool in tools if parameters_of(tool, self._strict_tools)[1]}
        return {}

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Make the request's headers; later ones replace earlier ones of the same name, whatever its letters."""
        headers = {"accept": "text/event-stream, application/json"}
        key = self._api_key.get_secret_value()
        if key:
            headers["authorization"] = f"Bearer {key}"
        headers |= self._extra_headers
        headers |= {name.lower(): value for name, value in extra.items()}
        if not headers.keys() & set(_KEY_HEADERS):
            raise ProviderAuthFailed(f"there is no API key; set {_KEY_VARIABLE} or give api_key=")
        return headers


def _endpoint(base_url: str) -> str:
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/responses", parts.query, ""))
