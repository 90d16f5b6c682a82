"""The Responses provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    ToolDefinitionError,
    UsageError,
)
from cubepi_anyio.providers.base import MessageStream, StreamOptions
from cubepi_anyio.providers.classify import classify_response
from cubepi_anyio.providers.http import Timeouts
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.types import AssistantMessage, Model, ReasoningControl, TextContent, ToolDefinition, UserMessage
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, answer_each, chunk, serve, whole
from tests.recordings import Recording, Replay, recordings, replay_server

from .reading import call, check_against, created, end, message, read, sample, text

pytestmark = pytest.mark.anyio

ASK = [UserMessage(content=[TextContent(text="hi")])]
BODY = created() + message(0, "Hello") + end(usage={"input_tokens": 3, "output_tokens": 5})
ANSWER = HEAD + chunk(BODY) + LAST_CHUNK
MODEL = Model(id="gpt", provider="openai")
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def provider(base: str | None, **options: Any) -> OpenAIResponsesProvider:
    settings: dict[str, Any] = {"api_key": "sk-secret", "base_url": base, **options}
    return OpenAIResponsesProvider(**settings)


async def ask(asked: OpenAIResponsesProvider, **options: Any) -> tuple[AssistantMessage, Exception | None]:
    """One whole call: its message and the error of its stream."""
    stream = await asked.model("gpt").stream(ASK, **options)
    found = await stream.result()
    return found, stream.error


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
    def sent(self) -> dict[str, Any]:
        return json.loads(self.requests[-1][1])


async def test_a_call_streams_and_gives_its_message() -> None:
    handle = Server(ANSWER.replace(b"\r\n\r\n", b"\r\nx-request-id: req_9\r\n\r\n", 1))
    async with serve(handle) as server, provider(f"{server.base}/v1/") as asked:
        stream = await asked.model("gpt").stream(ASK, system_prompt="s", tools=[ToolDefinition(name="t")])
        async with stream:
            types = [each.type async for each in stream]
            found = await stream.result()
    assert types == ["start", "text_start", "text_delta", "text_end", "done"]
    assert (found.text, found.stop_reason, found.provider_id, found.model_id) == ("Hello", "stop", "openai", "gpt")
    assert (found.api, found.response_id, found.request_id) == ("openai-responses", "resp_1", "req_9")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (3, 5)
    assert handle.head.startswith("POST /v1/responses HTTP/1.1\r\n")
    assert "authorization: Bearer sk-secret" in handle.head
    assert (handle.sent["stream"], handle.sent["store"], handle.sent["instructions"]) == (True, False, "s")
    assert [tool["name"] for tool in handle.sent["tools"]] == ["t"]


async def test_calls_share_a_connection_and_the_end_does_not_wait_for_the_end_of_the_body() -> None:
    async with serve(lambda connection: answer_each(connection, ANSWER)) as server, provider(server.base) as asked:
        for _ in range(3):
            assert (await ask(asked))[1] is None
        assert len(server.connections) == 1

    async def hang(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(BODY))
        await connection.until_closed()

    async with serve(hang) as server, provider(server.base) as asked:
        found, error = await ask(asked)
        assert (found.text, error) == ("Hello", None)
        await server.connections[0].closed.wait()


async def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}]
    body = {"id": "r", "status": "incomplete", "output": output}
    async with serve(Server(whole(json.dumps(body).encode()))) as server, provider(server.base) as asked:
        found, error = await ask(asked)
    assert (found.text, found.stop_reason, error) == ("Hello", "length", None)


EVENTS = "content-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (whole(b"{}"), MalformedResponse),
        (whole(b"[]"), MalformedResponse),
        (whole(b'{"error": {"message": "m", "code": "content_filter"}}'), ContentFiltered),
        (whole(b'{"object": "chat.completion", "choices": []}'), MalformedResponse),
        (whole(b"<html>", headers="content-type: text/html\r\n"), MalformedResponse),
        (whole(b"", headers=EVENTS), IncompleteStream),
        (whole(created() + message(0, "x"), headers=EVENTS), IncompleteStream),
        (whole(BODY[:-30], headers=EVENTS), IncompleteStream),
        (whole(created() + b"data: {nonsense\n\n" + end(), headers=EVENTS), MalformedResponse),
        (whole(end("failed", error={"code": "rate_limit_exceeded"}), headers=EVENTS), RateLimited),
        (whole(b"", status="503 Busy"), ProviderUnavailable),
        (whole(b'{"error": {"code": "server_is_overloaded"}}', status="503 Busy"), ProviderOverloaded),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_error(answer: bytes, kind: type[ProviderError]) -> None:
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        found, error = await ask(asked)
    assert isinstance(error, ProviderError)
    assert type(error) is kind
    assert (error.provider, error.model) == ("openai", "gpt")
    assert (found.stop_reason, found.error_type) == ("error", kind.__name__)


async def test_leaving_the_stream_closes_the_connection_before_the_block_is_left() -> None:
    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + chunk(created() + text(0, "Hello")))
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


async def test_without_a_key_the_error_names_the_variable() -> None:
    found, error = await ask(provider("http://127.0.0.1:9", api_key=None))
    assert type(error) is ProviderAuthFailed
    assert "OPENAI_API_KEY" in str(error)
    assert found.stop_reason == "error"


async def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Server()
    async with serve(handle) as server:
        monkeypatch.setenv("OPENAI_API_KEY", " sk-environment\n")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base}/v1")
        monkeypatch.setenv("OPENAI_ORG_ID", "org")
        async with OpenAIResponsesProvider(project="p") as asked:
            assert (await ask(asked))[1] is None
    assert handle.head.startswith("POST /v1/responses ")
    assert "authorization: Bearer sk-environment\r\n" in handle.head
    assert "openai-organization: org\r\n" in handle.head
    assert "openai-project: p\r\n" in handle.head


async def test_a_query_of_the_base_url_stays_at_the_end_and_a_gateways_key_is_enough() -> None:
    handle = Server()
    async with serve(handle) as server:
        base = f"{server.base}/openai/v1/?api-version=preview"
        async with provider(base, api_key="", extra_headers={"Api-Key": "k"}) as asked:
            assert (await ask(asked))[1] is None
    assert handle.head.startswith("POST /openai/v1/responses?api-version=preview ")
    assert "api-key: k\r\n" in handle.head
    assert "authorization" not in handle.head


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    handle = Server()
    extra = {"X-Title": "a", "X-Here": "1"}
    async with serve(handle) as server:
        async with provider(server.base, extra_headers=extra, extra_body={"top_p": 1, "store": True}) as asked:
            options = StreamOptions(extra_headers={"x-title": "b"}, extra_body={"top_p": 0.5})
            assert (await ask(asked, options=options))[1] is None
    assert "x-title: b\r\n" in handle.head
    assert "x-here: 1\r\n" in handle.head
    assert (handle.sent["top_p"], handle.sent["store"]) == (0.5, True)


async def test_settings_of_provider_and_call_reach_the_payload() -> None:
    handle = Server()
    settings: dict[str, Any] = {"store": True, "system_prompt_place": "developer", "parallel_tool_calls": False}
    async with serve(handle) as server, provider(server.base, provider_id="xai", **settings) as asked:
        options = StreamOptions(reasoning=ReasoningControl(mode="on", effort="low"), max_output_tokens=7)
        tools = [ToolDefinition(name="t")]
        found, _ = await ask(asked, system_prompt="s", tools=tools, tool_choice="t", options=options)
    assert found.provider_id == "xai"
    assert handle.sent == {
        "model": "gpt",
        "stream": True,
        "store": True,
        "input": [{"role": "developer", "content": "s"}, {"role": "user", "content": "hi"}],
        "tools": [
            {"type": "function", "name": "t", "parameters": {"type": "object", "properties": {}}, "strict": False}
        ],
        "tool_choice": {"type": "function", "name": "t"},
        "parallel_tool_calls": False,
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
    }


async def test_a_wrong_key_is_an_error_that_shows_neither_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"error": {"code": "invalid_api_key", "message": "Incorrect API key provided: sk-secret."}}
    answer = whole(json.dumps(body).encode(), status="401 Unauthorized")
    async with serve(Server(answer)) as server, provider(server.base) as asked:
        found, error = await ask(asked)
        shown = f"{error!r} {error} {found!r} {asked!r} {vars(asked)} {caplog.text}"
    assert type(error) is ProviderAuthFailed
    assert error.message == "Incorrect API key provided: ***.; check OPENAI_API_KEY"
    assert "sk-secret" not in shown


def test_a_base_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="base_url"):
        provider("localhost:8000")


async def test_a_strict_tool_is_called_with_its_defaults_left_out() -> None:
    fields = {"x": {"type": "integer", "default": 1}}
    tool = ToolDefinition(name="a", parameters={"type": "object", "properties": fields})
    handle = Server(HEAD + chunk(created() + call(0, '{"x": null}', name="a") + end()) + LAST_CHUNK)
    async with serve(handle) as server:
        async with provider(server.base, strict_tools="possible") as asked:
            found, _ = await ask(asked, tools=[tool])
        assert found.tool_calls[0].arguments == {}
        assert handle.sent["tools"][0]["strict"] is True
        async with provider(server.base, strict_tools="always") as asked:
            free = ToolDefinition(name="b", parameters={"type": "object", "properties": {"d": {"type": "object"}}})
            _, error = await ask(asked, tools=[tool, free])
    assert type(error) is ToolDefinitionError
    assert "'d'" in str(error)


def test_one_provider_serves_several_event_loops_one_after_the_other() -> None:
    asked: list[OpenAIResponsesProvider] = []

    async def use() -> str:
        async with serve(Server()) as server:
            asked[:] = asked or [provider(server.base)]
            asked[0]._url = f"{server.base}/responses"  # the port differs from run to run
            async with asked[0]:
                return (await ask(asked[0]))[0].text

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, backend=backend) == "Hello"


@pytest.mark.parametrize("name", ["reasoning_and_calls", "imitated", "search_and_citation"])
async def test_a_sample_of_ours_arrives_over_the_wire_as_it_is(name: str) -> None:
    body = sample(name)
    pieces = b"".join(chunk(body[at : at + 50]) for at in range(0, len(body), 50))
    async with serve(Server(HEAD + pieces + LAST_CHUNK)) as server, provider(server.base) as asked:
        found, error = await ask(asked)
    assert error is None
    assert found.content == read(body).message.content


# --- recordings ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


@pytest.fixture
async def asked(replay: Replay) -> AsyncIterator[OpenAIResponsesProvider]:
    async with provider(replay.base) as each:
        yield each


async def play(asked: OpenAIResponsesProvider, recording: Recording, options: str = "") -> MessageStream:
    """Ask for a recording, sent in the way ``options`` say; the stream is left at its end."""
    chosen = StreamOptions(extra_headers={"x-replay-id": recording["id"] + options})
    stream = await asked.stream(MODEL, list(ASK), options=chosen)
    async with stream:
        async for _ in stream:
            pass
        await stream.result()
    return stream


ALL = recordings("openai-responses")
ANSWERS = [each for each in ALL if each["expected"]["outcome"] == "ok"]
SMALL = [each for each in ANSWERS if len(each["response"]["body_text"]) < 30_000]
FAULTS = [each for each in ALL if each["response"]["status"] >= 400]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    "options", ["", ";chunk=rand:7:200", ";nl=crlf;bom=1;chunk=event", ";gzip=1;chunk=line", ";te=close"]
)
async def test_recorded_answers_arrive_as_expected(asked: OpenAIResponsesProvider, options: str) -> None:
    for recording in ANSWERS if not options else SMALL:
        if ";nl=" in options and not recording["response"]["stream"]:
            continue
        stream = await play(asked, recording, options)
        assert stream.error is None, recording["id"]
        check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "name",
    ["resp-openai-three-turn-tool-session-0", "resp-openrouter-openai-responses-stream-against-openrouter-completes"],
)
async def test_a_recorded_answer_arrives_byte_by_byte(asked: OpenAIResponsesProvider, name: str) -> None:
    for recording in (each for each in ANSWERS if each["id"] == name):
        stream = await play(asked, recording, ";chunk=1")
        assert stream.error is None
        check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


# The vendor blames the request, and its text the key.
FAULT_KINDS = {"resp-xai-auth-rejection-classifies-with-contract": ProviderAuthFailed}


@pytest.mark.needs_shared
async def test_recorded_http_errors_arrive_as_their_class(asked: OpenAIResponsesProvider) -> None:
    for recording in FAULTS:
        answer = recording["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        expected = classify_response(answer["status"], answer["body_text"].encode(), headers)
        error = (await play(asked, recording)).error
        assert isinstance(error, ProviderError)
        assert type(error) is FAULT_KINDS.get(recording["id"], type(expected)), recording["id"]
        assert (error.status_code, error.error_code) == (answer["status"], expected.error_code)
        assert (error.request_id, error.retry_after_seconds) == (expected.request_id, expected.retry_after_seconds)


STREAMED = [each for each in ANSWERS if each["response"]["stream"]]
CUT_SHORT = [each for each in STREAMED if len(each["response"]["body_text"]) < 30_000]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(
    asked: OpenAIResponsesProvider, mode: str
) -> None:
    for recording in CUT_SHORT:
        expected = recording["expected"]
        for percent in (10, 40, 70, 97):
            body = recording["response"]["body_text"]
            if "data: [DONE]" in body[: len(body) * percent // 100]:
                continue
            stream = await play(asked, recording, f";cut={percent}%;cutmode={mode}")
            # A reset may overtake what was sent before it, the head included.
            allowed = (IncompleteStream, ProviderUnavailable) if mode == "rst" else (IncompleteStream,)
            assert isinstance(stream.error, allowed), (recording["id"], percent)
            assert stream.message.stop_reason == "error"
            assert (expected["text"] + expected["refusal"]).startswith(stream.message.text), (recording["id"], percent)


@pytest.mark.needs_shared
async def test_a_recorded_answer_that_falls_silent_is_a_timeout_that_keeps_its_text(replay: Replay) -> None:
    for recording in (each for each in STREAMED if each["id"] == "resp-openai-three-turn-tool-session-1"):
        async with provider(replay.base, timeouts=Timeouts(first_byte_seconds=0.2, idle_seconds=0.2)) as asked:
            for percent in (10, 50, 90):
                stream = await play(asked, recording, f";cut={percent}%;cutmode=hang;hang=2000")
                assert type(stream.error) is ProviderTimeout
                assert recording["expected"]["text"].startswith(stream.message.text)
            assert len(stream.message.text) > 5


STREAM_ERRORS = {
    "resp-openai-openai-error-1": RateLimited,
    "resp-openai-recon-midstream-error-event": ProviderUnavailable,
    "resp-openai-recon-truncated-no-terminal-event": IncompleteStream,
}


@pytest.mark.needs_shared
async def test_recorded_errors_after_a_200_are_typed_and_keep_what_came(asked: OpenAIResponsesProvider) -> None:
    broken = [each for each in ALL if each["response"]["status"] == 200 and each["expected"]["outcome"] != "ok"]
    assert {each["id"] for each in broken} == set(STREAM_ERRORS if ALL else ())
    for recording in broken:
        stream = await play(asked, recording)
        assert type(stream.error) is STREAM_ERRORS[recording["id"]]
        assert stream.message.text == recording["expected"]["text"]
        assert (stream.message.stop_reason, stream.message.tool_calls) == ("error", [])
