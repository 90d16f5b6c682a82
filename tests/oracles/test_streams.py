"""What the vendors' SDKs read in an answer is what we read in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubepi_anyio.types import AssistantMessage, TextContent, ThinkingContent, UserMessage
from tests.providers.anthropic.reading import block, end, start, text
from tests.recordings import Recording, body_of, recording_params
from tests.servers.vendors import VENDORS

from .canned import Canned
from .conftest import Oracle

pytestmark = pytest.mark.anyio

WIRE = Path(__file__).resolve().parents[1] / "wire"
MAKE = {vendor.name: vendor for vendor in VENDORS}
STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "refusal": "refusal",
    "stop": "stop",
    "tool_calls": "tool_use",
    "length": "length",
    "incomplete": "length",
}
"""The vendors' words and ours. ``completed`` of the Responses API says too little to compare."""


def call(index: int, id: str, name: str, *pieces: str) -> bytes:
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


THINKING = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Let me "},
    {"type": "thinking_delta", "thinking": "think."},
    {"type": "signature_delta", "signature": "c2ln"},
)
ANTHROPIC = {
    "text": start(input_tokens=3, output_tokens=1) + text(0, "Hel", "lo ", "\U0001f600") + end(output_tokens=5),
    "cached": start(input_tokens=3, cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1)
    + text(0, "Hello")
    + end("stop_sequence", output_tokens=5),
    "thinking_and_calls": start(input_tokens=3, output_tokens=1)
    + THINKING
    + text(1, "I look.")
    + call(2, "toolu_1", "look", '{"a": ', '[1, "x"', "]}")
    + call(3, "toolu_2", "look", "")
    + end("tool_use", output_tokens=50),
    "cut": start(input_tokens=3, output_tokens=1) + text(0, "Hel") + end("max_tokens", output_tokens=9),
    "refused": start(input_tokens=3, output_tokens=1) + text(0, "I ") + end("refusal", output_tokens=2),
}
SAMPLES = {
    "openai-chat": ["parallel_calls"],
    "openai-responses": ["cut_by_the_limit", "reasoning_and_calls", "refusal", "search_and_citation"],
}
"""The samples that stand for what the vendor itself sends; the others imitate servers that the SDKs misread."""


def samples() -> list[Any]:
    ours = [pytest.param("anthropic", wire, id=f"anthropic-{name}") for name, wire in ANTHROPIC.items()]
    for vendor, names in SAMPLES.items():
        folder = WIRE / vendor.replace("-", "_")
        ours += [pytest.param(vendor, (folder / f"{name}.sse").read_bytes(), id=f"{vendor}-{name}") for name in names]
    return ours


async def our_message(vendor: str, base_url: str) -> AssistantMessage:
    async with MAKE[vendor].at(base_url) as provider:
        return await provider.model("m").generate([UserMessage(content=[TextContent(text="hi")])])


def our_reading(message: AssistantMessage, reading: dict[str, Any]) -> dict[str, Any]:
    """Our message in the form of the SDK's reading, as far as the SDK reads it."""
    usage = message.usage
    ours: dict[str, Any] = {
        "text": message.text,
        "thinking": "".join(each.thinking for each in message.content if isinstance(each, ThinkingContent)),
        "calls": [
            [each.id, each.name, each.arguments] for each in message.tool_calls if each.invalid_arguments is None
        ],
        "stop": message.stop_reason,
        "tokens": usage
        and {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
        },
        "id": message.response_id,
    }
    # What was not reported are zeros to us.
    named = reading["tokens"] or dict.fromkeys(ours["tokens"] or (), 0)
    reading["tokens"] = named or None
    ours["tokens"] = {name: ours["tokens"][name] for name in named} if named else ours["tokens"]
    return {name: ours[name] for name in reading}


async def compare(oracle: Oracle, canned: Canned, vendor: str, wire: bytes) -> None:
    base_url = canned.add(wire)
    reading = oracle.reading(vendor, base_url)
    ours = our_reading(await our_message(vendor, base_url), reading)
    if (stop := STOP_REASONS.get(reading["stop"])) is not None:
        reading["stop"] = stop
    else:
        del reading["stop"], ours["stop"]
    assert ours == reading


@pytest.mark.parametrize(("vendor", "wire"), samples())
async def test_a_sample_is_read_as_the_sdk_reads_it(oracle: Oracle, canned: Canned, vendor: str, wire: bytes) -> None:
    await compare(oracle, canned, vendor, wire)


def recorded() -> list[Any]:
    """All recorded streams that ended well and that the SDK, by the recording's own notes, reads rightly."""
    apis = {"anthropic-messages": "anthropic", "openai-chat": "openai-chat", "openai-responses": "openai-responses"}
    found: list[Any] = []
    for api, vendor in apis.items():
        for parameter in recording_params(api, streamed=True, status=200):
            recording = parameter.values[0]
            if recording is None or _is_agreed(recording):
                found.append(pytest.param(vendor, recording, id=f"{vendor}-{parameter.id}", marks=parameter.marks))
    return found


def _is_agreed(recording: Recording) -> bool:
    expected = recording["expected"]
    return expected["outcome"] == "ok" and expected["sdk_check"] == "agree" and not expected.get("other_choices")


@pytest.mark.needs_shared
@pytest.mark.parametrize(("vendor", "recording"), recorded())
async def test_a_recording_is_read_as_the_sdk_reads_it(
    oracle: Oracle, canned: Canned, vendor: str, recording: Recording
) -> None:
    await compare(oracle, canned, vendor, body_of(recording))
