"""One model call over HTTP: the request goes out, the answer is written into a stream, the observers are told.

The built-in providers differ in what they send and in how they read what comes back; everything between is here, once.
A format is a pure function that makes the payload and a pure ``ResponseReader``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pydantic_core import from_json

from ...concurrency import shielded
from ...errors import IncompleteStream, MalformedResponse, ProviderAuthFailed, ProviderError
from ...events.stream import StreamEvent
from ...stream.draft import DraftWriter
from ...stream.message_stream import MessageStream
from ...types.json import JsonObject
from ...types.messages import AssistantMessage
from ...types.model import Model
from ...types.usage import Usage
from ..base import ProviderResponse, StreamOptions, invoke_on_payload, invoke_on_response
from ..observers import Observers
from .classify import redact, request_id_of
from .client import HttpClient, HttpResponse
from .sse import ServerSentEvent, SSEDecoder

__all__ = ("Exchange", "ResponseReader", "decoded_object")

_OBSERVER_SECONDS = 2.0
"""How long observers of the response may take when the call is being cancelled."""

_SECRET_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")

_SHORTEST_SECRET_CHARACTERS = 6
"""Local servers take any key, ``x`` or ``none``: masking those would only make holes in the words of an error."""


class ResponseReader(Protocol):
    """Reads one answer of one wire format and writes it into a draft. Pure; errors of the answer are raised."""

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been read; what follows it does not matter."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far, which count although the answer may be broken off."""
        ...

    def feed(self, event: ServerSentEvent) -> bool:
        """Take one event; false if it was only a sign of life. Raises ``ProviderError`` for an error event."""
        ...

    def feed_body(self, body: JsonObject) -> None:
        """Take an answer that was not streamed."""
        ...

    def finish(self) -> None:
        """Hear that no more comes. Raises ``IncompleteStream`` if the answer had not ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Everything one model call needs; ``run`` is the producer of its stream."""

    client: HttpClient
    url: str
    model: Model
    provider_id: str
    api: str
    options: StreamOptions
    observers: Observers
    payload: Callable[[], JsonObject]
    """Makes the request's body; called when the stream runs, so that what it raises becomes an ``error`` event."""
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the payload key by key, before ``options.extra_body``."""
    headers: Callable[[], Mapping[str, str]]
    """Makes the request's headers, the key and ``options.extra_headers`` among them; called when the stream runs."""
    reader: Callable[[DraftWriter, str | None], ResponseReader]
    """Makes the reader of one answer, given the draft it writes and the request's id."""
    key_hint: str = ""
    """Where the key comes from, for the error of a wrong one."""

    async def run(self, stream: MessageStream) -> None:
        """Do the call and write it into ``stream``.

        A ``ProviderError`` becomes the stream's ``error`` event; what else is raised is a bug of a hook and leaves as
        itself. The observers of the response are told exactly once after those of the request were: the message and no
        error, or no message and the error, or neither if the call was cancelled.
        """
        await _Call(self, stream).run()


class _Call:
    """One call while it runs."""

    def __init__(self, exchange: Exchange, stream: MessageStream) -> None:
        self._exchange = exchange
        self._stream = stream
        self._emit = exchange.observers.watch(stream.push, exchange.model)
        self._draft = DraftWriter(self._emit_noting_the_end, exchange.model, api=exchange.api)
        self._reader: ResponseReader | None = None
        self._response: HttpResponse | None = None
        self._secrets: Collection[str] = ()
        self._last: StreamEvent | None = None
        self._owes_report = False

    async def run(self) -> None:
        error: Exception | None = None
        try:
            await self._ask()
        except ProviderError as failure:
            error = failure
            self._complete(failure)
            self._draft.fail(failure, usage=self._reader.usage if self._reader is not None else None)
        except Exception as failure:
            error = failure
            raise
        finally:
            if self._owes_report:
                # Also when the call is being cancelled, or its stream was left right after the end of the message.
                with shielded(_OBSERVER_SECONDS):
                    message = self._message() if error is None else None
                    await self._exchange.observers.response(message, self._exchange.model, error)  # noqa: ASYNC102

    async def _ask(self) -> None:
        exchange, model, options = self._exchange, self._exchange.model, self._exchange.options
        headers = exchange.headers()
        self._secrets = _secrets_of(headers)
        payload = {**exchange.payload(), **exchange.extra_body, **(options.extra_body or {})}
        payload = await invoke_on_payload(options.on_payload, payload, model)
        self._owes_report = True
        await exchange.observers.request(payload, model)
        async with exchange.client.stream(exchange.url, headers=headers, payload=payload) as response:
            self._response = response
            await invoke_on_response(options.on_response, ProviderResponse(response.status, response.headers), model)
            if not 200 <= response.status < 300:
                raise await response.error()
            await self._read(response)

    async def _read(self, response: HttpResponse) -> None:
        self._reader = reader = self._exchange.reader(self._draft, request_id_of(response.headers))
        if response.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
            reader.feed_body(decoded_object(await response.read(), "the answer"))
        else:
            await self._read_events(response, reader)
        response.finished()

    async def _read_events(self, response: HttpResponse, reader: ResponseReader) -> None:
        decoder, heard = SSEDecoder(), False
        async for chunk in response:
            if _feed_all(reader, decoder.feed(chunk)):
                heard = True
                response.progress()
            if reader.ended:
                return
            await self._stream.wait_writable()
        try:
            heard = _feed_all(reader, decoder.finish()) or heard
        except MalformedResponse as error:
            raise IncompleteStream(f"the answer ended in the middle of an event: {error}") from error
        if not heard and "event-stream" not in response.headers.get("content-type", ""):
            kind = response.headers.get("content-type") or "no content-type"
            raise MalformedResponse(f"the answer ({kind}) is not a stream of events; check base_url")
        reader.finish()

    def _emit_noting_the_end(self, event: StreamEvent) -> None:
        self._emit(event)
        if event.is_terminal:
            self._last = event

    def _message(self) -> AssistantMessage | None:
        """The finished message, as the terminal event tells it."""
        last = self._last
        message = last.partial if last is not None else None
        if last is None or message is None:
            return None
        usage = last.usage if last.usage is not None else message.usage
        return message.model_copy(update={"stop_reason": last.stop_reason or message.stop_reason, "usage": usage})

    def _complete(self, error: ProviderError) -> None:
        """Say in the error whom we asked, and see to it that no key stands in it."""
        exchange = self._exchange
        error.provider = error.provider or exchange.provider_id
        error.model = error.model or exchange.model.id
        if error.request_id is None and self._response is not None:
            error.request_id = request_id_of(self._response.headers)
        message = redact(error.message, self._secrets)
        if isinstance(error, ProviderAuthFailed) and exchange.key_hint and exchange.key_hint not in message:
            message = f"{message}; check {exchange.key_hint}"
        error.message = message
        error.args = (message, *error.args[1:])


def _feed_all(reader: ResponseReader, events: list[ServerSentEvent]) -> bool:
    """Let ``reader`` take ``events`` up to the terminal one; whether any of them was more than a sign of life."""
    heard = False
    for event in events:
        heard = reader.feed(event) or heard
        if reader.ended:
            break
    return heard


def decoded_object(text: str | bytes, what: str) -> JsonObject:
    """Decode a JSON object. Raises ``MalformedResponse`` that says what ``what`` is instead."""
    try:
        value = from_json(text)
    except ValueError as error:
        raise MalformedResponse(f"{what} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedResponse(f"{what} is {type(value).__name__} where a JSON object belongs")
    return cast("JsonObject", value)


def _secrets_of(headers: Mapping[str, Any]) -> list[str]:
    secrets = [str(value) for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    bare = [secret.partition(" ")[2] for secret in secrets if " " in secret]
    return [secret for secret in (*bare, *secrets) if len(secret) >= _SHORTEST_SECRET_CHARACTERS]
