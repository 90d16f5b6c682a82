"""One model call over HTTP: the request goes out, the answer is written into a stream, the observers are told.

The built-in providers differ in what they send and in how they read what comes back; everything between is here, once.
A format is a pure function that makes the payload, a framing of the answer, and a pure ``ResponseReader`` of frames::

    payload ── extra_body, hooks ── encoded once ── sign(request) ──> server
    message <── draft <── ResponseReader <── frames <── Decoder <── bytes

The body is encoded before the headers are final, so that a signature can cover it: what was signed is what is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic_core import from_json

from ...concurrency import shielded
from ...errors import (
    CubepiError,
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderError,
    ProviderUnavailable,
    UsageError,
)
from ...events.stream import StreamEvent
from ...stream.draft import DraftWriter
from ...stream.message_stream import MessageStream
from ...types.json import JsonObject
from ...types.messages import AssistantMessage
from ...types.model import Model
from ...types.settings import merged_body
from ...types.usage import Usage
from ..base import invoke_on_payload, invoke_on_response
from ..model_call import ModelCall, ProviderResponse
from ..observers import Observers
from .classify import redact, request_id_of
from .client import HttpClient, HttpResponse, encoded
from .framing import Framing

__all__ = ("Exchange", "RequestToSign", "ResponseReader", "Sign", "decoded_object")

_FrameT = TypeVar("_FrameT")
_FrameT_contra = TypeVar("_FrameT_contra", contravariant=True)

_OBSERVER_SECONDS = 2.0
"""How long observers of the response may take when the call is being cancelled."""

_SECRET_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")

_SHORTEST_SECRET_CHARACTERS = 6
"""Local servers take any key, ``x`` or ``none``: masking those would only make holes in the words of an error."""


@dataclass(frozen=True, slots=True)
class RequestToSign:
    """A request as it will be sent, but for what signing adds."""

    method: str
    url: str
    headers: Mapping[str, str]
    """All headers that the format says, by names in small letters; the HTTP library adds ``host`` and lengths."""
    body: bytes
    """The very bytes that are sent."""


Sign = Callable[[RequestToSign], Awaitable[Mapping[str, str]]]
"""Gives the headers that sign a request; they are laid over its own.

Awaited for each try, directly before it is sent, within the call: it may fetch a token, and is cancelled with the call.
A ``CubepiError`` that it raises is the call's error; of anything else, connections that fail become
``ProviderUnavailable``, and the rest ``ProviderAuthFailed``, with the cause kept and its text left out.
"""


class ResponseReader(Protocol[_FrameT_contra]):
    """Reads one answer of one wire format and writes it into a draft. Pure; errors of the answer are raised."""

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been read; what follows it does not matter."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far, which count although the answer may be broken off."""
        ...

    def feed(self, frame: _FrameT_contra, /) -> bool:
        """Take one frame; false if it was only a sign of life. Raises ``ProviderError`` for one that is an error."""
        ...

    def feed_body(self, body: JsonObject) -> None:
        """Take an answer that was not streamed."""
        ...

    def finish(self) -> None:
        """Hear that no more comes. Raises ``IncompleteStream`` if the answer had not ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[_FrameT]):
    """Everything one model call needs; ``run`` is the producer of its stream."""

    client: HttpClient
    url: str
    model: Model
    provider_id: str
    api: str
    call: ModelCall
    observers: Observers
    payload: Callable[[], JsonObject]
    """Makes the request's body; called when the stream runs, so that what it raises becomes an ``error`` event."""
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the payload (``merged_body``), before the ``extra_body`` of the settings."""
    headers: Callable[[], Mapping[str, str]]
    """Makes the request's headers, the key and the ``extra_headers`` of the settings among them; called when the stream
    runs."""
    sign: Sign | None = None
    """Signs the encoded request, where the vendor wants that."""
    framing: Framing[_FrameT]
    """How the answer is cut into frames."""
    reader: Callable[[DraftWriter, str | None], ResponseReader[_FrameT]]
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


class _Call(Generic[_FrameT]):
    """One call while it runs."""

    def __init__(self, exchange: Exchange[_FrameT], stream: MessageStream) -> None:
        self._exchange = exchange
        self._stream = stream
        self._emit = exchange.observers.watch(stream.push, exchange.model)
        self._draft = DraftWriter(self._emit_noting_the_end, exchange.model, api=exchange.api)
        self._reader: ResponseReader[_FrameT] | None = None
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
        exchange, model, options = self._exchange, self._exchange.model, self._exchange.call.options
        headers = exchange.headers()
        self._secrets = _secrets_of(headers)
        payload = _with_extra(exchange.payload(), exchange.extra_body)
        payload = _with_extra(payload, exchange.call.settings_of(model).extra_body)
        payload = await invoke_on_payload(options.on_payload, payload, model)
        self._owes_report = True
        await exchange.observers.request(payload, model)
        body = encoded(payload)
        sign = None if exchange.sign is None else partial(self._signed, exchange.sign, body)
        async with exchange.client.stream(exchange.url, headers=headers, body=body, sign=sign) as response:
            self._response = response
            await invoke_on_response(options.on_response, ProviderResponse(response.status, response.headers), model)
            if not 200 <= response.status < 300:
                raise await response.error()
            await self._read(response)

    async def _signed(self, sign: Sign, body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        try:
            added = await sign(RequestToSign("POST", self._exchange.url, headers, body))
        except CubepiError:
            raise
        except Exception as error:
            # Its text may hold what it was signed with.
            text = f"the request could not be signed ({type(error).__name__})"
            names = {kind.__name__ for kind in type(error).__mro__}
            unreachable = names & {"OSError", "TransportError", "BrokenResourceError", "ClosedResourceError"}
            raise (ProviderUnavailable if unreachable else ProviderAuthFailed)(text) from error
        all_headers = {**headers, **{name.lower(): value for name, value in added.items()}}
        self._secrets = _secrets_of(all_headers)
        return all_headers

    async def _read(self, response: HttpResponse) -> None:
        framing = self._exchange.framing
        self._reader = reader = self._exchange.reader(self._draft, request_id_of(response.headers))
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if kind == "application/json" and kind not in framing.media_types:
            reader.feed_body(decoded_object(await response.read(), "the answer"))
        else:
            await self._read_frames(response, reader, framing)
        response.finished()

    async def _read_frames(
        self, response: HttpResponse, reader: ResponseReader[_FrameT], framing: Framing[_FrameT]
    ) -> None:
        decoder, heard = framing.decoder(), False
        async for chunk in response:
            if _feed_all(reader, decoder.feed(chunk)):
                heard = True
                response.progress()
            if reader.ended:
                return
            await self._stream.wait_writable()
        decoder.feed(b"")  # raises what is wrong with a frame behind whole ones: that is broken, not cut
        try:
            heard = _feed_all(reader, decoder.finish()) or heard
        except MalformedResponse as error:
            raise IncompleteStream(f"the answer ended in the middle of {framing.frame}: {error.message}") from error
        kind = response.headers.get("content-type") or "no content-type"
        if not heard and not any(known in kind for known in framing.media_types):
            raise MalformedResponse(f"the answer ({kind}) is not {framing.name}; check base_url")
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


def _with_extra(payload: JsonObject, extra: Mapping[str, Any] | None) -> JsonObject:
    """``payload`` with ``extra_body`` merged into it; refused if that would take the agent's tools away."""
    if not extra:
        return payload
    if payload.get("tools") and not isinstance(extra.get("tools", []), list):
        raise UsageError(
            "extra_body would replace the agent's tools: give 'tools' a list of what is to stand beside them, "
            "or take the tools from the agent"
        )
    return merged_body(payload, extra)


def _feed_all(reader: ResponseReader[_FrameT], frames: list[_FrameT]) -> bool:
    """Let ``reader`` take ``frames`` up to the terminal one; whether any of them was more than a sign of life."""
    heard = False
    for frame in frames:
        heard = reader.feed(frame) or heard
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
