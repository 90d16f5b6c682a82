"""Anthropic's provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from cubepi_anyio.errors import (
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    UsageError,
)
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.base import ProviderResponse, StreamOptions
from cubepi_anyio.types import AssistantMessage, Model
from tests.providers.asking import ASK
from tests.providers.formats import ANTHROPIC, AnyProvider
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, Server, chunk, hold, serve, whole
from tests.recordings import Replay

from .reading import event, start

pytestmark = pytest.mark.anyio

provider, ask = ANTHROPIC.provider, ANTHROPIC.ask


async def test_a_stream_that_is_never_entered_asks_nobody() -> None:
    async with serve(Server(ANTHROPIC.answer)) as server, provider(server.base) as asked:
        await asked.model("claude").stream(ASK)
        await anyio.wait_all_tasks_blocked()
        assert server.connections == []


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with serve(Server(ANTHROPIC.answer)) as server, provider(server.base) as asked:
        for _ in range(3):
            stream = await asked.model("claude").stream(ASK)
            async with stream:
                async for _ in stream:
                    pass
        assert len(server.connections) == 1


async def test_the_end_of_the_message_does_not_wait_for_the_end_of_the_body() -> None:
    async with serve(partial(hold, begun=ANTHROPIC.body)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
        assert (message.text, error) == ("Hello", None)
        await server.connections[0].closed.wait()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (whole(b"{}"), MalformedResponse),
        (whole(b"[]"), MalformedResponse),
        (whole(b"{"), MalformedResponse),
        (whole(b'{"type": "error", "error": {"type": "overloaded_error"}}'), ProviderOverloaded),
        (whole(b"hello", headers="content-type: text/plain\r\n"), MalformedResponse),
        (whole(b"<html>", headers="content-type: text/html\r\n"), MalformedResponse),
        (whole(b"", headers="content-type: text/event-stream\r\n"), IncompleteStream),
        (whole(ANTHROPIC.body[:-30], headers="content-type: text/event-stream\r\n"), IncompleteStream),
        (whole(b"", status="529 Busy"), ProviderOverloaded),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_error(answer: bytes, kind: type[ProviderError]) -> None:
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
    assert isinstance(error, ProviderError)
    assert type(error) is kind
    assert (error.provider, error.model) == ("anthropic", "claude")
    assert (message.stop_reason, message.error_type) == ("error", kind.__name__)


# --- keys and addresses ----------------------------------------------------------------------


async def test_without_a_key_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    message, error = await ask(AnthropicProvider(base_url="http://127.0.0.1:9"))
    assert type(error) is ProviderAuthFailed
    assert "ANTHROPIC_API_KEY" in str(error)
    assert message.stop_reason == "error"


async def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Server(ANTHROPIC.answer)
    async with serve(handle) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-environment\n")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base)
        async with AnthropicProvider() as asked:
            assert (await ask(asked))[1] is None
    assert "x-api-key: sk-environment\r\n" in handle.head


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    handle = Server(ANTHROPIC.answer)
    extra = {"Anthropic-Beta": "a", "X-Here": "1", "Authorization": "Bearer token"}
    async with serve(handle) as server:
        async with provider(server.base, api_key="", extra_headers=extra, extra_body={"top_k": 1, "top_p": 1}) as asked:
            options = StreamOptions(extra_headers={"anthropic-beta": "b"}, extra_body={"top_k": 2, "max_tokens": 3})
            assert (await ask(asked, options=options))[1] is None
    assert "anthropic-beta: b\r\n" in handle.head
    assert "x-here: 1\r\n" in handle.head
    assert "authorization: Bearer token\r\n" in handle.head
    assert "x-api-key" not in handle.head
    assert (handle.sent["top_k"], handle.sent["top_p"], handle.sent["max_tokens"]) == (2, 1, 3)


def test_a_base_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="base_url"):
        AnthropicProvider(api_key="k", base_url="localhost:8000")


# --- hooks and observers ---------------------------------------------------------------------


class Watch:
    """Observers and hooks of one call, and what they saw, in order."""

    def __init__(self, asked: AnyProvider) -> None:
        self.seen: list[str] = []
        self.payload: dict[str, Any] = {}
        self.ends: list[tuple[AssistantMessage | None, Exception | None]] = []
        asked.subscribe_request(self._request)
        asked.subscribe_chunk(lambda each, model: self.seen.append(each.type))
        asked.subscribe_response(self._end)
        self.options = StreamOptions(on_payload=self._on_payload, on_response=self._on_response)

    def _on_payload(self, payload: dict[str, Any], model: Model) -> dict[str, Any]:
        self.seen.append("on_payload")
        return {**payload, "top_k": 7}

    async def _request(self, payload: dict[str, Any], model: Model) -> None:
        self.seen.append("request")
        self.payload = payload

    async def _on_response(self, response: ProviderResponse, model: Model) -> None:
        self.seen.append(f"on_response {response.status}")

    async def _end(self, message: AssistantMessage | None, model: Model, error: Exception | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.seen.append("response")
        self.ends.append((message, error))


async def test_hooks_and_observers_see_one_call_in_order() -> None:
    async with serve(Server(ANTHROPIC.answer)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        message, _ = await ask(asked, options=watch.options)
    assert watch.seen == [
        "on_payload",
        "request",
        "on_response 200",
        "start",
        "text_start",
        "text_delta",
        "text_end",
        "done",
        "response",
    ]
    assert watch.payload["top_k"] == 7
    assert watch.ends == [(message, None)]


async def test_of_a_failure_the_observers_hear_once() -> None:
    answer = whole(b"", status="529 Busy")
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        _, error = await ask(asked, options=watch.options)
    assert watch.seen == ["on_payload", "request", "on_response 529", "error", "response"]
    assert watch.ends == [(None, error)]


async def test_of_a_cancelled_call_the_observers_hear_once() -> None:
    async with serve(partial(hold, begun=ANTHROPIC.begun)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        stream = await asked.model("claude").stream(ASK, options=watch.options)
        async with stream:
            async for each in stream:
                if each.type == "text_end":
                    break
        assert watch.ends == [(None, None)]
        assert (await stream.result()).stop_reason == "aborted"
        assert stream.message.text == "Hello"


@pytest.mark.parametrize("hook", ["on_payload", "on_response"])
async def test_a_bug_in_a_hook_ends_the_call_as_itself(hook: str) -> None:
    def bug(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    async with serve(Server(ANTHROPIC.answer)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        hooks: dict[str, Any] = {hook: bug}
        message, error = await ask(asked, options=StreamOptions(**hooks))
    assert type(error) is ZeroDivisionError
    assert message.stop_reason == "error"
    assert watch.seen.count("response") == (1 if hook == "on_response" else 0)


# --- leaving early ---------------------------------------------------------------------------


async def test_a_slow_consumer_holds_the_server_back() -> None:
    sent_chunks = 0
    delta = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1000}})

    async def handle(connection: Connection) -> None:
        nonlocal sent_chunks
        await connection.request()
        await connection.send(HEAD + chunk(start() + event(_OPEN)))
        while True:
            await connection.send(chunk(delta * 20))
            sent_chunks += 1

    async with serve(handle) as server, provider(server.base) as asked:
        stream = await asked.model("claude").stream(ASK)
        async with stream:
            await anext(stream)
            seen = -1
            while seen != sent_chunks:  # until nothing moves any more, only the sockets' buffers are full
                seen = sent_chunks
                await anyio.wait_all_tasks_blocked()
                await anyio.sleep(0.05)
            assert sent_chunks * 20_000 < 40_000_000


_OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


async def _churn(asked: AnyProvider, seed: int, until: float, outcomes: list[bool]) -> None:
    """Ask again and again, giving up each time at a random moment; note whether an answer came before it."""
    rng = random.Random(seed)
    while anyio.current_time() < until:
        with anyio.move_on_after(rng.uniform(0, 0.05)) as scope:
            await ask(asked)
        outcomes.append(not scope.cancelled_caught)


@pytest.mark.parametrize("at_once", [4, 256])
async def test_calls_cancelled_at_random_leave_a_healthy_client_and_no_open_socket(at_once: int) -> None:
    outcomes: list[bool] = []

    async def handle(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(HEAD + chunk(ANTHROPIC.begun))
            await anyio.sleep(0.002)
            await connection.send(chunk(ANTHROPIC.body.removeprefix(ANTHROPIC.begun)) + LAST_CHUNK)

    async with serve(handle) as server, provider(server.base, max_concurrent_requests=at_once) as asked:
        async with anyio.create_task_group() as tasks:
            for seed in range(20):
                tasks.start_soon(_churn, asked, seed, anyio.current_time() + 1.0, outcomes)
        for _ in range(6):
            message, error = await ask(asked)
            assert (message.text, error) == ("Hello", None)
        await asked.aclose()
        assert False in outcomes
        for connection in server.connections:
            await connection.closed.wait()


# --- recordings ------------------------------------------------------------------------------

CUT_SHORT = [
    each for each in ANTHROPIC.answers if each["response"]["stream"] and len(each["response"]["body_text"]) < 6000
][::4]


@pytest.mark.needs_shared
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(replay: Replay, mode: str) -> None:
    async with provider(replay.base) as asked:
        for recording in CUT_SHORT:
            for percent in (10, 50, 90):
                await ANTHROPIC.check_cut(asked, recording, percent, mode, recording["expected"]["text"] or "")


@pytest.mark.needs_shared
async def test_recorded_errors_inside_a_stream_keep_what_came_and_drop_the_open_call(replay: Replay) -> None:
    broken = [each for each in ANTHROPIC.recordings if each["expected"]["outcome"] == "stream_error"]
    async with provider(replay.base) as asked:
        for recording in broken:
            stream = await ANTHROPIC.play(asked, recording)
            assert isinstance(stream.error, ProviderError)
            assert not isinstance(stream.error, ProviderBadRequest)
            assert stream.message.text == (recording["expected"]["text"] or "")
            assert stream.message.tool_calls == []
