"""The floor of the wire: httpx's bytes, split into lines, each event parsed by jiter; nothing is kept of it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from pydantic_core import from_json  # jiter, as pydantic brings it


async def listen(url: str, on_delta: Callable[[str], None]) -> None:
    """Ask ``url`` and tell ``on_delta`` of each text delta."""
    rest = b""
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{url}/v1/messages", json={"model": "claude"}) as response,
    ):
        async for data in response.aiter_bytes():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    event = from_json(line[5:].strip())
                    if event["type"] == "content_block_delta":
                        on_delta(event["delta"]["text"])
