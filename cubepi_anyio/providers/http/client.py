"""The one place that holds an HTTP client: post, stream, time out, close, and translate its errors.

The client is httpx's, or one the caller passes (httpx's or httpx2's, which has the same interface). Three of its
properties shape this file. Its pool loses slots when requests that *queue* for one are cancelled, so the pool is
unlimited and a semaphore here bounds the requests instead. It reads bodies through async generators nested in each
other, which are left to the garbage collector when the outermost is closed early; so an answer is never abandoned but
read on, or cancelled where it reads, and a request's body is handed over in an object of ours. And its exceptions are
known by the names of their classes, because the two libraries have the same names in different trees.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import httpx
from anyio.lowlevel import RunVar, checkpoint
from pydantic_core import PydanticSerializationError, to_json

from ...concurrency import shielded
from ...errors import (
    CubepiError,
    IncompleteStream,
    MalformedResponse,
    ProviderBadRequest,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    UsageError,
    error_text,
)
from ...foreign.httpx_body import send_as_one_piece
from ...types.json import JsonObject
from .classify import classify_response
from .content_encoding import ACCEPTED_ENCODINGS, ContentDecoder

__all__ = ("AsyncHttpClient", "HttpClient", "HttpResponse", "SignHeaders", "Timeouts", "checked_base_url", "encoded")

_T = TypeVar("_T")

SignHeaders = Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]]
"""Given the headers of a request, the headers to send."""

_REQUEST_HEADERS = {"content-type": "application/json", "accept-encoding": ACCEPTED_ENCODINGS}

_DRAIN_SECONDS = 0.05
"""How long an answer that is complete may take to end, so that its connection can be used again."""

_CLOSE_SECONDS = 2.0
_ERROR_BODY_SECONDS = 10.0
_MAX_ERROR_BODY_BYTES = 1024 * 1024
_MAX_BODY_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a server may be silent, in seconds; ``None`` waits for ever.

    Time counts only while we wait for the server, not while the consumer of a stream is busy. Keep-alives are no
    progress: they reset neither ``first_byte_seconds`` nor ``idle_seconds``.
    """

    connect_seconds: float | None = 15.0
    """Until the connection stands."""
    first_byte_seconds: float | None = 600.0
    """From the request until the answer begins: its head, and the first thing its body says."""
    idle_seconds: float | None = 300.0
    """Between two things that the body says."""


class AsyncHttpClient(Protocol):
    """What is needed of ``httpx.AsyncClient`` or ``httpx2.AsyncClient``."""

    @property
    def build_request(self) -> Callable[..., Any]:
        """Make a request."""
        ...

    @property
    def send(self) -> Callable[..., Awaitable[Any]]:
        """Send it."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class _OfThisLoop:
    """What belongs to one event loop: connections and their bound cannot be shared between loops."""

    client: AsyncHttpClient
    slots: anyio.Semaphore


class HttpClient:
    """Sends requests and streams the answers.

    Constructing it needs no event loop; connections are made at the first request, for each event loop anew. Use it as
    a context manager or call ``aclose()`` to close them; it can be used again afterwards. A client that was passed in
    is used as it is and never closed; its own timeouts do not count, those of ``timeouts`` do.
    """

    def __init__(
        self,
        *,
        http_client: AsyncHttpClient | None = None,
        timeouts: Timeouts | None = None,
        max_concurrent_requests: int = 256,
    ) -> None:
        if http_client is not None and not hasattr(http_client, "aclose"):
            raise UsageError(f"http_client must be an httpx.AsyncClient, not {type(http_client).__name__}")
        self._given = http_client
        self._timeouts = timeouts if timeouts is not None else Timeouts()
        self._max_concurrent_requests = max_concurrent_requests
        self._of_loop: RunVar[_OfThisLoop | None] = RunVar("cubepi_anyio_http_client", None)

    async def __aenter__(self) -> Self:
        await checkpoint()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. A checkpoint; a cancellation does not stop it."""
        ours = self._of_loop.get()
        self._of_loop.set(None)
        if ours is not None and ours.client is not self._given:
            with shielded(_CLOSE_SECONDS):
                await ours.client.aclose()
        await checkpoint()

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, sign: SignHeaders | None = None
    ) -> AsyncGenerator[HttpResponse]:
        """Post ``body`` and give the answer, whatever its status, when its head has come.

        ``sign`` is given all headers and returns those to send. It is awaited when it is this request's turn, so that a
        signature is not old when it goes out.

        Leaving the block closes the answer: at once, unless ``response.finished()`` was called. A checkpoint;
        cancelling it closes the connection. Raises ``ProviderTimeout``, ``ProviderUnavailable`` (no answer),
        ``ProviderBadRequest`` (the request cannot be sent), and what ``sign`` raises.
        """
        ours = self._ours()
        async with ours.slots:
            headers = _REQUEST_HEADERS | dict(headers)
            if sign is not None:
                headers = await sign(headers)
            _check_headers(headers)
            response = await self._send(ours.client, url, headers, body)
            try:
                yield response
            finally:
                await response.aclose()

    def _ours(self) -> _OfThisLoop:
        ours = self._of_loop.get()
        if ours is None:
            client = self._given if self._given is not None else _new_client()
            ours = _OfThisLoop(client, anyio.Semaphore(self._max_concurrent_requests, fast_acquire=True))
            self._of_loop.set(ours)
        return ours

    async def _send(
        self, client: AsyncHttpClient, url: str, headers: Mapping[str, str], content: bytes
    ) -> HttpResponse:
        host = urlsplit(url).netloc.rpartition("@")[2]
        patience = _Patience(self._timeouts, host)
        with _translated(host, answering=False):
            request = client.build_request(
                "POST",
                url,
                content=content,
                headers=dict(headers),
                timeout=(self._timeouts.connect_seconds, None, None, None),
            )
            send_as_one_piece(request, content)
            # A redirect would carry the key to another address.
            foreign = await patience.wait(client.send(request, stream=True, follow_redirects=False))
        return HttpResponse(foreign, patience, host)


class HttpResponse:
    """The answer to one request: iterate over it for the bytes of its body, with content encodings undone.

    Iteration is a checkpoint. Raises ``ProviderTimeout`` when the server is silent for too long, ``IncompleteStream``
    when the connection breaks before the body has ended, ``MalformedResponse`` when its encoding is broken.
    """

    def __init__(self, foreign: Any, patience: _Patience, host: str) -> None:
        self.status: int = foreign.status_code
        self.headers: dict[str, str] = {name.lower(): value for name, value in foreign.headers.items()}
        self._foreign = foreign
        self._patience = patience
        self._host = host
        self._decoder: ContentDecoder | None = None
        self._chunks: Any = None
        self._finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._decoder is None:
            self._decoder = ContentDecoder(self.headers.get("content-encoding", ""))
            self._chunks = self._foreign.aiter_raw()
        with _translated(self._host, answering=True):
            return self._decoder.decode(await self._patience.wait(self._chunks.__anext__()))

    def progress(self) -> None:
        """Say that the body said something that counts; the idle time starts anew."""
        self._patience.progress()

    def finished(self) -> None:
        """Say that nothing more is wanted of the body, so that it is read to its end if that comes at once."""
        self._finished = True

    async def read(self, *, max_bytes: int = _MAX_BODY_BYTES) -> bytes:
        """Read the whole body. Raises ``MalformedResponse`` if it is longer than ``max_bytes``."""
        body = bytearray()
        async for chunk in self:
            body += chunk
            self.progress()
            if len(body) > max_bytes:
                raise MalformedResponse(f"{self._host} sent more than {max_bytes} bytes")
        return bytes(body)

    async def error(self) -> ProviderError:
        """Read the body of an answer whose status is not 2xx and make the error it means.

        Of the body at most 1 MiB is read, for at most 10 seconds; if it breaks, what had come of it is used.
        """
        body = bytearray()
        with anyio.move_on_after(_ERROR_BODY_SECONDS):
            try:
                async for chunk in self:
                    body += chunk
                    if len(body) >= _MAX_ERROR_BODY_BYTES:
                        break
            except ProviderError:
                pass  # the status alone says enough
        return classify_response(self.status, bytes(body[:_MAX_ERROR_BODY_BYTES]), self.headers)

    async def aclose(self) -> None:
        """Let the connection go: back to the pool if the body has ended, closed otherwise. A checkpoint."""
        try:
            if self._finished:
                with anyio.move_on_after(_DRAIN_SECONDS):
                    await self._read_on()
            with anyio.CancelScope(shield=True) as scope:
                # A read that is cancelled unwinds the nested generators from the inside, in this task.
                scope.cancel()
                await self._read_on()
        finally:
            # How closing goes cannot change an answer that has been read or given up.
            with shielded(_CLOSE_SECONDS), suppress(Exception):
                await self._foreign.aclose()

    async def _read_on(self) -> None:
        """Read what is left of the body; whatever else is wrong with it, nobody waits for it any more."""
        if self._chunks is not None:
            with suppress(Exception):
                async for _ in self._chunks:
                    pass


class _Patience:
    """How long the server may still be silent."""

    def __init__(self, timeouts: Timeouts, host: str) -> None:
        self._timeouts = timeouts
        self._host = host
        self._begun = False
        self._left_seconds = _or_for_ever(timeouts.first_byte_seconds)

    def progress(self) -> None:
        """Start the idle time anew."""
        self._begun = True
        self._left_seconds = _or_for_ever(self._timeouts.idle_seconds)

    async def wait(self, step: Awaitable[_T]) -> _T:
        """Await ``step``, no longer than patience lasts."""
        start = anyio.current_time()
        with anyio.CancelScope(deadline=start + self._left_seconds):
            result = await step
            self._left_seconds -= anyio.current_time() - start
            return result
        name = "idle_seconds" if self._begun else "first_byte_seconds"
        what = "nothing more" if self._begun else "no answer"
        raise ProviderTimeout(f"{what} from {self._host} within {getattr(self._timeouts, name):g} seconds ({name})")


def _or_for_ever(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _new_client() -> AsyncHttpClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0)
    return httpx.AsyncClient(timeout=httpx.Timeout(None), limits=limits, verify=_certificates())


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """The certificates to trust; reading them takes tens of milliseconds, so it is done once for a process."""
    return httpx.create_ssl_context()


def checked_base_url(base_url: str) -> str:
    """``base_url`` without a slash at its end. Raises ``UsageError`` if it is not an http or https address."""
    parts = urlsplit(base_url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("base_url must be an address that begins with http:// or https://")
    return base_url.strip().rstrip("/")


def _check_headers(headers: Mapping[str, str]) -> None:
    """Refuse a header that cannot be sent, without repeating its value: it may be the key."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise ProviderBadRequest(f"the header {name!r} holds a character that no header may; check the key or text")


def encoded(payload: JsonObject) -> bytes:
    """``payload`` as the bytes of JSON. Raises ``UsageError`` if it holds what JSON cannot say."""
    try:
        return to_json(payload, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeError):
        pass
    try:
        return to_json(_without_lone_surrogates(payload), inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error


def _without_lone_surrogates(value: Any) -> Any:
    """``value`` with half a character, as cutting UTF-16 text leaves it, replaced by U+FFFD, and pairs joined."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            entries = cast("JsonObject", value)
            return {key: _without_lone_surrogates(entry) for key, entry in entries.items()}
        case list() | tuple():
            items = cast("list[Any]", value)
            return [_without_lone_surrogates(item) for item in items]
        case _:
            return value


@contextmanager
def _translated(host: str, *, answering: bool) -> Generator[None]:
    """Turn the HTTP library's errors into ours, with the cause kept."""
    try:
        yield
    except CubepiError:
        raise
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if "LocalProtocolError" in names:
            # Its text repeats the header that is wrong, which may be the key.
            raise ProviderBadRequest(f"the request to {host} cannot be sent; check its headers") from None
        ours = _counterpart(error, names, host, answering=answering)
        if ours is None:
            raise
        raise ours from error


def _counterpart(error: Exception, names: set[str], host: str, *, answering: bool) -> ProviderError | None:
    if "TimeoutException" in names:
        what = "connecting to" if "ConnectTimeout" in names else "waiting for"
        return ProviderTimeout(f"{what} {host} took too long ({type(error).__name__})")
    if names & {"InvalidURL", "UnsupportedProtocol"}:
        return ProviderBadRequest(f"{host or 'the address'} cannot be asked: {error}; check base_url")
    if names & {"TransportError", "StreamError", "OSError", "BrokenResourceError", "ClosedResourceError"}:
        if answering:
            return IncompleteStream(f"the connection to {host} broke before the answer was complete: {error}")
        return ProviderUnavailable(f"no answer from {host}: {error_text(error)}")
    return None
