"""Joins request, HTTP and response of Chat Completions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from pydantic import SecretStr

from ...errors import ProviderAuthFailed, ToolDefinitionError, UsageError
from ...stream.message_stream import MessageStream
from ...types.json import JsonObject
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ..base import BaseProvider, StreamOptions
from ..exchange import Exchange
from ..http import AsyncHttpClient, HttpClient, Timeouts, checked_base_url
from .presets import PRESETS, Preset, Quirks
from .request import API, StrictTools, build_payload, parameters_of
from .response import ChatReader

__all__ = ("OpenAIProvider",)


class OpenAIProvider(BaseProvider):
    """Models behind OpenAI's Chat Completions API, or behind whatever imitates it.

    ``preset`` names a vendor of ``PRESETS`` or is a ``Preset`` of your own; it says the address, where the key comes
    from, and the dialect. ``api_key`` is by default the vendor's environment variable (``OPENAI_API_KEY``), and
    ``base_url`` the vendor's address, for OpenAI the variable ``OPENAI_BASE_URL`` if it is set; ``/chat/completions``
    is appended to it, as OpenAI's SDK does. With the preset ``azure`` it is the resource's endpoint, a model's id is
    the name of its deployment, and ``api_version`` may be given.

    ``provider_id`` is by default the preset's. ``http_client`` is an ``httpx.AsyncClient`` (or ``httpx2``'s) to use
    instead of our own; it is not closed. ``organization`` and ``project`` are OpenAI's headers of these names.
    ``extra_headers`` and ``extra_body`` go with every request, the body merged key by key. ``parallel_tool_calls``
    says whether a model may call several tools at once; ``None`` leaves it to the vendor. ``strict_tools`` says for
    which tools the vendor must keep to the schema: ``never``, where it is ``possible``, or ``always``, where a tool
    whose schema does not allow it raises ``ToolDefinitionError``. ``quirks`` replace the preset's.

    Constructing it needs neither a key nor an event loop. Close its connections with ``aclose()`` or by using it as a
    context manager; it can be used again afterwards, also in another event loop.
    """

    api = API

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider_id: str | None = None,
        preset: str | Preset = "openai",
        quirks: Quirks | None = None,
        http_client: AsyncHttpClient | None = None,
        timeouts: Timeouts | None = None,
        max_concurrent_requests: int = 256,
        organization: str | None = None,
        project: str | None = None,
        api_version: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        strict_tools: StrictTools = "never",
    ) -> None:
        chosen = _preset(preset)
        super().__init__(provider_id=provider_id if provider_id is not None else chosen.provider_id)
        self._preset = chosen
        self._quirks = quirks if quirks is not None else chosen.quirks
        self.takes_response_schema: bool = self._quirks.response_schema
        key = api_key if api_key is not None else os.environ.get(chosen.key_variable, "")
        self._api_key = SecretStr(key.strip())
        self._base_url = _base_url(base_url, chosen)
        self._query = dict(chosen.query) | ({"api-version": api_version} if api_version is not None else {})
        given = {"openai-organization": organization, "openai-project": project}
        self._extra_headers = {name: os.environ.get(variable) for name, variable in chosen.header_variables.items()}
        self._extra_headers |= {name: value for name, value in given.items() if value is not None}
        self._extra_headers |= {name.lower(): value for name, value in (extra_headers or {}).items()}
        self._extra_body = dict(extra_body or {})
        self._parallel_tool_calls = parallel_tool_calls
        self._strict_tools: StrictTools = strict_tools
        self._http = HttpClient(
            http_client=http_client, timeouts=timeouts, max_concurrent_requests=max_concurrent_requests
        )

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
        messages = list(messages)
        options = options if options is not None else StreamOptions()

        def payload() -> JsonObject:
            body = build_payload(
                model,
                messages,
                system_prompt=system_prompt,
                tools=tools,
                tool_choice=tool_choice,
                reasoning=options.reasoning,
                max_output_tokens=options.max_output_tokens,
                temperature=options.temperature,
                response_schema=options.response_schema,
                parallel_tool_calls=self._parallel_tool_calls,
                strict_tools=self._strict_tools,
                quirks=self._quirks,
            )
            return body | self._extra_body

        exchange = Exchange(
            client=self._http,
            url=self._url(model),
            model=model,
            provider_id=self.provider_id,
            api=self.api,
            options=options,
            observers=self.observers,
            payload=payload,
            headers=lambda: self._headers(options.extra_headers or {}),
            reader=partial(ChatReader, quirks=self._quirks, strict_schemas=self._strict_schemas(tools or ())),
            key_hint=self._preset.key_variable,
        )
        return MessageStream(exchange.run)

    def _url(self, model: Model) -> str:
        """The address of the endpoint; a query of the base URL stays at the end."""
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/") + self._preset.path.format(model=quote(model.id, safe=""))
        query = "&".join(text for text in (parts.query, urlencode(self._query)) if text)
        return urlunsplit((parts.scheme, parts.netloc, path, query, ""))

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
            bearer = self._preset.auth_header == "authorization"
            headers[self._preset.auth_header] = f"Bearer {key}" if bearer else key
        headers |= {name: value for name, value in self._extra_headers.items() if value}
        headers |= {name.lower(): value for name, value in extra.items()}
        if self._preset.needs_key and not headers.keys() & {"authorization", "api-key"}:
            raise ProviderAuthFailed(f"there is no API key; set {self._preset.key_variable} or give api_key=")
        return headers


def _preset(preset: str | Preset) -> Preset:
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}; the names are {', '.join(PRESETS)}")
    return PRESETS[preset]


def _base_url(given: str | None, preset: Preset) -> str:
    found = given or os.environ.get(preset.base_url_variable) or preset.base_url
    if not found:
        raise UsageError(f"{preset.provider_id} needs base_url= or the variable {preset.base_url_variable}")
    return checked_base_url(found)
