"""The Responses provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio.errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderUnavailable,
    RateLimited,
    ToolDefinitionError,
    UsageError,
)
from cubepi_anyio.providers.base import StreamOptions
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.types import ReasoningControl, ToolDefinition
from tests.providers.formats import RESPONSES
from tests.providers.loopback import HEAD, LAST_CHUNK, Server, chunk, serve, whole
from tests.recordings import Replay

from .reading import call, created, end, message, read, sample

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_environment")]

provider, ask = RESPONSES.provider, RESPONSES.ask


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
        (whole(RESPONSES.body[:-30], headers=EVENTS), IncompleteStream),
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


# --- keys, addresses, settings ---------------------------------------------------------------


async def test_without_a_key_the_error_names_the_variable() -> None:
    found, error = await ask(provider("http://127.0.0.1:9", api_key=None))
    assert type(error) is ProviderAuthFailed
    assert "OPENAI_API_KEY" in str(error)
    assert found.stop_reason == "error"


async def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Server(RESPONSES.answer)
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
    handle = Server(RESPONSES.answer)
    async with serve(handle) as server:
        base = f"{server.base}/openai/v1/?api-version=preview"
        async with provider(base, api_key="", extra_headers={"Api-Key": "k"}) as asked:
            assert (await ask(asked))[1] is None
    assert handle.head.startswith("POST /openai/v1/responses?api-version=preview ")
    assert "api-key: k\r\n" in handle.head
    assert "authorization" not in handle.head


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    handle = Server(RESPONSES.answer)
    extra = {"X-Title": "a", "X-Here": "1"}
    async with serve(handle) as server:
        async with provider(server.base, extra_headers=extra, extra_body={"top_p": 1, "store": True}) as asked:
            options = StreamOptions(extra_headers={"x-title": "b"}, extra_body={"top_p": 0.5})
            assert (await ask(asked, options=options))[1] is None
    assert "x-title: b\r\n" in handle.head
    assert "x-here: 1\r\n" in handle.head
    assert (handle.sent["top_p"], handle.sent["store"]) == (0.5, True)


async def test_settings_of_provider_and_call_reach_the_payload() -> None:
    handle = Server(RESPONSES.answer)
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


@pytest.mark.parametrize("name", ["reasoning_and_calls", "imitated", "search_and_citation"])
async def test_a_sample_of_ours_arrives_over_the_wire_as_it_is(name: str) -> None:
    body = sample(name)
    pieces = b"".join(chunk(body[at : at + 50]) for at in range(0, len(body), 50))
    async with serve(Server(HEAD + pieces + LAST_CHUNK)) as server, provider(server.base) as asked:
        found, error = await ask(asked)
    assert error is None
    assert found.content == read(body).message.content


# --- recordings ------------------------------------------------------------------------------

CUT_SHORT = [
    each for each in RESPONSES.answers if each["response"]["stream"] and len(each["response"]["body_text"]) < 30_000
]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(replay: Replay, mode: str) -> None:
    async with provider(replay.base) as asked:
        for recording in CUT_SHORT:
            body, expected = recording["response"]["body_text"], recording["expected"]
            for percent in (10, 40, 70, 97):
                if "data: [DONE]" in body[: len(body) * percent // 100]:
                    continue
                await RESPONSES.check_cut(asked, recording, percent, mode, expected["text"] + expected["refusal"])
