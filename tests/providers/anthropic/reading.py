"""Reads an Anthropic answer without a network, and says whether a message is what a recording expects."""

from __future__ import annotations

import json
from typing import Any

from cubepi_anyio.providers.anthropic.request import API
from cubepi_anyio.providers.anthropic.response import STOP_REASONS, AnthropicReader
from cubepi_anyio.types import AssistantMessage, OpaqueContent, ThinkingContent, Usage
from tests.providers.reading import Answer, read_with
from tests.recordings import Recording


def read(*chunks: bytes, whole: bool = False) -> Answer:
    """Read a streamed answer given in chunks, or with ``whole`` one that was not streamed."""
    return read_with(AnthropicReader, API, chunks, whole=whole)


def event(data: dict[str, Any]) -> bytes:
    """Write one event as the vendor does."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def start(**usage: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    return event({"type": "message_start", "message": message})


def block(index: int, content_block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """Write a whole block."""
    return b"".join((
        event({"type": "content_block_start", "index": index, "content_block": content_block}),
        *(event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        event({"type": "content_block_stop", "index": index}),
    ))  # fmt: skip


def end(stop_reason: str | None = "end_turn", **usage: Any) -> bytes:
    delta = {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}
    return event(delta) + event({"type": "message_stop"})


def text(index: int, *texts: str) -> bytes:
    """Write a whole text block."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": each} for each in texts))


def check_against(
    recording: Recording, message: AssistantMessage, usage: Usage | None, stop_reason: str | None
) -> None:
    """Assert that ``message`` is what the recording says it holds."""
    expected = recording["expected"]
    name = recording["id"]
    thinking = [content for content in message.content if isinstance(content, ThinkingContent)]
    assert message.text == (expected["text"] or ""), name
    assert "".join(content.thinking for content in thinking) == (expected["thinking"] or ""), name
    assert [content.signature for content in thinking if content.signature] == (expected["signature"] or []), name
    assert [content.redacted for content in thinking if content.redacted] == expected["redacted"], name
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        (call["id"], call["name"], call["arguments"]) for call in expected["tool_calls"]
    ], name
    assert [_wire_type(content) for content in message.content] == expected["blocks"], name
    assert message.response_id == expected.get("response_id", message.response_id), name
    assert stop_reason == STOP_REASONS.get(expected["stop_reason"], expected["stop_reason"]), name
    counted = expected["usage"]
    if counted:
        assert usage == Usage(
            input_tokens=counted["input"] or 0,
            output_tokens=counted["output"] or 0,
            cache_read_tokens=counted["cache_read"] or 0,
            cache_write_tokens=counted["cache_write"] or 0,
            reasoning_tokens=counted["reasoning"] or 0,
        ), name


def _wire_type(content: Any) -> str:
    if isinstance(content, OpaqueContent):
        return content.kind
    if isinstance(content, ThinkingContent) and content.redacted is not None:
        return "redacted_thinking"
    return {"tool_call": "tool_use"}.get(content.type, content.type)
