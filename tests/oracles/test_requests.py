"""What we send is what the vendors' SDKs send: their types know all of it, and the same path and headers carry it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cubepi_anyio.providers.base import StreamOptions
from cubepi_anyio.types import (
    AssistantMessage,
    Content,
    DocumentContent,
    ImageContent,
    Message,
    ReasoningControl,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDefinition,
    ToolResultMessage,
    UserMessage,
)
from tests.servers.vendors import KEY, VENDORS, Vendor

from .canned import Canned, Request
from .conftest import Oracle

pytestmark = pytest.mark.anyio

PICTURE = ImageContent(source="iVBORw0KGgo=", media_type="image/png")
DOCUMENT = DocumentContent(source="JVBERi0=", title="a.pdf")
LOOK = ToolDefinition(
    name="look",
    description="Look something up.",
    parameters={
        "type": "object",
        "properties": {"what": {"type": "string"}, "how_often": {"type": "integer", "default": 1}},
        "required": ["what"],
    },
)
NOW = ToolDefinition(name="now", description="Tell the time.", parameters={"type": "object", "properties": {}})


@dataclass
class Question:
    """What is asked."""

    messages: list[Message]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    model: dict[str, Any] = field(default_factory=dict[str, Any])


def said(*content: Content | str) -> UserMessage:
    return UserMessage(content=[TextContent(text=each) if isinstance(each, str) else each for each in content])


def a_tool_cycle(vendor: Vendor) -> Question:
    """Parallel calls after signed thinking, one result an error, one with a picture, and more to say."""
    thinking = ThinkingContent(thinking="Hm.", signature="c2ln")
    calls = [ToolCall(id=f"call_{number}", name="look", arguments={"what": "é"}) for number in range(3)]
    api = {"anthropic": "anthropic-messages", "openai-chat": "openai-chat", "openai-responses": "openai-responses"}
    answer = AssistantMessage(
        content=[*([thinking] if vendor.name == "anthropic" else []), TextContent(text="I look."), *calls],
        stop_reason="tool_use",
        api=api[vendor.name],
        provider_id=vendor.at("http://127.0.0.1:1").provider_id,
        model_id="a-model",
    )
    results: list[list[Content]] = [[TextContent(text="found")], [TextContent(text="failed")], [PICTURE]]
    answers = [
        ToolResultMessage(
            tool_call_id=call.id, tool_name=call.name, content=content, is_error=content[0] == results[1][0]
        )
        for call, content in zip(calls, results, strict=True)
    ]
    return Question([said("Look!"), answer, *answers, said("And now?")], {"tools": [LOOK, NOW]})


QUESTIONS: dict[str, Callable[[Vendor], Question]] = {
    "text": lambda _: Question([said("hi")]),
    "system prompt and turns": lambda _: Question(
        [said("hi"), AssistantMessage(content=[TextContent(text="Hello.")]), said("how", "are you?")],
        {"system_prompt": "Be brief."},
    ),
    "picture and document": lambda _: Question([said("see", PICTURE, DOCUMENT)]),
    "picture by its address": lambda _: Question([said(ImageContent(url="https://example.org/a.png"), "see")]),
    "tools": lambda _: Question([said("look")], {"tools": [LOOK, NOW]}),
    "some tool": lambda _: Question([said("look")], {"tools": [LOOK, NOW], "tool_choice": "required"}),
    "no tool": lambda _: Question([said("look")], {"tools": [LOOK, NOW], "tool_choice": "none"}),
    "one tool": lambda _: Question([said("look")], {"tools": [LOOK, NOW], "tool_choice": "now"}),
    "tool cycle": a_tool_cycle,
    "numbers": lambda vendor: Question(
        [said("hi")],
        # Anthropic's SDK of today has no word for a temperature; the API version we ask for takes it.
        {"options": StreamOptions(temperature=None if vendor.name == "anthropic" else 0.5, max_output_tokens=99)},
    ),
    "reasoning": lambda _: Question(
        [said("hi")],
        {"options": StreamOptions(reasoning=ReasoningControl(mode="on", effort="high", summary="auto"))},
        {"reasoning": True, "max_tokens": 32_000},
    ),
}


async def our_request(canned: Canned, vendor: Vendor, base_url: str, question: Question, **options: Any) -> Request:
    async with vendor.at(base_url, **options) as provider:
        model = provider.model("a-model", **question.model)
        # What came back is no answer; what matters is what went out.
        await model.generate(question.messages, **question.options)
    return canned.requests[-1]


def the_sdks_request(oracle: Oracle, canned: Canned, vendor: Vendor, base_url: str, body: dict[str, Any]) -> Request:
    """Have the SDK send ``body``; fails if its types do not know all of it."""
    assert oracle.sends(vendor.name, base_url, body) == body
    return canned.requests[-1]


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("vendor", VENDORS, ids=[vendor.name for vendor in VENDORS])
async def test_a_request_is_one_the_sdk_would_send(oracle: Oracle, canned: Canned, vendor: Vendor, name: str) -> None:
    base_url = canned.add(b"")
    ours = await our_request(canned, vendor, base_url, QUESTIONS[name](vendor))
    theirs = the_sdks_request(oracle, canned, vendor, base_url, ours.body)
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    assert ours.body["stream"] is True
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    if vendor.name == "anthropic":
        # The SDK of today asks for a newer version of the API and sends its key as a bearer's; ours is the older way.
        assert (ours.headers["anthropic-version"], ours.headers["x-api-key"]) == ("2023-06-01", KEY)
        assert theirs.headers["authorization"] == f"Bearer {KEY}"
    else:
        assert ours.headers["authorization"] == theirs.headers["authorization"]


@pytest.mark.parametrize("vendor", VENDORS, ids=[vendor.name for vendor in VENDORS])
async def test_the_judge_notices_a_field_that_the_vendor_does_not_know(
    oracle: Oracle, canned: Canned, vendor: Vendor
) -> None:
    base_url = canned.add(b"")
    ours = await our_request(canned, vendor, base_url, QUESTIONS["picture and document"](vendor))
    said = ours.body["input" if vendor.name == "openai-responses" else "messages"]
    said[-1]["content"][0]["colour"] = "blue"
    assert oracle.sends(vendor.name, base_url, ours.body) != ours.body


@pytest.mark.parametrize("strict", ["possible", "never"])
@pytest.mark.parametrize("vendor", VENDORS[1:], ids=[vendor.name for vendor in VENDORS[1:]])
async def test_strict_tools_are_known_to_the_sdk(oracle: Oracle, canned: Canned, vendor: Vendor, strict: str) -> None:
    base_url = canned.add(b"")
    question = QUESTIONS["tools"](vendor)
    ours = await our_request(canned, vendor, base_url, question, strict_tools=strict, parallel_tool_calls=False)
    theirs = the_sdks_request(oracle, canned, vendor, base_url, ours.body)
    assert ours.body == theirs.body
    assert ours.body["parallel_tool_calls"] is False
