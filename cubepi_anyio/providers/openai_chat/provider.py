"""Joins request, HTTP and response of Chat Completions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from ...errors import UsageError
from ...stream.message_stream import MessageStream
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ..http.client import AsyncHttpClient, Timeouts, checked_base_url
from ..http.provider import HttpProvider
from ..model_call import ModelCall, StreamOptions
from ..strict_schema import StrictTools, strict_schemas
from .presets import PRESETS, Preset, Quirks
from .request import API, build_payload
from .response import ChatReader

__all__ = ("OpenAIProvider",)


class OpenAIProvider(HttpProvider):
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
        headers = {name: os.environ.get(variable) for name, variable in chosen.header_variables.items()}
        given = {"openai-organization": organization, "openai-project": project}
        headers |= {name: value for name, value in given.items() if value is not None}
        headers |= {name.lower(): value for name, value in (extra_headers or {}).items()}
        super().__init__(
            provider_id=provider_id if provider_id is not None else chosen.provider_id,
            api_key=api_key,
            key_variable=chosen.key_variable,
            http_client=http_client,
            timeouts=timeouts,
            max_concurrent_requests=max_concurrent_requests,
            extra_headers={name: value for name, value in headers.items() if value},
            extra_body=extra_body,
        )
        self._auth_header = chosen.auth_header
        self._needs_key = chosen.needs_key
        self._path = chosen.path
        self._quirks = quirks if quirks is not None else chosen.quirks
        self.takes_response_schema: bool = self._quirks.response_schema
        self._base_url = _base_url(base_url, chosen)
        self._query = dict(chosen.query) | ({"api-version": api_version} if api_version is not None else {})
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
            quirks=self._quirks,
        )
        schemas = strict_schemas(tools or (), self._strict_tools)
        reader = partial(ChatReader, quirks=self._quirks, strict_schemas=schemas)
        return self._answer(model, call, url=self._url(model), payload=payload, reader=reader)

    def _url(self, model: Model) -> str:
        """The address of the endpoint; a query of the base URL stays at the end."""
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/") + self._path.format(model=quote(model.id, safe=""))
        query = "&".join(text for text in (parts.query, urlencode(self._query)) if text)
        return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


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
