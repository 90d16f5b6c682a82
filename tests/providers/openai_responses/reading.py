"""Reads a Responses answer without a network, and says whether a message is what a recording expects."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from cubepi_anyio.providers.openai_responses.request import API
from cubepi_anyio.providers.openai_responses.response import ResponsesReader
from cubepi_anyio.types import AssistantMessage, OpaqueContent, TextContent, ThinkingContent, ToolCall, Usage
from tests.providers.reading import Answer, openai_usage, read_with
from tests.recordings import Recording

SAMPLES = Path(__file__).resolve().parents[2] / "wire" / "openai_responses"


def sample(name: str) -> bytes:
    """One of our own samples of the wire format."""
    return (SAMPLES / f"{name}.sse").read_bytes()


def read(*chunks: bytes, whole: bool = False, strict: dict[str, Any] | None = None) -> Answer:
    """Read a streamed answer given in chunks, or with ``whole`` one that was not streamed."""
    return read_with(partial(ResponsesReader, strict_schemas=strict), API, chunks, whole=whole)


# --- writing answers -------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> bytes:
    """Write one event as the vendor does."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def created(**fields: Any) -> bytes:
    return event("response.created", response={"id": "resp_1", "status": "in_progress", "output": [], **fields})


def added(index: int, kind: str, **fields: Any) -> bytes:
    return event("response.output_item.added", output_index=index, item={"type": kind, **fields})


def done(index: int, kind: str, **fields: Any) -> bytes:
    return event("response.output_item.done", output_index=index, item={"type": kind, **fields})


def text(index: int, *deltas: str, content_index: int = 0) -> bytes:
    """Write deltas of a message's text."""
    place = {"output_index": index, "content_index": content_index}
    return b"".join(event("response.output_text.delta", delta=delta, **place) for delta in deltas)


def message(index: int, *deltas: str, **fields: Any) -> bytes:
    """Write a whole message with one text."""
    content = [{"type": "output_text", "text": "".join(deltas), "annotations": []}]
    told = {"id": f"msg_{index}", "role": "assistant", "status": "completed", "content": content, **fields}
    return (
        added(index, "message", id=f"msg_{index}", content=[]) + text(index, *deltas) + done(index, "message", **told)
    )


def reasoning(index: int, **fields: Any) -> bytes:
    """Write a whole reasoning item without deltas."""
    told = {"id": f"rs_{index}", "summary": [], **fields}
    return added(index, "reasoning", id=f"rs_{index}", summary=[]) + done(index, "reasoning", **told)


def call(index: int, arguments: str, *, name: str = "f", call_id: str | None = None, **fields: Any) -> bytes:
    """Write a whole call whose arguments come in one delta."""
    told = {"id": f"fc_{index}", "call_id": call_id or f"call_{index}", "name": name, **fields}
    delta = event("response.function_call_arguments.delta", output_index=index, delta=arguments)
    ended = done(index, "function_call", arguments=arguments, status="completed", **told)
    return added(index, "function_call", arguments="", **told) + delta + ended


def end(status: str = "completed", **fields: Any) -> bytes:
    """Write the terminal event."""
    return event(f"response.{status}", response={"id": "resp_1", "status": status, "output": [], **fields})


# --- comparing with recordings ---------------------------------------------------------------


def check_against(
    recording: Recording, message: AssistantMessage, usage: Usage | None, stop_reason: str | None
) -> None:
    """Assert that ``message`` is what the recording says it holds."""
    expected = {**recording["expected"], **DIFFERENT.get(recording["id"], {})}
    name = recording["id"]
    if name in ENCRYPTED_ANEW:
        expected["redacted"] = encrypted_when_done(recording)
    thinking = [block for block in message.content if isinstance(block, ThinkingContent)]
    refused = [block.text for block in message.content if isinstance(block, TextContent) and is_refusal(block)]
    assert message.text == (expected["text"] or "") + (expected["refusal"] or ""), name
    assert "".join(refused) == expected["refusal"], name
    assert "".join(block.thinking for block in thinking) == (expected["thinking"] or ""), name
    assert [block.signature for block in thinking if block.signature] == expected["redacted"], name
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        (call["id"], call["name"], call["arguments"] or {}) for call in expected["tool_calls"]
    ], name
    assert [call.invalid_arguments for call in message.tool_calls] == [
        call["arguments_raw"] if call["arguments"] is None else None for call in expected["tool_calls"]
    ], name
    assert [_wire_type(block) for block in message.content] == expected["blocks"], name
    assert message.response_id == expected.get("response_id", message.response_id), name
    if expected["outcome"] == "ok":
        reason = "tool_use" if message.tool_calls else "stop"
        reason = "length" if expected["stop_reason"] == "incomplete" else reason
        assert stop_reason == ("refusal" if expected["refusal"] else reason), name
    if expected["usage"]:
        assert usage == openai_usage(expected["usage"]), name


def is_refusal(block: TextContent) -> bool:
    return bool((block.vendor or {}).get("refusal"))


def _wire_type(block: Any) -> str:
    if isinstance(block, OpaqueContent):
        return block.kind
    if isinstance(block, ToolCall):
        return ((block.vendor or {}).get("item") or {}).get("type", "function_call")
    return {"thinking": "reasoning", "text": "message"}[block.type]


def encrypted_when_done(recording: Recording) -> list[str]:
    """The encrypted reasoning of the events that end items."""
    datas = (line[5:] for line in recording["response"]["body_text"].splitlines() if line.startswith("data:"))
    events = [json.loads(data) for data in datas if data.strip() != "[DONE]"]
    items = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    return [item["encrypted_content"] for item in items if item.get("encrypted_content")]


# The vendor encrypts the same reasoning anew for each event that tells it. We keep what the item's own last event says:
# the block ends there, and the recorded clients sent that one back.
ENCRYPTED_ANEW = (
    "resp-azure-rotocol-dialects-with-azure-gpt-5-nano-streams-responses",
    "resp-openai-reasoning-session-two-tool-calls-streaming-0",
    "resp-openai-responses-streaming-reasoning-budget-exhausted",
    "resp-openai-three-turn-tool-session-0",
    "resp-openai-three-turn-tool-session-2",
)
"""Recordings whose ``redacted`` is that of the terminal event."""

DIFFERENT: dict[str, dict[str, Any]] = {
    # The gateway gives everything another id in each event; ours is that of the first, where the message starts.
    "resp-openai-github-copilot-id-rotation-1": {"response_id": "capture-id-1"},
    # A call of a tool that takes free text is a call to us; the expectation lists calls of functions only.
    "resp-openai-openai-custom-tool-1": {
        "tool_calls": [
            {
                "id": "call_custom_sql_001",
                "name": "write_sql",
                "arguments": {"input": "SELECT * FROM users WHERE age > 25"},
                "arguments_raw": None,
            }
        ]
    },
}
"""Where we read a recording otherwise than its ``expected`` says, and why."""
