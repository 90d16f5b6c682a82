"""OpenAI's provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    ToolDefinitionError,
    UsageError,
)
from cubepi_anyio.providers.base import MessageStream, StreamOptions
from cubepi_anyio.providers.classify import classify_response
from cubepi_anyio.providers.http import Timeouts
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_chat import PRESETS, Preset, Quirks
from cubepi_anyio.types import AssistantMessage, Model, TextContent, ToolDefinition, UserMessage
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, answer_each, serve, whole
from tests.providers.loopback import chunk as http_chunk
from tests.recordings import Recording, Replay, recordings, replay_server

from .reading import calls, check_against, chunk, end, entry, event, text

pytestmark = pytest.mark.anyio

ASK = [UserMessage(content=[TextContent(text="hi")])]
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
BODY = text("Hello") + chunk(finish_reason="stop") + USAGE + b"data: [DONE]\n\n"
ANSWER = HEAD + http_chunk(BODY) + LAST_CHUNK
MODEL = Model(id="gpt", provider="openai")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in PRESETS.values():
        for variable in (preset.key_variable, preset.base_url_variable, *preset.header_variables.values()):
            if variable:
                monkeypatch.delenv(variable, raising=False)


def provider(base: str | None, **options: Any) -> OpenAIProvider:
    settings: dict[str, Any] = {"api_key": "sk-secret", "base_url": base, **options}
    return OpenAIProvider(**settings)


async def ask(asked: OpenAIProvider, **options: Any) -> tuple[AssistantMessage, Exception | None]:
    """One whole call: its message and the error of its stream."""
    stream = await asked.model("gpt").stream(ASK, **options)
    message = await stream.result()
    return message, stream.error


class Server:
    """Answers each request of a connection and remembers the requests."""

    def __init__(self, answer: bytes = ANSWER) -> None:
        self.answer = answer
        self.requests: list[tuple[str, bytes]] = []

    async def __call__(self, connection: Connection) -> None:
        while True:
            self.requests.append(await connection.request())
            await connection.send(self.answer)

    @property
    def head(self) -> str:
        return self.requests[-1][0]

    @property
    def path(self) -> str:
        return self.head.split(" ")[1]

    @property
    def sent(self) -> dict[str, Any]:
        return json.loads(self.requests[-1][1])


async def test_a_call_streams_and_gives_its_message() -> None:
    handle = Server(ANSWER.replace(b"\r\n\r\n", b"\r\nx-request-id: req_9\r\n\r\n", 1))
    async with serve(handle) as server, provider(f"{server.base}/v1/") as asked:
        stream = await asked.model("gpt").stream(ASK, system_prompt="s", tools=[ToolDefinition(name="t")])
        async with stream:
            types = [each.type async for each in stream]
            message = await stream.result()
    assert types == ["start", "text_start", "text_delta", "text_end", "done"]
    assert message.text == "Hello"
    assert (message.stop_reason, message.provider_id, message.model_id) == ("stop", "openai", "gpt")
    assert (message.api, message.response_id, message.request_id) == ("openai-chat", "chatcmpl-1", "req_9")
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 5)
    assert handle.head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "authorization: Bearer sk-secret" in handle.head
    assert "openai-organization" not in handle.head
    assert handle.sent["stream"] is True
    assert handle.sent["messages"][0] == {"role": "system", "content": "s"}


async def test_calls_share_a_connection_and_the_end_does_not_wait_for_the_end_of_the_body() -> None:
    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
        for _ in range(3):
            assert (await ask(asked))[1] is None
        assert len(server.connections) == 1

    async def hang(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + http_chunk(BODY))
        await connection.until_closed()

    async with serve(hang) as server, provider(server.base) as asked:
        message, error = await ask(asked)
        assert (message.text, error) == ("Hello", None)
        await server.connections[0].closed.wait()


async def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    body = {"id": "c", "choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "length"}]}
    async with serve(Server(whole(json.dumps(body).encode()))) as server, provider(server.base) as asked:
        message, error = await ask(asked)
    assert (message.text, message.stop_reason, error) == ("Hello", "length", None)


EVENTS = "content-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (whole(b"{}"), MalformedResponse),
        (whole(b"[]"), MalformedResponse),
        (whole(b"{"), MalformedResponse),
        (whole(b'{"error": {"message": "m", "code": "content_filter"}}'), ContentFiltered),
        (whole(b"hello", headers="content-type: text/plain\r\n"), MalformedResponse),
        (whole(b"<html>\n<body>data: x</body>", headers="content-type: text/html\r\n"), MalformedResponse),
        (whole(b"", headers=EVENTS), IncompleteStream),
        (whole(text("x"), headers=EVENTS), IncompleteStream),
        (whole(BODY[:30], headers=EVENTS), IncompleteStream),
        (whole(text("x") + b"data: {nonsense\n\n" + end(), headers=EVENTS), MalformedResponse),
        (whole(text("x") + end("content_filter: x"), headers=EVENTS), type(None)),
        (whole(end("content_filter"), headers=EVENTS), ContentFiltered),
        (whole(b"", status="503 Busy"), ProviderUnavailable),
        (whole(b"<html>", status="307 Moved", headers="location: http://127.0.0.1:9/\r\n"), ProviderBadRequest),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_error(answer: bytes, kind: type[ProviderError]) -> None:
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
    assert type(error) is kind
    if isinstance(error, ProviderError):
        assert (error.provider, error.model) == ("openai", "gpt")
        assert (message.stop_reason, message.error_type) == ("error", kind.__name__)
    else:
        assert message.stop_reason == "content_filter"


async def test_leaving_the_stream_closes_the_connection_before_the_block_is_left() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + http_chunk(text("Hello")))
        await connection.until_closed()

    async with serve(handle) as server, provider(server.base) as asked:
        stream = await asked.model("gpt").stream(ASK)
        async with stream:
            async for each in stream:
                if each.type == "text_delta":
                    break
        assert (stream.message.text, (await stream.result()).stop_reason) == ("Hello", "aborted")
        await server.connections[0].closed.wait()


# --- keys, addresses, settings ---------------------------------------------------------------


@pytest.mark.parametrize(
    "preset", [each for each in PRESETS.values() if each.needs_key], ids=lambda each: each.provider_id
)
async def test_without_a_key_the_error_names_the_variable(preset: Preset) -> None:
    message, error = await ask(OpenAIProvider(base_url="http://127.0.0.1:9", preset=preset))
    assert type(error) is ProviderAuthFailed
    assert preset.key_variable in str(error)
    assert message.stop_reason == "error"


async def test_key_and_address_come_from_the_vendors_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Server()
    async with serve(handle) as server:
        monkeypatch.setenv("OPENAI_API_KEY", " sk-environment\n")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base}/v1")
        monkeypatch.setenv("OPENAI_ORG_ID", "org")
        monkeypatch.setenv("GROQ_API_KEY", "gsk")
        async with OpenAIProvider(project="p") as asked:
            assert (await ask(asked))[1] is None
        assert "authorization: Bearer sk-environment\r\n" in handle.head
        assert "openai-organization: org\r\n" in handle.head
        assert "openai-project: p\r\n" in handle.head
        async with OpenAIProvider(preset="groq", base_url=server.base) as asked:
            assert (await ask(asked))[1] is None
        assert "authorization: Bearer gsk\r\n" in handle.head
        assert "openai-organization" not in handle.head


async def test_a_local_server_needs_no_key() -> None:
    handle = Server()
    async with serve(handle) as server, OpenAIProvider(preset="ollama", base_url=server.base) as asked:
        message, error = await ask(asked)
    assert (message.text, message.provider_id, error) == ("Hello", "ollama", None)
    assert "authorization" not in handle.head


async def test_azure_has_the_deployment_in_its_address_and_a_key_of_its_own() -> None:
    handle = Server()
    async with serve(handle) as server, provider(server.base, preset="azure", api_version="2024-12-01") as asked:
        stream = await asked.model("my gpt/4").stream(ASK)
        assert (await stream.result()).text == "Hello"
    assert handle.path == "/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2024-12-01"
    assert "api-key: sk-secret\r\n" in handle.head
    assert "authorization" not in handle.head
    with pytest.raises(UsageError, match="AZURE_OPENAI_ENDPOINT"):
        OpenAIProvider(preset="azure", api_key="k")


async def test_a_query_of_the_base_url_stays_at_the_end() -> None:
    handle = Server()
    async with serve(handle) as server, provider(f"{server.base}/models/?api-version=1") as asked:
        assert (await ask(asked))[1] is None
    assert handle.path == "/models/chat/completions?api-version=1"


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    handle = Server()
    extra = {"X-Title": "a", "X-Here": "1", "Authorization": "Bearer token"}
    async with serve(handle) as server:
        async with provider(server.base, api_key="", extra_headers=extra, extra_body={"seed": 1, "n": 1}) as asked:
            options = StreamOptions(extra_headers={"x-title": "b"}, extra_body={"seed": 2, "max_tokens": 3})
            assert (await ask(asked, options=options))[1] is None
    assert "x-title: b\r\n" in handle.head
    assert "x-here: 1\r\n" in handle.head
    assert "authorization: Bearer token\r\n" in handle.head
    assert (handle.sent["seed"], handle.sent["n"], handle.sent["max_tokens"]) == (2, 1, 3)


async def test_a_wrong_key_is_an_error_that_shows_neither_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"error": {"code": "invalid_api_key", "message": "Incorrect API key provided: sk-secret."}}
    answer = whole(json.dumps(body).encode(), status="401 Unauthorized")
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        message, error = await ask(asked)
        shown = f"{error!r} {error} {message!r} {asked!r} {vars(asked)} {caplog.text}"
    assert type(error) is ProviderAuthFailed
    assert error.message == "Incorrect API key provided: ***.; check OPENAI_API_KEY"
    assert "sk-secret" not in shown


def test_settings_that_are_none_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="base_url"):
        OpenAIProvider(api_key="k", base_url="localhost:8000")
    with pytest.raises(UsageError, match="openrouter"):
        OpenAIProvider(preset="nobody")


def test_each_preset_has_an_address_unless_each_customer_has_one() -> None:
    for name, preset in PRESETS.items():
        assert name == preset.provider_id
        assert preset.base_url.startswith("http") or preset.base_url_variable
        assert OpenAIProvider(preset=name, base_url=preset.base_url or "http://x").provider_id == name


async def test_a_vendor_of_your_own_is_a_preset_of_your_own() -> None:
    handle = Server()
    quirks = Quirks(max_tokens_field="max_tokens", stream_usage=False)
    async with serve(handle) as server:
        mine = Preset(provider_id="mine", base_url=server.base, key_variable="MINE", path="/chat", quirks=quirks)
        async with OpenAIProvider(preset=mine, api_key="k", provider_id="here") as asked:
            message, _ = await ask(asked, options=StreamOptions(max_output_tokens=7))
    assert (message.provider_id, handle.path) == ("here", "/chat")
    assert handle.sent == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 7,
    }


async def test_a_strict_tool_is_called_with_its_defaults_left_out() -> None:
    tool = ToolDefinition(
        name="a", parameters={"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}
    )
    handle = Server(
        HEAD + http_chunk(calls(entry('{"x": null}', name="a", id="1", index=0)) + end("tool_calls")) + LAST_CHUNK
    )
    async with serve(handle) as server:
        async with provider(server.base, strict_tools="possible", parallel_tool_calls=False) as asked:
            message, _ = await ask(asked, tools=[tool], tool_choice="required")
        assert message.tool_calls[0].arguments == {}
        assert handle.sent["tools"][0]["function"]["strict"] is True
        assert (handle.sent["tool_choice"], handle.sent["parallel_tool_calls"]) == ("required", False)
        async with provider(server.base, strict_tools="always") as asked:
            free = ToolDefinition(name="b", parameters={"type": "object", "properties": {"d": {"type": "object"}}})
            _, error = await ask(asked, tools=[tool, free])
    assert type(error) is ToolDefinitionError
    assert "'d'" in str(error)


def test_one_provider_serves_several_event_loops_one_after_the_other() -> None:
    asked: list[OpenAIProvider] = []

    async def use() -> str:
        async with serve(Server()) as server:
            asked[:] = asked or [provider(server.base)]
            asked[0]._base_url = server.base  # the port differs from run to run
            async with asked[0]:
                return (await ask(asked[0]))[0].text

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, backend=backend) == "Hello"


# --- recordings ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


@pytest.fixture
async def asked(replay: Replay) -> AsyncIterator[OpenAIProvider]:
    async with provider(replay.base) as each:
        yield each


async def play(asked: OpenAIProvider, recording: Recording, options: str = "") -> MessageStream:
    """Ask for a recording, sent in the way ``options`` say; the stream is left at its end."""
    chosen = StreamOptions(extra_headers={"x-replay-id": recording["id"] + options})
    stream = await asked.stream(MODEL, list(ASK), options=chosen)
    async with stream:
        async for _ in stream:
            pass
        await stream.result()
    return stream


ALL = recordings("openai-chat")
ANSWERS = [each for each in ALL if each["expected"]["outcome"] == "ok"]
SMALL = [each for each in ANSWERS if len(each["response"]["body_text"]) < 30_000]
FAULTS = [each for each in ALL if each["response"]["status"] >= 400]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    "options", ["", ";chunk=rand:7:200", ";nl=crlf;bom=1;chunk=event", ";gzip=1;chunk=line", ";te=close"]
)
async def test_recorded_answers_arrive_as_expected(asked: OpenAIProvider, options: str) -> None:
    for recording in ANSWERS if not options else SMALL:
        if ";nl=" in options and not recording["response"]["stream"]:
            continue
        stream = await play(asked, recording, options)
        assert stream.error is None, recording["id"]
        check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "name",
    ["chat-alibaba-alibaba-tool-call", "chat-mistral-parallel-tool-calls-single-turn-streaming-0"],
)
async def test_a_recorded_answer_arrives_byte_by_byte(asked: OpenAIProvider, name: str) -> None:
    for recording in (each for each in ANSWERS if each["id"] == name):
        stream = await play(asked, recording, ";chunk=1")
        assert stream.error is None
        check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.needs_shared
async def test_recorded_http_errors_arrive_as_their_class(asked: OpenAIProvider) -> None:
    for recording in FAULTS:
        answer = recording["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        expected = classify_response(answer["status"], answer["body_text"].encode(), headers)
        error = (await play(asked, recording)).error
        assert isinstance(error, ProviderError)
        assert type(error) is type(expected), recording["id"]
        assert (error.status_code, error.error_code) == (answer["status"], expected.error_code)
        assert (error.request_id, error.retry_after_seconds) == (expected.request_id, expected.retry_after_seconds)


CUT_SHORT = [each for each in ANSWERS if each["response"]["stream"] and len(each["response"]["body_text"]) < 6000][::3]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(asked: OpenAIProvider, mode: str) -> None:
    for recording in CUT_SHORT:
        body, text_expected = recording["response"]["body_text"], recording["expected"]["text"]
        for percent in (10, 40, 70, 97):
            if mode == "clean" and '"finish_reason":"' in body[: len(body) * percent // 100]:
                continue  # it is whole, as far as it goes: only [DONE] or the usage is missing
            stream = await play(asked, recording, f";cut={percent}%;cutmode={mode}")
            # A reset may overtake what was sent before it, the head included.
            allowed = (IncompleteStream, ProviderUnavailable) if mode == "rst" else (IncompleteStream,)
            assert isinstance(stream.error, allowed), (recording["id"], percent)
            assert stream.message.stop_reason == "error"
            assert text_expected.startswith(stream.message.text), (recording["id"], percent)


@pytest.mark.needs_shared
async def test_a_recorded_answer_that_falls_silent_is_a_timeout_that_keeps_its_text(replay: Replay) -> None:
    silent = [each for each in ANSWERS if each["id"] == "chat-together-test-chat-stream"]
    for recording in silent:
        async with provider(replay.base, timeouts=Timeouts(idle_seconds=0.1)) as asked:
            stream = await play(asked, recording, ";cut=80%;cutmode=hang;hang=2000")
        assert type(stream.error) is ProviderTimeout
        assert len(stream.message.text) > 5
        assert recording["expected"]["text"].startswith(stream.message.text)


STREAM_ERRORS = {
    "chat-groq-test-tool-use-failed-error-streaming": ProviderBadRequest,
    "chat-openai-recon-stream-first-chunk-error": ProviderUnavailable,
    "chat-openai-recon-truncated-no-done": IncompleteStream,
    "chat-openrouter-test-openrouter-stream-error": ContextLengthExceeded,
    "chat-azure-test-prompt-content-filtering": ContentFiltered,
    "chat-non-llm-endpoint-test-text-response": MalformedResponse,
}


@pytest.mark.needs_shared
async def test_recorded_errors_after_a_200_are_typed_and_keep_what_came(asked: OpenAIProvider) -> None:
    for recording in ALL:
        if recording["response"]["status"] == 200 and recording["expected"]["outcome"] != "ok":
            stream = await play(asked, recording)
            assert type(stream.error) is STREAM_ERRORS[recording["id"]]
            assert stream.message.text == recording["expected"].get("text", "")
            assert (stream.message.stop_reason, stream.message.tool_calls) == ("error", [])
