"""The run that is swept over with a model that is reached over HTTP: a server of our own, which keeps no state."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from cubepi_anyio import Agent, AgentTool, Message, MessageStream, Model
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.http.client import HttpClient
from cubepi_anyio.testing import Scenario
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, Loopback, chunk, serve, whole

from .scenarios import Count, Tools

AGAIN = "Are you still there?"
_CLOSED_WITHIN_SECONDS = 5.0


class Recorded(AnthropicProvider):
    """Keeps the messages of every request."""

    def __init__(self, base_url: str) -> None:
        super().__init__(api_key="key", base_url=base_url)
        self.requests: list[list[Message]] = []

    async def stream(self, model: Model, messages: list[Message], **options: Any) -> MessageStream:
        self.requests.append(list(messages))
        return await super().stream(model, messages, **options)


@asynccontextmanager
async def served() -> AsyncGenerator[Callable[[], AbstractAsyncContextManager[Scenario]]]:
    """A server, and what makes scenarios whose model it is."""
    async with serve(_answer_requests) as server:
        yield lambda: _scenario(server)


@asynccontextmanager
async def _scenario(server: Loopback) -> AsyncGenerator[Scenario]:
    tools, provider, first = Tools(), Recorded(server.base), len(server.connections)

    def leftovers() -> Sequence[str]:
        return [*tools.leftovers(), *_busy(provider._http)]

    yield Scenario(
        agent=Agent(model=provider.model("m"), tools=_tools(tools)),
        again=lambda agent: agent.prompt(AGAIN),
        requests=lambda: provider.requests,
        returned=tools.returned,
        leftovers=leftovers,
    )
    await provider.aclose()
    with anyio.fail_after(_CLOSED_WITHIN_SECONDS):
        for connection in server.connections[first:]:
            await connection.closed.wait()


def _tools(tools: Tools) -> list[AgentTool]:
    async def echo(id: str, params: Count, on_update: Any) -> str:
        for number in range(params.times):
            on_update(number)
            await checkpoint()
        return f"echoed {params.times}"

    return [tools.tool("echo", echo, Count), tools.fail()]


def _busy(http: HttpClient) -> list[str]:
    """Requests that have not been given up, and connections that are neither closed nor waiting for the next one."""
    ours = http._ours()
    pool: Any = ours.client._transport._pool  # pyright: ignore[reportAttributeAccessIssue]
    busy = [f"the connection {one!r}" for one in pool.connections if not (one.is_idle() or one.is_closed())]
    taken = http._max_concurrent_requests - ours.slots.value
    return [*busy, *([f"{taken} requests"] if taken else [])]


# --- the server ------------------------------------------------------------------------------


async def _answer_requests(connection: Connection) -> None:
    while True:
        _, body = await connection.request()
        messages: list[Any] = json.loads(body)["messages"]
        refused = _why_refused(messages)
        if refused:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": refused}}
            await connection.send(whole(json.dumps(error).encode(), status="400 Bad Request"))
            continue
        await connection.send(HEAD)
        for event in _events(_next_answer(messages)):
            await connection.send(chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()))
            await checkpoint()
        await connection.send(LAST_CHUNK)


def _why_refused(messages: list[Any]) -> str:
    """What the vendor would say against a request; empty if it takes it."""
    open_calls: list[str] = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": "x"}]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls):
            return f"the calls {open_calls} are answered by {results}"
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return "text content blocks must be non-empty"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return f"nothing answers the calls {open_calls}" if open_calls else ""


def _next_answer(messages: list[Any]) -> list[Any]:
    """What comes next follows from what was said: it is asked again, or has the results of one batch, or of two."""
    if AGAIN in json.dumps(messages[-1]):
        return ["Yes."]
    rounds = sum('"tool_result"' in json.dumps(message) for message in messages)
    three = ["I do three things.", ("first", "echo", 3), ("second", "fail", None), ("third", "echo", 1)]
    return [three, [("fourth", "echo", 0)], ["All ", "done."]][rounds]


def _events(answer: list[Any]) -> list[dict[str, Any]]:
    """The events of an answer: strings are text, the rest calls."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, part in enumerate(answer):
        block, deltas = _block(part)
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = "end_turn" if isinstance(answer[-1], str) else "tool_use"
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}}
    return [*events, end, {"type": "message_stop"}]


def _block(part: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if isinstance(part, str):
        words = part.split(" ")
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": f"{word} "} for word in words]
    call_id, name, times = part
    arguments = "{}" if times is None else json.dumps({"times": times})
    halves = [arguments[:5], arguments[5:]]
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": half} for half in halves]
