"""A scripted HTTP server on this machine, in the test's own event loop: the test writes every byte it sends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(body: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(body), body)


def whole(body: bytes, *, status: str = "200 OK", headers: str = "content-type: application/json\r\n") -> bytes:
    """A whole answer with its length."""
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Connection:
    """One connection, as the server sees it."""

    stream: SocketStream
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client has closed it."""

    async def request(self) -> tuple[str, bytes]:
        """Read one request: its head and its body. Raises ``anyio.EndOfStream`` if the client closes instead."""
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            buffer += await self.stream.receive()
        head, _, body = buffer.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        wanted = int(lengths[0].partition(b":")[2]) if lengths else 0
        while len(body) < wanted:
            body += await self.stream.receive()
        return head.decode("latin-1"), body

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def until_closed(self) -> None:
        """Return when the client has closed the connection."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.closed.set()


@dataclass
class Loopback:
    """A running server."""

    base: str
    connections: list[Connection] = field(default_factory=list[Connection])


@asynccontextmanager
async def serve(handle: Callable[[Connection], Awaitable[None]]) -> AsyncGenerator[Loopback]:
    """Serve on a free port until the block is left; ``handle`` has each connection and may leave it at any point."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Loopback(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}")

    async def take(stream: SocketStream) -> None:
        connection = Connection(stream)
        server.connections.append(connection)
        async with stream:
            try:
                await handle(connection)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                connection.closed.set()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, take)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


async def answer_each(connection: Connection, answer: bytes) -> None:
    """Give each request of a connection the same answer."""
    while True:
        await connection.request()
        await connection.send(answer)


async def hold(connection: Connection, begun: bytes) -> None:
    """Begin to stream an answer and leave it there until the client hangs up."""
    await connection.request()
    await connection.send(HEAD + chunk(begun))
    await connection.until_closed()


@dataclass
class Server:
    """Gives each request the same answer and remembers the requests."""

    answer: bytes
    requests: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    async def __call__(self, connection: Connection) -> None:
        while True:
            self.requests.append(await connection.request())
            await connection.send(self.answer)

    @property
    def head(self) -> str:
        """The head of the last request."""
        return self.requests[-1][0]

    @property
    def path(self) -> str:
        return self.head.split(" ")[1]

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the last request."""
        return json.loads(self.requests[-1][1])
