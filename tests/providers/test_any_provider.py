"""One call from the payload to the message, over real sockets: what holds for every wire format."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator
from functools import partial
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
    RateLimited,
)
from cubepi_anyio.providers.http.classify import classify_response
from cubepi_anyio.providers.http.client import Timeouts
from cubepi_anyio.types import ToolDefinition
from tests.recordings import Recording, Replay

from .asking import ASK
from .formats import ANTHROPIC, CHAT, RESPONSES, AnyProvider, WireFormat
from .loopback import Server, answer_each, hold, serve, whole

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_environment")]

IDS = ("anthropic", "chat", "responses")
each_format = pytest.mark.parametrize("wire", [ANTHROPIC, CHAT, RESPONSES], ids=IDS)


@pytest.mark.parametrize(
    ("wire", "base", "path", "headers", "sent", "id_header", "ids"),
    [
        (
            ANTHROPIC,
            "/gateway/",
            "/gateway/v1/messages",
            ["x-api-key: sk-secret", "anthropic-version: 2023-06-01", "content-type: application/json"],
            {"stream": True},
            b"request-id",
            ("anthropic-messages", "msg_1", "req_9"),
        ),
        (
            CHAT,
            "/v1/",
            "/v1/chat/completions",
            ["authorization: Bearer sk-secret"],
            {"stream": True, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
            b"x-request-id",
            ("openai-chat", "chatcmpl-1", "req_9"),
        ),
        (
            RESPONSES,
            "/v1/",
            "/v1/responses",
            ["authorization: Bearer sk-secret"],
            {"stream": True, "store": False, "instructions": "s"},
            b"x-request-id",
            ("openai-responses", "resp_1", "req_9"),
        ),
    ],
    ids=IDS,
)
async def test_a_call_streams_and_gives_its_message(
    wire: WireFormat,
    base: str,
    path: str,
    headers: list[str],
    sent: dict[str, Any],
    id_header: bytes,
    ids: tuple[str, str, str],
) -> None:
    handle = Server(wire.answer.replace(b"\r\n\r\n", b"\r\n" + id_header + b": req_9\r\n\r\n", 1))
    async with serve(handle) as server, wire.provider(server.base + base) as asked:
        model = asked.model(wire.model.id)
        stream = await model.stream(ASK, system_prompt="s", tools=[ToolDefinition(name="t")])
        async with stream:
            types = [each.type async for each in stream]
            message = await stream.result()
    assert types == ["start", "text_start", "text_delta", "text_end", "done"]
    assert (message.text, message.stop_reason) == ("Hello", "stop")
    assert (message.provider_id, message.model_id) == (wire.model.provider_id, wire.model.id)
    assert (message.api, message.response_id, message.request_id) == ids
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 5)
    assert handle.head.startswith(f"POST {path} HTTP/1.1\r\n")
    assert [each for each in headers if each not in handle.head] == []
    assert "openai-organization" not in handle.head
    assert {name: handle.sent[name] for name in sent} == sent
    assert [_name_of(tool) for tool in handle.sent["tools"]] == ["t"]


def _name_of(tool: dict[str, Any]) -> str:
    """The name of a tool as it was sent; Chat Completions has it one level deeper."""
    return tool.get("function", tool)["name"]


@pytest.mark.parametrize("wire", [CHAT, RESPONSES], ids=IDS[1:])
async def test_calls_share_a_connection_and_the_end_does_not_wait_for_the_end_of_the_body(wire: WireFormat) -> None:
    async with serve(Server(wire.answer)) as server, wire.provider(server.base) as asked:
        for _ in range(3):
            assert (await wire.ask(asked))[1] is None
        assert len(server.connections) == 1

    async with serve(partial(hold, begun=wire.body)) as server, wire.provider(server.base) as asked:
        message, error = await wire.ask(asked)
        assert (message.text, error) == ("Hello", None)
        await server.connections[0].closed.wait()


ANTHROPIC_WHOLE = {
    "id": "msg_1",
    "type": "message",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "max_tokens",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
CHAT_WHOLE = {"id": "c", "choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "length"}]}
RESPONSES_WHOLE = {
    "id": "r",
    "status": "incomplete",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}],
}


@pytest.mark.parametrize(
    ("wire", "body", "content_type"),
    [
        (ANTHROPIC, ANTHROPIC_WHOLE, "application/json; charset=utf-8"),
        (CHAT, CHAT_WHOLE, "application/json"),
        (RESPONSES, RESPONSES_WHOLE, "application/json"),
    ],
    ids=IDS,
)
async def test_an_answer_that_was_not_streamed_is_read_too(
    wire: WireFormat, body: dict[str, Any], content_type: str
) -> None:
    answer = whole(json.dumps(body).encode(), headers=f"content-type: {content_type}\r\n")
    async with serve(Server(answer)) as server, wire.provider(server.base) as asked:
        message, error = await wire.ask(asked)
    assert (message.text, message.stop_reason, error) == ("Hello", "length", None)


@each_format
async def test_leaving_the_stream_closes_the_connection_before_the_block_is_left(wire: WireFormat) -> None:
    async with serve(partial(hold, begun=wire.begun)) as server, wire.provider(server.base) as asked:
        stream = await asked.model(wire.model.id).stream(ASK)
        async with stream:
            async for each in stream:
                if each.type == "text_delta":
                    break
        assert (stream.message.text, (await stream.result()).stop_reason) == ("Hello", "aborted")
        await server.connections[0].closed.wait()


OPENAI_WRONG_KEY = {"error": {"code": "invalid_api_key", "message": "Incorrect API key provided: sk-secret."}}
OPENAI_SAYS = "Incorrect API key provided: ***.; check OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("wire", "body", "says"),
    [
        (
            ANTHROPIC,
            {"type": "error", "error": {"type": "authentication_error", "message": "bad key sk-secret"}},
            "bad key ***; check ANTHROPIC_API_KEY",
        ),
        (CHAT, OPENAI_WRONG_KEY, OPENAI_SAYS),
        (RESPONSES, OPENAI_WRONG_KEY, OPENAI_SAYS),
    ],
    ids=IDS,
)
async def test_a_wrong_key_is_an_error_that_shows_neither_key(
    wire: WireFormat, body: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = whole(json.dumps(body).encode(), status="401 Unauthorized")
    async with serve(Server(answer)) as server, wire.provider(server.base) as asked:
        message, error = await wire.ask(asked)
        shown = f"{error!r} {error} {message!r} {asked!r} {vars(asked)} {caplog.text}"
    assert type(error) is ProviderAuthFailed
    assert error.message == says
    assert "sk-secret" not in shown


@pytest.mark.parametrize(
    ("wire", "attribute", "path"),
    [(ANTHROPIC, "_url", "/v1/messages"), (CHAT, "_base_url", ""), (RESPONSES, "_url", "/responses")],
    ids=IDS,
)
def test_one_provider_serves_several_event_loops_one_after_the_other(
    wire: WireFormat, attribute: str, path: str
) -> None:
    holder: list[AnyProvider] = []

    async def use() -> str:
        async with serve(lambda connection: answer_each(connection, wire.answer)) as server:
            holder[:] = holder or [wire.provider(server.base)]
            assert hasattr(holder[0], attribute)
            setattr(holder[0], attribute, server.base + path)  # the port differs from run to run
            async with holder[0] as asked:
                return (await wire.ask(asked))[0].text

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, backend=backend) == "Hello"


# --- recordings ------------------------------------------------------------------------------


@pytest.fixture
async def asked(wire: WireFormat, replay: Replay) -> AsyncIterator[AnyProvider]:
    async with wire.provider(replay.base) as each:
        yield each


def answer_of(wire: WireFormat, name: str) -> Recording:
    return next(each for each in wire.answers if each["id"] == name)


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    "options", ["", ";chunk=rand:7:200", ";nl=crlf;bom=1;chunk=event", ";gzip=1;chunk=line", ";te=close"]
)
@pytest.mark.parametrize(("wire", "below"), [(ANTHROPIC, math.inf), (CHAT, 30_000), (RESPONSES, 30_000)], ids=IDS)
async def test_recorded_answers_arrive_as_expected(
    wire: WireFormat, asked: AnyProvider, below: float, options: str
) -> None:
    """Answers that are not ``below`` this size are sent as they are only, to save time."""
    for recording in wire.answers:
        if options and len(recording["response"]["body_text"]) >= below:
            continue
        if ";nl=" in options and not recording["response"]["stream"]:
            continue
        stream = await wire.play(asked, recording, options)
        assert stream.error is None, recording["id"]
        wire.check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


@pytest.mark.long
@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("wire", "name"),
    [
        (ANTHROPIC, "anth-anthropic-redacted-thinking-streaming"),
        (CHAT, "chat-alibaba-alibaba-tool-call"),
        (CHAT, "chat-mistral-parallel-tool-calls-single-turn-streaming-0"),
        (RESPONSES, "resp-openai-three-turn-tool-session-0"),
        (RESPONSES, "resp-openrouter-openai-responses-stream-against-openrouter-completes"),
    ],
)
async def test_a_recorded_answer_arrives_byte_by_byte(wire: WireFormat, asked: AnyProvider, name: str) -> None:
    recording = answer_of(wire, name)
    stream = await wire.play(asked, recording, ";chunk=1")
    assert stream.error is None
    wire.check_against(recording, stream.message, stream.message.usage, stream.message.stop_reason)


# The vendor blames the request, and its text the key.
FAULT_KINDS = {"resp-xai-auth-rejection-classifies-with-contract": ProviderAuthFailed}


@pytest.mark.needs_shared
@each_format
async def test_recorded_http_errors_arrive_as_their_class(wire: WireFormat, asked: AnyProvider) -> None:
    for recording in (each for each in wire.recordings if each["response"]["status"] >= 400):
        answer = recording["response"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        expected = classify_response(answer["status"], answer["body_text"].encode(), headers)
        error = (await wire.play(asked, recording)).error
        assert isinstance(error, ProviderError)
        assert type(error) is FAULT_KINDS.get(recording["id"], type(expected)), recording["id"]
        assert (error.status_code, error.error_code) == (answer["status"], expected.error_code)
        assert (error.request_id, error.retry_after_seconds) == (expected.request_id, expected.retry_after_seconds)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("wire", "name", "timeouts", "percents", "longer_than"),
    [
        (ANTHROPIC, "anth-anthropic-test-image-prompt", Timeouts(idle_seconds=0.1), (80,), 10),
        (CHAT, "chat-together-test-chat-stream", Timeouts(idle_seconds=0.1), (80,), 5),
        (
            RESPONSES,
            "resp-openai-three-turn-tool-session-1",
            Timeouts(first_byte_seconds=0.2, idle_seconds=0.2),
            (10, 50, 90),
            5,
        ),
    ],
    ids=IDS,
)
async def test_a_recorded_answer_that_falls_silent_is_a_timeout_that_keeps_its_text(
    replay: Replay, wire: WireFormat, name: str, timeouts: Timeouts, percents: tuple[int, ...], longer_than: int
) -> None:
    recording, kept = answer_of(wire, name), ""
    async with wire.provider(replay.base, timeouts=timeouts) as asked:
        for percent in percents:
            stream = await wire.play(asked, recording, f";cut={percent}%;cutmode=hang;hang=2000")
            kept = stream.message.text
            assert type(stream.error) is ProviderTimeout
            assert recording["expected"]["text"].startswith(kept)
    assert len(kept) > longer_than


CHAT_ERRORS = {
    "chat-groq-test-tool-use-failed-error-streaming": ProviderBadRequest,
    "chat-openai-recon-stream-first-chunk-error": ProviderUnavailable,
    "chat-openai-recon-truncated-no-done": IncompleteStream,
    "chat-openrouter-test-openrouter-stream-error": ContextLengthExceeded,
    "chat-azure-test-prompt-content-filtering": ContentFiltered,
    "chat-non-llm-endpoint-test-text-response": MalformedResponse,
}
RESPONSES_ERRORS = {
    "resp-openai-openai-error-1": RateLimited,
    "resp-openai-recon-midstream-error-event": ProviderUnavailable,
    "resp-openai-recon-truncated-no-terminal-event": IncompleteStream,
}


@pytest.mark.needs_shared
@pytest.mark.parametrize(("wire", "kinds"), [(CHAT, CHAT_ERRORS), (RESPONSES, RESPONSES_ERRORS)], ids=IDS[1:])
async def test_recorded_errors_after_a_200_are_typed_and_keep_what_came(
    wire: WireFormat, asked: AnyProvider, kinds: dict[str, type[ProviderError]]
) -> None:
    succeeded = [each for each in wire.recordings if each["response"]["status"] == 200]
    broken = [each for each in succeeded if each["expected"]["outcome"] != "ok"]
    assert {each["id"] for each in broken} == set(kinds)
    for recording in broken:
        stream = await wire.play(asked, recording)
        assert type(stream.error) is kinds[recording["id"]]
        assert stream.message.text == recording["expected"]["text"]
        assert (stream.message.stop_reason, stream.message.tool_calls) == ("error", [])
