"""OpenAI's provider: one call from the payload to the message, over real sockets."""

from __future__ import annotations

import pytest

from cubepi_anyio.errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderUnavailable,
    ToolDefinitionError,
    UsageError,
)
from cubepi_anyio.providers.base import StreamOptions
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_chat import PRESETS, Preset, Quirks
from cubepi_anyio.types import ToolDefinition
from tests.providers.asking import ASK
from tests.providers.formats import CHAT
from tests.providers.loopback import HEAD, LAST_CHUNK, Server, chunk, serve, whole
from tests.recordings import Replay

from .reading import calls, end, entry, text

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_environment")]

provider, ask = CHAT.provider, CHAT.ask


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
        (whole(CHAT.body[:30], headers=EVENTS), IncompleteStream),
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
    handle = Server(CHAT.answer)
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
    handle = Server(CHAT.answer)
    async with serve(handle) as server, OpenAIProvider(preset="ollama", base_url=server.base) as asked:
        message, error = await ask(asked)
    assert (message.text, message.provider_id, error) == ("Hello", "ollama", None)
    assert "authorization" not in handle.head


async def test_azure_has_the_deployment_in_its_address_and_a_key_of_its_own() -> None:
    handle = Server(CHAT.answer)
    async with serve(handle) as server, provider(server.base, preset="azure", api_version="2024-12-01") as asked:
        stream = await asked.model("my gpt/4").stream(ASK)
        assert (await stream.result()).text == "Hello"
    assert handle.path == "/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2024-12-01"
    assert "api-key: sk-secret\r\n" in handle.head
    assert "authorization" not in handle.head
    with pytest.raises(UsageError, match="AZURE_OPENAI_ENDPOINT"):
        OpenAIProvider(preset="azure", api_key="k")


async def test_a_query_of_the_base_url_stays_at_the_end() -> None:
    handle = Server(CHAT.answer)
    async with serve(handle) as server, provider(f"{server.base}/models/?api-version=1") as asked:
        assert (await ask(asked))[1] is None
    assert handle.path == "/models/chat/completions?api-version=1"


async def test_headers_and_body_can_be_added_and_the_nearer_one_wins() -> None:
    handle = Server(CHAT.answer)
    extra = {"X-Title": "a", "X-Here": "1", "Authorization": "Bearer token"}
    async with serve(handle) as server:
        async with provider(server.base, api_key="", extra_headers=extra, extra_body={"seed": 1, "n": 1}) as asked:
            options = StreamOptions(extra_headers={"x-title": "b"}, extra_body={"seed": 2, "max_tokens": 3})
            assert (await ask(asked, options=options))[1] is None
    assert "x-title: b\r\n" in handle.head
    assert "x-here: 1\r\n" in handle.head
    assert "authorization: Bearer token\r\n" in handle.head
    assert (handle.sent["seed"], handle.sent["n"], handle.sent["max_tokens"]) == (2, 1, 3)


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
    handle = Server(CHAT.answer)
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
        HEAD + chunk(calls(entry('{"x": null}', name="a", id="1", index=0)) + end("tool_calls")) + LAST_CHUNK
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


# --- recordings ------------------------------------------------------------------------------

CUT_SHORT = [each for each in CHAT.answers if each["response"]["stream"] and len(each["response"]["body_text"]) < 6000][
    ::3
]


@pytest.mark.needs_shared
@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["eof", "rst", "clean"])
async def test_a_recorded_answer_that_is_cut_is_an_error_that_keeps_its_text(replay: Replay, mode: str) -> None:
    async with provider(replay.base) as asked:
        for recording in CUT_SHORT:
            body = recording["response"]["body_text"]
            for percent in (10, 40, 70, 97):
                if mode == "clean" and '"finish_reason":"' in body[: len(body) * percent // 100]:
                    continue  # it is whole, as far as it goes: only [DONE] or the usage is missing
                await CHAT.check_cut(asked, recording, percent, mode, recording["expected"]["text"])
