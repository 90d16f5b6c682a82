"""The HTTP client: what it reads, when it gives up, and what it leaves behind."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import httpx
import pytest

from cubepi_anyio.errors import (
    IncompleteStream,
    MalformedResponse,
    ProviderBadRequest,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    UsageError,
)
from cubepi_anyio.providers.http.client import HttpClient, Timeouts, checked_base_url, encoded

from .loopback import HEAD, LAST_CHUNK, Connection, answer_each, chunk, serve, whole

pytestmark = pytest.mark.anyio


async def read_all(client: HttpClient, base: str, payload: Any = None) -> bytes:
    async with client.stream(f"{base}/x", headers={}, body=encoded(payload or {})) as response:
        body = await response.read()
        response.finished()
        return body


async def test_the_body_arrives_decoded_and_the_request_as_json() -> None:
    seen: list[tuple[str, bytes]] = []

    async def handle(connection: Connection) -> None:
        seen.append(await connection.request())
        await connection.send(HEAD + chunk(b"one ") + chunk(b"two") + LAST_CHUNK)

    async with serve(handle) as server, HttpClient() as client:
        payload = {"text": "é\ud83c\udf4f\ud83c", "number": float("inf")}
        async with client.stream(f"{server.base}/path", headers={"x-api-key": "k"}, body=encoded(payload)) as response:
            assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
            assert await response.read() == b"one two"
    head, body = seen[0]
    assert head.startswith("POST /path HTTP/1.1\r\n")
    assert "x-api-key: k" in head
    assert body.decode() == '{"text":"é🍏\ufffd","number":null}'


async def test_a_connection_is_used_again_after_a_finished_answer() -> None:
    answer = HEAD + chunk(b"terminal event") + LAST_CHUNK
    async with serve(lambda connection: answer_each(connection, answer)) as server, HttpClient() as client:
        for _ in range(3):
            async with client.stream(server.base, headers={}, body=b"{}") as response:
                assert await anext(response) == b"terminal event"
                response.finished()
        assert len(server.connections) == 1


async def test_an_answer_that_does_not_end_after_its_terminal_event_is_closed() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(b"terminal event"))
        await connection.until_closed()

    async with serve(handle) as server, HttpClient() as client:
        async with client.stream(server.base, headers={}, body=b"{}") as response:
            await anext(response)
            response.finished()
        await server.connections[0].closed.wait()


@pytest.mark.parametrize("chunks_read", [0, 1, 2])
async def test_an_answer_that_is_left_early_is_closed_before_the_block_is_left(chunks_read: int) -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(b"1"))
        await connection.send(chunk(b"2"))
        await connection.until_closed()

    async with serve(handle) as server, HttpClient() as client:
        async with client.stream(server.base, headers={}, body=b"{}") as response:
            for _ in range(chunks_read):
                await anext(response)
        await server.connections[0].closed.wait()


async def test_the_callers_own_error_leaves_as_itself_and_closes_the_connection() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(b"1"))
        await connection.until_closed()

    async with serve(handle) as server, HttpClient() as client:
        with pytest.raises(LookupError, match="mine"):
            async with client.stream(server.base, headers={}, body=b"{}") as response:
                await anext(response)
                raise LookupError("mine")
        await server.connections[0].closed.wait()


async def _cancel_in(place: str, client: HttpClient, base: str) -> None:
    async with client.stream(base, headers={}, body=b"{}") as response:
        async for _ in response:
            if place == "the consumer":
                await anyio.sleep_forever()


@pytest.mark.parametrize("place", ["the request", "the body", "the consumer"])
async def test_cancelling_closes_the_connection_and_leaves_the_client_healthy(place: str) -> None:
    cancelled, asked = False, anyio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        if cancelled:
            await connection.send(whole(b"[]"))
        elif place != "the request":
            await connection.send(HEAD + chunk(b"1"))
        asked.set()
        await connection.until_closed()

    async with serve(handle) as server, HttpClient() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_in, place, client, server.base)
            await asked.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await server.connections[0].closed.wait()
        cancelled = True
        assert await read_all(client, server.base) == b"[]"


async def test_no_more_requests_run_at_once_than_allowed() -> None:
    both_ask, release = anyio.Event(), anyio.Event()
    asking = 0

    async def handle(connection: Connection) -> None:
        nonlocal asking
        while True:
            await connection.request()
            asking += 1
            if asking == 2:
                both_ask.set()
            await release.wait()
            await connection.send(whole(b"{}"))

    async with serve(handle) as server, HttpClient(max_concurrent_requests=2) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(read_all, client, server.base)
            await both_ask.wait()
            await anyio.wait_all_tasks_blocked()
            assert asking == 2
            release.set()
        assert len(server.connections) == 2


async def test_a_cancelled_wait_for_a_turn_takes_no_turn() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.until_closed()

    async with serve(handle) as server, HttpClient(max_concurrent_requests=1) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_all, client, server.base)
            tasks.start_soon(read_all, client, server.base)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    async with serve(lambda connection: answer_each(connection, whole(b"{}"))) as server:
        assert await read_all(client, server.base) == b"{}"
    await client.aclose()


async def test_a_closed_client_can_be_used_again() -> None:
    async with serve(lambda connection: answer_each(connection, whole(b"{}"))) as server:
        client = HttpClient()
        for _ in range(2):
            assert await read_all(client, server.base) == b"{}"
            await client.aclose()
        for connection in server.connections:
            await connection.closed.wait()


async def test_a_client_that_was_passed_in_is_used_and_not_closed() -> None:
    async with serve(lambda connection: answer_each(connection, whole(b"{}"))) as server:
        async with httpx.AsyncClient(timeout=httpx.Timeout(0.001, connect=5.0), headers={"x-mine": "1"}) as mine:
            async with HttpClient(http_client=mine) as client:
                assert await read_all(client, server.base) == b"{}"
            assert not mine.is_closed


async def test_a_redirect_is_not_followed() -> None:
    answer = whole(b"", status="307 Temporary Redirect", headers="location: /elsewhere\r\n")
    async with serve(lambda connection: answer_each(connection, answer)) as server:
        async with httpx.AsyncClient(follow_redirects=True) as mine, HttpClient(http_client=mine) as client:
            async with client.stream(server.base, headers={}, body=b"{}") as response:
                assert type(await response.error()) is ProviderBadRequest


async def test_an_error_body_is_read_to_a_bound_only() -> None:
    sent = 0

    async def handle(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(HEAD.replace(b"200 OK", b"500 Oh"))
        while True:
            await connection.send(chunk(b"x" * 65536))
            sent += 65536

    async with serve(handle) as server, HttpClient() as client:
        async with client.stream(server.base, headers={}, body=b"{}") as response:
            error = await response.error()
        await server.connections[0].closed.wait()
    assert type(error) is ProviderUnavailable
    assert len(error.message) < 3000
    assert sent < 20 * 1024 * 1024


async def test_an_error_body_that_breaks_off_still_gives_the_error_of_its_status() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(whole(b'{"error": {"type": "rate_limit_error"', status="429 No")[:-3])

    async with serve(handle) as server, HttpClient() as client:
        async with client.stream(server.base, headers={}, body=b"{}") as response:
            error = await response.error()
    assert (type(error).__name__, error.status_code) == ("RateLimited", 429)


async def _nothing(connection: Connection) -> None:
    await connection.request()


async def _junk(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"SSH-2.0-OpenSSH\r\n\r\n")


async def _cut(connection: Connection) -> None:
    await connection.request()
    await connection.send(HEAD + chunk(b"1") + b"5\r\nab")


@pytest.mark.parametrize(
    ("handle", "kind"),
    [
        (_nothing, ProviderUnavailable),
        (_junk, ProviderUnavailable),
        (_cut, IncompleteStream),
    ],
)
async def test_a_fault_of_the_connection_is_one_of_our_errors_with_its_cause(
    handle: Callable[[Connection], Awaitable[None]], kind: type[ProviderError]
) -> None:
    async with serve(handle) as server, HttpClient() as client:
        with pytest.raises(kind) as caught:
            await read_all(client, server.base)
        assert type(caught.value) is kind
        assert isinstance(caught.value.__cause__, httpx.HTTPError)
        assert server.base.removeprefix("http://") in str(caught.value)


GZIPPED = zlib.compressobj(wbits=31)
GZIPPED_BODY = GZIPPED.compress(b"one two") + GZIPPED.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", GZIPPED_BODY),
        ("X-GZIP", GZIPPED_BODY),
        ("gzip", gzip.compress(b"one ", mtime=0) + gzip.compress(b"two", mtime=0)),
        ("deflate", zlib.compress(b"one two")),
        ("deflate", zlib.compress(b"one two", wbits=-15)),
        ("identity", b"one two"),
    ],
)
async def test_an_encoded_body_is_decoded(encoding: str, body: bytes) -> None:
    async def handle(connection: Connection) -> None:
        head, _ = await connection.request()
        assert "accept-encoding: gzip, deflate\r\n" in head + "\r\n"
        await connection.send(HEAD.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {encoding}\r\n\r\n".encode()))
        for byte in body:
            await connection.send(chunk(bytes([byte])))
        await connection.send(LAST_CHUNK)

    async with serve(handle) as server, HttpClient() as client:
        assert await read_all(client, server.base) == b"one two"


@pytest.mark.parametrize(("encoding", "what"), [("gzip", "is broken"), ("br", "'br', which was not asked for")])
async def test_a_body_that_cannot_be_decoded_is_malformed(encoding: str, what: str) -> None:
    answer = whole(b"not gzip", headers=f"content-encoding: {encoding}\r\n")
    async with serve(lambda connection: answer_each(connection, answer)) as server, HttpClient() as client:
        with pytest.raises(MalformedResponse, match=what):
            await read_all(client, server.base)


async def test_nobody_there_is_an_unavailable_provider() -> None:
    async with serve(_nothing) as server:
        pass
    async with HttpClient() as client:
        with pytest.raises(ProviderUnavailable, match=r"no answer from 127\.0\.0\.1"):
            await read_all(client, server.base)


async def test_a_header_that_cannot_be_sent_is_named_without_its_value() -> None:
    async with HttpClient() as client:
        for value in ("sk-sec\nret", "sk-sécret", "sk-secret\x7f"):
            with pytest.raises(ProviderBadRequest, match="x-api-key") as caught:
                async with client.stream("http://127.0.0.1:9", headers={"x-api-key": value}, body=b"{}"):
                    pass
            assert value not in repr(caught.value)
            assert caught.value.__cause__ is None


async def test_a_payload_that_is_no_json_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        encoded({"f": object()})


class ScriptedClient:
    """A client of another library: only its interface and the names of its errors are those of httpx."""

    def __init__(self, *steps: float | bytes | Exception, head_after_seconds: float = 0.0) -> None:
        self.steps = steps
        self.head_after_seconds = head_after_seconds
        self.closed_responses = 0

    def build_request(self, method: str, url: str, **options: Any) -> Any:
        return method, url, options

    async def send(self, request: Any, **options: Any) -> Any:
        await anyio.sleep(self.head_after_seconds)
        return self

    status_code = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - a stand-in for a response's headers, never changed

    async def aiter_raw(self) -> Any:
        for step in self.steps:
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, Exception):
                raise step
            else:
                await anyio.sleep(step)

    async def aclose(self) -> None:
        self.closed_responses += 1


TIMEOUTS = Timeouts(first_byte_seconds=30, idle_seconds=10)


async def _time_out(client: ScriptedClient) -> tuple[str, float]:
    """Read an answer of which each ``data`` counts and nothing else; the error's text and when it came."""
    start = anyio.current_time()
    with pytest.raises(ProviderTimeout) as caught:
        async with HttpClient(http_client=client, timeouts=TIMEOUTS).stream(
            "http://h/", headers={}, body=b"{}"
        ) as response:
            async for body in response:
                if body == b"data":
                    response.progress()
    assert client.closed_responses == (1 if client.head_after_seconds < 30 else 0)
    return str(caught.value), anyio.current_time() - start


@pytest.mark.virtual_clock
async def test_a_head_that_does_not_come_is_a_timeout() -> None:
    text, seconds = await _time_out(ScriptedClient(head_after_seconds=100))
    assert (text, seconds) == ("no answer from h within 30 seconds (first_byte_seconds)", 30)


@pytest.mark.virtual_clock
async def test_the_first_byte_has_what_the_head_left_of_the_time_and_keep_alives_do_not_renew_it() -> None:
    text, seconds = await _time_out(ScriptedClient(15.0, b": ping", 5.0, b": ping", 100.0, head_after_seconds=5))
    assert (text, seconds) == ("no answer from h within 30 seconds (first_byte_seconds)", 30)


@pytest.mark.virtual_clock
async def test_progress_starts_the_idle_time_anew_and_keep_alives_do_not() -> None:
    client = ScriptedClient(20.0, b"data", 9.0, b"data", 9.0, b": ping", 0.5, b": ping", 100.0)
    text, seconds = await _time_out(client)
    assert (text, seconds) == ("nothing more from h within 10 seconds (idle_seconds)", 39)


@pytest.mark.virtual_clock
async def test_the_consumers_own_time_does_not_count() -> None:
    client = HttpClient(http_client=ScriptedClient(b"data", 1.0, b"data"), timeouts=TIMEOUTS)
    bodies: list[bytes] = []
    async with client.stream("http://h/", headers={}, body=b"{}") as response:
        async for body in response:
            bodies.append(body)
            response.progress()
            await anyio.sleep(1000)
    assert bodies == [b"data", b"data"]


@pytest.mark.virtual_clock
async def test_without_timeouts_an_answer_is_waited_for() -> None:
    for_ever = Timeouts(connect_seconds=None, first_byte_seconds=None, idle_seconds=None)
    client = HttpClient(http_client=ScriptedClient(1e6, b"a", head_after_seconds=1e6), timeouts=for_ever)
    assert await read_all(client, "http://h") == b"a"


def _foreign(*names: str) -> type[Exception]:
    kind: type[Exception] = Exception
    for name in names:
        kind = cast("type[Exception]", type(name, (kind,), {}))
    return kind


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("HTTPError", "TransportError", "TimeoutException", "ReadTimeout"), ProviderTimeout),
        (("HTTPError", "TransportError", "NetworkError", "ReadError"), IncompleteStream),
        (("HTTPError", "TransportError", "ProtocolError", "RemoteProtocolError"), IncompleteStream),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
async def test_the_errors_of_another_library_are_known_by_their_names(
    names: tuple[str, ...], kind: type[Exception]
) -> None:
    foreign = _foreign(*names)("because")
    client = HttpClient(http_client=ScriptedClient(b"data", foreign))
    with pytest.raises(ProviderError) as caught:
        await read_all(client, "http://h")
    assert type(caught.value) is kind
    assert caught.value.__cause__ is foreign


async def test_an_error_that_is_nobodys_leaves_as_itself() -> None:
    client = HttpClient(http_client=ScriptedClient(b"data", ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await read_all(client, "http://h")


def test_a_client_that_cannot_be_awaited_is_refused() -> None:
    with httpx.Client() as client, pytest.raises(UsageError, match=r"must be an httpx\.AsyncClient, not Client"):
        HttpClient(http_client=client)  # pyright: ignore[reportArgumentType]


def test_a_base_url_is_an_address() -> None:
    assert checked_base_url(" https://host/prefix/ ") == "https://host/prefix"
    for text in ("host", "localhost:8000", "ftp://host", "https://", ""):
        with pytest.raises(UsageError, match="base_url"):
            checked_base_url(text)


def test_one_client_serves_several_event_loops_one_after_the_other() -> None:
    client = HttpClient()

    async def use() -> bytes:
        async with serve(lambda connection: answer_each(connection, whole(b"{}"))) as server, client:
            return await read_all(client, server.base)

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, backend=backend) == b"{}"


def test_importing_the_package_loads_no_http_library() -> None:
    code = "import sys, cubepi_anyio, cubepi_anyio.providers.base; print('httpx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert run.stdout.strip() == "False"
