"""A server that answers every request with the events of one Anthropic message, for the benchmarks of the wire.

``wire_server.py EVENTS`` listens on a free port of this machine, prints it and serves until it is ended. The bytes are
made once. A path that begins with ``/silent`` gets the head of the message and then nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

EVENTS_A_WRITE = 16
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"request-id: req_1\r\n\r\n"
)


@contextmanager
def serving(events: int) -> Generator[str, None, None]:
    """Run the server in a process of its own; its base URL."""
    command = [sys.executable, str(Path(__file__)), str(events)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def event(type: str, **fields: Any) -> bytes:
    """One server-sent event as Anthropic writes it."""
    data = json.dumps({"type": type, **fields}, separators=(",", ":"))
    return f"event: {type}\ndata: {data}\n\n".encode()


def beginning() -> list[bytes]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]


def ending(events: int) -> list[bytes]:
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        event("content_block_stop", index=0),
        event("message_delta", delta=stop, usage={"output_tokens": events}),
        event("message_stop"),
    ]


def chunks(events: int) -> list[bytes]:
    """The chunks of a whole body with ``events`` text deltas."""
    deltas = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": f"{number % 1000:03d} "})
        for number in range(events)
    ]
    whole = [*beginning(), *deltas, *ending(events)]
    parts = [b"".join(whole[at : at + EVENTS_A_WRITE]) for at in range(0, len(whole), EVENTS_A_WRITE)]
    return [chunk(part) for part in parts] + [b"0\r\n\r\n"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(body: list[bytes], client: SocketStream) -> None:
    async with client:
        received = b""
        while True:
            try:
                while (found := complete_request(received)) is None:
                    received += await client.receive()
                path, received = found
                await client.send(HEAD)
                if path.startswith("/silent"):
                    await client.send(chunk(b"".join(beginning())))
                    await client.receive()
                    return
                for part in body:
                    await client.send(part)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return


def complete_request(received: bytes) -> tuple[str, bytes] | None:
    """The path of the first request and what follows it; ``None`` while it is not complete."""
    head, end, rest = received.partition(b"\r\n\r\n")
    if not end:
        return None
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    size = int(length[1]) if length else 0
    return (head.split()[1].decode(), rest[size:]) if len(rest) >= size else None


async def serve(events: int) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    print(listener.extra(SocketAttribute.local_port), flush=True)
    await listener.serve(partial(answer, chunks(events)))


if __name__ == "__main__":
    anyio.run(serve, int(sys.argv[1]))
