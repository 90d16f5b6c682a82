"""What the providers that are asked over HTTP share: the key, the headers, the connections and the exchange."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import SecretStr

from ...errors import ProviderAuthFailed
from ...stream.draft import DraftWriter
from ...stream.message_stream import MessageStream
from ...types.json import JsonObject
from ...types.model import Model
from ..base import BaseProvider
from ..model_call import ModelCall
from .client import AsyncHttpClient, HttpClient, Timeouts
from .exchange import Exchange, ResponseReader, Sign
from .framing import Framing
from .sse import SERVER_SENT_EVENTS

__all__ = ("HttpProvider",)

_FrameT = TypeVar("_FrameT")


class HttpProvider(BaseProvider):
    """A provider that is asked over HTTP. A format says how a request is made and an answer is read."""

    _auth_header: str = "authorization"
    """Where the key goes: as a bearer's in ``authorization``, as it is in any other header."""
    _needs_key: bool = True
    _key_headers: ClassVar[frozenset[str]] = frozenset({"authorization", "api-key"})
    """Any of them is a key, also if it is one of the extra headers."""

    def __init__(
        self,
        *,
        provider_id: str,
        api_key: str | None,
        key_variable: str,
        http_client: AsyncHttpClient | None,
        timeouts: Timeouts | None,
        max_concurrent_requests: int,
        extra_headers: Mapping[str, str],
        extra_body: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(provider_id=provider_id)
        key = api_key if api_key is not None else os.environ.get(key_variable, "")
        self._api_key = SecretStr(key.strip())
        self._key_variable = key_variable
        self._extra_headers = {name.lower(): value for name, value in extra_headers.items()}
        self._extra_body = dict(extra_body or {})
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

    def _answer(
        self,
        model: Model,
        call: ModelCall,
        *,
        url: str,
        payload: Callable[[], JsonObject],
        reader: Callable[[DraftWriter, str | None], ResponseReader[_FrameT]],
        framing: Framing[_FrameT] = SERVER_SENT_EVENTS,
        sign: Sign | None = None,
    ) -> MessageStream:
        """The stream of one answer. The request and its headers are made, and signed, when it runs."""
        exchange = Exchange(
            client=self._http,
            url=url,
            model=model,
            provider_id=self.provider_id,
            api=self.api,
            call=call,
            observers=self.observers,
            payload=payload,
            extra_body=self._extra_body,
            headers=lambda: self._headers(framing, call.settings_of(model).extra_headers or {}),
            sign=sign,
            framing=framing,
            reader=reader,
            key_hint=self._key_variable,
        )
        return MessageStream(exchange.run)

    def _headers(self, framing: Framing[Any], extra: Mapping[str, str]) -> dict[str, str]:
        """Make the request's headers; later ones replace earlier ones of the same name, whatever its letters."""
        headers = {"accept": ", ".join((*framing.media_types, "application/json"))}
        key = self._api_key.get_secret_value()
        if key:
            headers[self._auth_header] = f"Bearer {key}" if self._auth_header == "authorization" else key
        headers |= self._extra_headers
        headers |= {name.lower(): value for name, value in extra.items()}
        if self._needs_key and not headers.keys() & self._key_headers:
            raise ProviderAuthFailed(f"there is no API key; set {self._key_variable} or give api_key=")
        return headers
