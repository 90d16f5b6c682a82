"""Settings on their way to the vendor: each format says what it has a field for and refuses the rest by name."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import ModelSettings, StreamOptions, ToolDefinition, UnsupportedSetting, UsageError
from cubepi_anyio.providers.anthropic import request as anthropic
from cubepi_anyio.providers.base import BaseProvider, MessageStream
from cubepi_anyio.providers.openai_chat import PRESETS
from cubepi_anyio.providers.openai_chat import request as chat
from cubepi_anyio.providers.openai_responses import request as responses
from cubepi_anyio.types import Model
from cubepi_anyio.types.model import ResponseSchema

from .asking import ASK, ask, faux
from .formats import ANTHROPIC, CHAT, RESPONSES, WireFormat
from .loopback import Server, serve
from .payloads import asking

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_environment")]

IDS = ("anthropic", "chat", "responses")
each_format = pytest.mark.parametrize("wire", [ANTHROPIC, CHAT, RESPONSES], ids=IDS)
BUILD = {"anthropic": anthropic.build_payload, "chat": chat.build_payload, "responses": responses.build_payload}
MODEL = Model(id="m", provider="openai")
TOOL = ToolDefinition(name="f")

EVERYTHING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "stop": ("END", "STOP"),
    "seed": 7,
    "max_output_tokens": 99,
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "cache_key": "thread-1",
    "verbosity": "low",
    "user": "u-1",
}
SAID: dict[str, dict[str, dict[str, Any]]] = {
    "anthropic": {
        "temperature": {"temperature": 0.5},
        "top_p": {"top_p": 0.9},
        "top_k": {"top_k": 40},
        "stop": {"stop_sequences": ["END", "STOP"]},
        "max_output_tokens": {"max_tokens": 99},
        "parallel_tool_calls": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        "service_tier": {"service_tier": "flex"},
        "user": {"metadata": {"user_id": "u-1"}},
    },
    "chat": {
        "temperature": {"temperature": 0.5},
        "top_p": {"top_p": 0.9},
        "stop": {"stop": ["END", "STOP"]},
        "seed": {"seed": 7},
        "max_output_tokens": {"max_completion_tokens": 99},
        "parallel_tool_calls": {"parallel_tool_calls": False},
        "service_tier": {"service_tier": "flex"},
        "cache_key": {"prompt_cache_key": "thread-1"},
        "verbosity": {"verbosity": "low"},
        "user": {"user": "u-1"},
    },
    "responses": {
        "temperature": {"temperature": 0.5},
        "top_p": {"top_p": 0.9},
        "max_output_tokens": {"max_output_tokens": 99},
        "parallel_tool_calls": {"parallel_tool_calls": False},
        "service_tier": {"service_tier": "flex"},
        "cache_key": {"prompt_cache_key": "thread-1"},
        "verbosity": {"text": {"verbosity": "low"}},
        "user": {"user": "u-1"},
    },
}


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("format", IDS)
def test_a_setting_is_said_or_refused_by_name(format: str, name: str) -> None:
    build, settings = asking(BUILD[format]), ModelSettings(**{name: EVERYTHING[name]})
    plain = build(MODEL, ASK, tools=[TOOL])
    if name in SAID[format]:
        assert build(MODEL, ASK, tools=[TOOL], settings=settings) == plain | SAID[format][name]
    else:
        with pytest.raises(UnsupportedSetting, match=f"no field for the setting '{name}'; leave it out") as caught:
            build(MODEL, ASK, tools=[TOOL], settings=settings)
        assert caught.value.setting == name


def test_how_many_tools_are_called_at_once_is_said_only_where_there_are_tools() -> None:
    settings = ModelSettings(parallel_tool_calls=False)
    for name in IDS:
        payload = asking(BUILD[name])(MODEL, ASK, settings=settings)
        assert not payload.keys() & {"parallel_tool_calls", "tool_choice"}


@pytest.mark.parametrize(
    ("choice", "parallel", "wire"),
    [
        ("auto", True, {"type": "auto", "disable_parallel_tool_use": False}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("f", False, {"type": "tool", "name": "f", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
    ],
)
def test_anthropic_hears_of_parallel_calls_with_the_choice_of_a_tool(choice: str, parallel: bool, wire: Any) -> None:
    settings = ModelSettings(parallel_tool_calls=parallel)
    payload = asking(anthropic.build_payload)(MODEL, ASK, tools=[TOOL], tool_choice=choice, settings=settings)
    assert payload["tool_choice"] == wire


def test_a_setting_goes_before_what_the_provider_was_made_with() -> None:
    for build in (asking(chat.build_payload), asking(responses.build_payload)):
        said = ModelSettings(parallel_tool_calls=False)
        assert build(MODEL, ASK, tools=[TOOL], parallel_tool_calls=True)["parallel_tool_calls"] is True
        assert build(MODEL, ASK, tools=[TOOL], parallel_tool_calls=True, settings=said)["parallel_tool_calls"] is False


def test_verbosity_and_the_schema_of_an_answer_stand_beside_each_other() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    wanted = {"name": "answer", "json_schema": schema}
    payload = asking(responses.build_payload)(
        MODEL, ASK, settings=ModelSettings(verbosity="low"), response_schema=ResponseSchema.model_validate(wanted)
    )
    assert payload["text"].keys() == {"verbosity", "format"}


@pytest.mark.parametrize(("preset", "field"), [("openrouter", "top_k"), ("vllm", "top_k"), ("mistral", None)])
def test_a_preset_says_which_settings_its_vendor_has(preset: str, field: str | None) -> None:
    build, quirks = asking(chat.build_payload), PRESETS[preset].quirks
    if field is None:
        assert build(MODEL, ASK, quirks=quirks, settings=ModelSettings(seed=7))["random_seed"] == 7
        with pytest.raises(UnsupportedSetting, match="'user'"):
            build(MODEL, ASK, quirks=quirks, settings=ModelSettings(user="u"))
    else:
        assert build(MODEL, ASK, quirks=quirks, settings=ModelSettings(top_k=3))[field] == 3


# --- over the wire ---------------------------------------------------------------------------


@each_format
async def test_settings_are_laid_over_each_other_by_model_and_by_call(wire: WireFormat) -> None:
    handle = Server(wire.answer)
    of_model = ModelSettings(
        temperature=0.1, top_p=0.8, extra_body={"x": {"a": 1, "b": 1}}, extra_headers={"x-a": "model"}
    )
    of_call = ModelSettings(top_p=0.7, extra_body={"x": {"b": 2}}, extra_headers={"X-A": "call"})
    async with serve(handle) as server, wire.provider(server.base, extra_body={"x": {"c": 3}, "y": 1}) as asked:
        model = asked.model("m", temperature=0.9, settings=of_model)
        message = await model.generate(ASK, options=StreamOptions(settings=of_call))
    assert message.text == "Hello"
    assert (handle.sent["temperature"], handle.sent["top_p"]) == (0.1, 0.7)
    assert (handle.sent["x"], handle.sent["y"]) == ({"a": 1, "b": 2, "c": 3}, 1)
    assert "x-a: call\r\n" in handle.head
    assert "model" not in handle.head


@each_format
async def test_a_limit_that_equals_the_default_is_sent_when_it_was_given(wire: WireFormat) -> None:
    handle = Server(wire.answer)
    fields = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
    async with serve(handle) as server, wire.provider(server.base) as asked:
        await asked.model("m", max_tokens=8192).generate(ASK)
        assert [handle.sent[name] for name in fields & handle.sent.keys()] == [8192]
        await asked.model("m").generate(ASK, options=StreamOptions(max_output_tokens=8192))
        assert [handle.sent[name] for name in fields & handle.sent.keys()] == [8192]


@each_format
async def test_a_vendors_own_tools_stand_beside_those_of_the_agent(wire: WireFormat) -> None:
    handle = Server(wire.answer)
    search = {"type": "web_search"}
    options = StreamOptions(extra_body={"tools": [search]})
    async with serve(handle) as server, wire.provider(server.base) as asked:
        await asked.model("m", settings=ModelSettings(extra_body={"tools": [search]})).generate(
            ASK, tools=[TOOL], options=options
        )
        names = [tool.get("name") or tool.get("function", {}).get("name") for tool in handle.sent["tools"]]
        assert names == ["f", None]
        assert handle.sent["tools"][-1] == search
        await asked.model("m").generate(ASK, options=options)
        assert handle.sent["tools"] == [search]


@each_format
@pytest.mark.parametrize("value", [None, {"0": "f"}, "none"])
async def test_extra_fields_cannot_take_the_agents_tools_away(wire: WireFormat, value: Any) -> None:
    handle = Server(wire.answer)
    async with serve(handle) as server, wire.provider(server.base) as asked:
        heard = await ask(asked.model("m"), tools=[TOOL], options=StreamOptions(extra_body={"tools": value}))
    assert type(heard.error) is UsageError
    assert "extra_body would replace the agent's tools" in str(heard.error)
    assert handle.requests == []


@each_format
async def test_a_setting_that_cannot_be_said_ends_the_call_before_anything_is_sent(wire: WireFormat) -> None:
    handle = Server(wire.answer)
    refused = ModelSettings(seed=1) if wire is not CHAT else ModelSettings(top_k=1)
    async with serve(handle) as server, wire.provider(server.base) as asked:
        heard = await ask(asked.model("m", settings=refused))
    assert isinstance(heard.error, UnsupportedSetting)
    assert wire.api in str(heard.error)
    assert handle.requests == []


async def test_the_faux_model_takes_every_setting_and_keeps_what_it_was_given() -> None:
    provider, model = faux("Yes.")
    settings = ModelSettings(**EVERYTHING)
    assert (await ask(model, options=StreamOptions(settings=settings))).message.text == "Yes."
    assert provider.calls[0].options.settings == settings


async def test_a_custom_provider_finds_the_settings_of_the_model_in_its_options() -> None:
    seen: list[StreamOptions] = []

    class Custom(BaseProvider):
        async def stream(self, model: Model, messages: Any, **given: Any) -> MessageStream:
            seen.append(given["options"])
            return await faux("Yes.")[0].stream(model, messages)

    model = Custom().model("m", settings=ModelSettings(seed=1, top_p=0.5))
    await model.generate(ASK, options=StreamOptions(settings=ModelSettings(top_p=0.6)))
    assert seen[0].settings == ModelSettings(seed=1, top_p=0.6)
