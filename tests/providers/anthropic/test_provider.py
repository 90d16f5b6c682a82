"""Anthropic's provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
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
    ProviderTimeout,
    ProviderUnavailable,
    UsageError,
)
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.base import MessageStream, ProviderResponse, StreamOptions
from cubepi_anyio.providers.classify import classify_response
from cubepi_anyio.providers.http import Timeouts
from cubepi_anyio.types import AssistantMessage, Model, TextContent, ToolDefinition, UserMessage
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, answer_each, chunk, serve, whole
from tests.recordings import Recording, Replay, recordings, replay_server

from .reading import check_against, end, event, start, text

pytestmark = pytest.mark.anyio

ASK = [UserMessage(content=[TextContent(text="hi")])]
PAUSED_BODY = start(input_tokens=3) + text(0, "Hello")
BODY = PAUSED_BODY + end(output_tokens=5)
ANSWER = HEAD + chunk(BODY) + LAST_CHUNK
MODEL = Model(id="claude", provider="anthropic")


def provider(base: str, **options: Any) -> AnthropicProvider:
    settings: dict[str, Any] = {"api_key": "sk-secret", "base_url": base, **options}
    return AnthropicProvider(**settings)


async def ask(asked: AnthropicProvider, **options: Any) -> tuple[AssistantMessage, Exception | None]:
    """One whole call: its message and the error of its stream."""
    stream = await asked.model("claude").stream(ASK, **options)
    message = await stream.result()
    return message, stream.error


async def test_a_call_streams_and_gives_its_message() -> None:
    requests: list[tuple[str, bytes]] = []

    async def handle(connection: Connection) -> None:
        requests.append(await connection.request())
        await connection.send(ANSWER.replace(b"\r\n\r\n", b"\r\nrequest-id: req_9\r\n\r\n", 1))

    async with serve(handle) as server, provider(f"{server.base}/gateway/") as asked:
        stream = await asked.model("claude").stream(ASK, system_prompt="s", tools=[ToolDefinition(name="t")])
        async with stream:
            types = [each.type async for each in stream]
            message = await stream.result()
    assert types == ["start", "text_start", "text_delta", "text_end", "done"]
    assert message.text == "Hello"
    assert (message.stop_reason, message.provider_id, message.model_id) == ("stop", "anthropic", "claude")
    assert (message.api, message.response_id, message.request_id) == ("anthropic-messages", "msg_1", "req_9")
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 5)
    head, body = requests[0]
    assert head.startswith("POST /gateway/v1/messages HTTP/1.1\r\n")
    assert "x-api-key: sk-secret" in head
    assert "anthropic-version: 2023-06-01" in head
    assert "content-type: application/json" in head
    assert json.loads(body)["stream"] is True


async def test_a_stream_that_is_never_entered_asks_nobody() -> None:
    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
        await asked.model("claude").stream(ASK)
        await anyio.wait_all_tasks_blocked()
        assert server.connections == []


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
        for _ in range(3):
            stream = await asked.model("claude").stream(ASK)
            async with stream:
                async for _ in stream:
                    pass
        assert len(server.connections) == 1


async def test_the_end_of_the_message_does_not_wait_for_the_end_of_the_body() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(BODY))
        await connection.until_closed()

    async with serve(handle) as server, provider(server.base) as asked:
        message, error = await ask(asked)
        assert (message.text, error) == ("Hello", None)
        await server.connections[0].closed.wait()


async def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    body = {
        "id": "msg_1",
        "type": "message",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    answer = whole(json.dumps(body).encode(), headers="content-type: application/json; charset=utf-8\r\n")
    async with serve(lambda connection: answer_each(connection, answer)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
    assert (message.text, message.stop_reason, error) == ("Hello", "length", None)


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
        (whole(BODY[:-30], headers="content-type: text/event-stream\r\n"), IncompleteStream),
        (whole(b"", status="529 Busy"), ProviderOverloaded),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_error(answer: bytes, kind: type[ProviderError]) -> None:
    async with serve(lambda connection: answer_each(connection, answer)) as server, provider(server.base) as asked:
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
    heads: list[str] = []

    async def handle(connection: Connection) -> None:
        heads.append((await connection.request())[0])
        await connection.send(ANSWER)

    async with serve(handle) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-environment\n")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base)
        async with AnthropicProvider() as asked:
            assert (await ask(asked))[1] is None
    assert "x-api-key: sk-environment\r\n" in heads[0]


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    requests: list[tuple[str, bytes]] = []

    async def handle(connection: Connection) -> None:
        requests.append(await connection.request())
        await connection.send(ANSWER)

    extra = {"Anthropic-Beta": "a", "X-Here": "1", "Authorization": "Bearer token"}
    async with serve(handle) as server:
        async with provider(server.base, api_key="", extra_headers=extra, extra_body={"top_k": 1, "top_p": 1}) as asked:
            options = StreamOptions(extra_headers={"anthropic-beta": "b"}, extra_body={"top_k": 2, "max_tokens": 3})
            assert (await ask(asked, options=options))[1] is None
    head, body = requests[0]
    assert "anthropic-beta: b\r\n" in head
    assert "x-here: 1\r\n" in head
    assert "authorization: Bearer token\r\n" in head
    assert "x-api-key" not in head
    sent = json.loads(body)
    assert (sent["top_k"], sent["top_p"], sent["max_tokens"]) == (2, 1, 3)


async def test_a_wrong_key_is_an_error_that_shows_neither_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": "bad key sk-secret"}})
    answer = whole(body.encode(), status="401 Unauthorized")
    async with serve(lambda connection: answer_each(connection, answer)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
        shown = f"{error!r} {error} {message!r} {asked!r} {vars(asked)} {caplog.text}"
    assert type(error) is ProviderAuthFailed
    assert error.message == "bad key ***; check ANTHROPIC_API_KEY"
    assert "sk-secret" not in shown


def test_a_base_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="base_url"):
        AnthropicProvider(api_key="k", base_url="localhost:8000")


# --- hooks and observers ---------------------------------------------------------------------


class Watch:
    """Observers and hooks of one call, and what they saw, in order."""

    def __init__(self, asked: AnthropicProvider) -> None:
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
    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
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
    async with serve(lambda connection: answer_each(connection, answer)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        _, error = await ask(asked, options=watch.options)
    assert watch.seen == ["on_payload", "request", "on_response 529", "error", "response"]
    assert watch.ends == [(None, error)]


async def test_of_a_cancelled_call_the_observers_hear_once() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(PAUSED_BODY))
        await connection.until_closed()

    async with serve(handle) as server, provider(server.base) as asked:
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

    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
        watch = Watch(asked)
        hooks: dict[str, Any] = {hook: bug}
        message, error = await ask(asked, options=StreamOptions(**hooks))
    assert type(error) is ZeroDivisionError
    assert message.stop_reason == "error"
    assert watch.seen.count("response") == (1 if hook == "on_response" else 0)


# --- leaving early ---------------------------------------------------------------------------


async def test_leaving_the_stream_closes_the_connection_before_the_block_is_left() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(PAUSED_BODY))
        await connection.until_closed()

    async with serve(handle) as server, provider(server.base) as asked:
        stream = await asked.model("claude").stream(ASK)
        async with stream:
            async for each in stream:
                if each.type == "text_delta":
                    break
        await server.connections[0].closed.wait()


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


async def _churn(asked: AnthropicProvider, seed: int, until: float, outcomes: list[bool]) -> None:
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
            await connection.send(HEAD + chunk(PAUSED_BODY))
            await anyio.sleep(0.002)
            await connection.send(chunk(BODY.removeprefix(PAUSED_BODY)) + LAST_CHUNK)

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


def test_one_provider_serves_several_event_loops_one_after_the_other() -> None:
    async def use(holder: list[AnthropicProvider]) -> str:
        async with serve(lambda connection: answer_each(connection, ANSWER)) as server:
            asked = holder[0] if holder else provider(server.base)
            asked._url = f"{server.base}/v1/messages"  # the port differs from run to run
            holder[:] = [asked]
            async with asked:
                return (await ask(asked))[0].text

    holder: list[AnthropicProvider] = []
    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, holder, backend=backend) == "Hello"


# --- recordings ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


@pytest.fixture
async def asked(replay: Replay) -> AsyncIterator[AnthropicProvider]:
    async with provider(replay.base) as each:
        yield each


async def play(asked: AnthropicProvider, recording: Recording, options: str = "") -> MessageStream:
    """Ask for a recording, sent in the way ``options`` say; the stream is left at its end."""
    chosen = StreamOptions(extra_headers={"x-replay-id": recording["id"] + options})
    stream = await asked.stream(MODEL, list(ASK), options=chosen)
    async with stream:
        async for _ in stream:
            pass
        await stream.result()
    return stream


ANSWERS = [each for each in recordings("anthropic-messages") if each["expected"]["outcome"] == "ok"]
FAULTS = [each for each in recordings("anthropic-messages") if each["response"]["status"] >= 400]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    "options", ["", ";chunk=rand:7:200", ";nl=crlf;bom=1;chunk=event", ";gzip=1;chunk=line", ";te=close"]
)
async def test_recorded_answers_arrive_as_expected(asked: AnthropicProvider, options: str) -> None:
    for recording in ANSWERS:
        if ";nl=" in options and not recording["response"]["stream"]:
            continue
        stream = await play(asked, recording, options)
        assert stream.error is None, recording["id"]
        check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.needs_shared
async def test_a_recorded_answer_arrives_byte_by_byte(asked: AnthropicProvider) -> None:
    recording = next(each for each in ANSWERS if "redacted_thinking" in each["expected"]["blocks"])
    stream = await play(asked, recording, ";chunk=1")
    check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.needs_shared
async def test_recorded_http_errors_arrive_as_their_class(asked: AnthropicProvider) -> None:
    for recording in FAULTS:
        answer = recording["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        expected = classify_response(answer["status"], answer["body_text"].encode(), headers)
        error = (await play(asked, recording)).error
        assert isinstance(error, ProviderError)
        assert type(error) is type(expected), recording["id"]
        assert (error.status_code, error.error_code) == (answer["status"], expected.error_code)
        assert (error.request_id, error.retry_after_seconds) == (expected.request_id, expected.retry_after_seconds)


CUT_SHORT = [each for each in ANSWERS if each["response"]["stream"] and len(each["response"]["body_text"]) < 6000][::4]


@pytest.mark.needs_shared
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(
    asked: AnthropicProvider, mode: str
) -> None:
    for recording in CUT_SHORT:
        for percent in (10, 50, 90):
            stream = await play(asked, recording, f";cut={percent}%;cutmode={mode}")
            # A reset may overtake what was sent before it, the head included.
            allowed = (IncompleteStream, ProviderUnavailable) if mode == "rst" else (IncompleteStream,)
            assert isinstance(stream.error, allowed), recording["id"]
            assert stream.message.stop_reason == "error"
            assert (recording["expected"]["text"] or "").startswith(stream.message.text)


@pytest.mark.needs_shared
async def test_a_recorded_answer_that_falls_silent_is_a_timeout_that_keeps_its_text(replay: Replay) -> None:
    recording = next(each for each in ANSWERS if each["id"].endswith("image-prompt"))
    async with provider(replay.base, timeouts=Timeouts(idle_seconds=0.1)) as asked:
        stream = await play(asked, recording, ";cut=80%;cutmode=hang;hang=2000")
    assert type(stream.error) is ProviderTimeout
    assert len(stream.message.text) > 10
    assert recording["expected"]["text"].startswith(stream.message.text)


@pytest.mark.needs_shared
async def test_recorded_errors_inside_a_stream_keep_what_came_and_drop_the_open_call(asked: AnthropicProvider) -> None:
    broken = [each for each in recordings("anthropic-messages") if each["expected"]["outcome"] == "stream_error"]
    for recording in broken:
        stream = await play(asked, recording)
        assert isinstance(stream.error, ProviderError)
        assert not isinstance(stream.error, ProviderBadRequest)
        assert stream.message.text == (recording["expected"]["text"] or "")
        assert stream.message.tool_calls == []
