"""Reads a Chat Completions answer without a network, and says whether a message is what a recording expects."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from cubepi_anyio.providers.openai_chat.presets import Quirks
from cubepi_anyio.providers.openai_chat.request import API
from cubepi_anyio.providers.openai_chat.response import STOP_REASONS, ChatReader
from cubepi_anyio.types import AssistantMessage, TextContent, ThinkingContent, Usage
from tests.providers.reading import Answer, openai_usage, read_with
from tests.recordings import Recording


def read(
    *chunks: bytes, whole: bool = False, quirks: Quirks | None = None, strict: dict[str, Any] | None = None
) -> Answer:
    """Read a streamed answer given in chunks, or with ``whole`` one that was not streamed."""
    return read_with(partial(ChatReader, quirks=quirks, strict_schemas=strict), API, chunks, whole=whole)


DONE = b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """Write one event as the vendor does."""
    return f"data: {json.dumps(data)}\n\n".encode()


def chunk(delta: Any = None, finish_reason: str | None = None, **fields: Any) -> bytes:
    """Write a chunk with one choice."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish_reason}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **fields})


def text(*texts: str) -> bytes:
    """Write a chunk for each text."""
    return b"".join(chunk({"content": each}) for each in texts)


def calls(*entries: dict[str, Any]) -> bytes:
    """Write one chunk with entries of calls."""
    return chunk({"tool_calls": list(entries)})


def entry(arguments: Any = None, *, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """One entry of ``tool_calls``; what is not given is left out."""
    function: dict[str, Any] = {} if name is None else {"name": name}
    if arguments is not None:
        function["arguments"] = arguments
    return {**fields, "function": function}


def end(finish_reason: str | None = "stop") -> bytes:
    return chunk(finish_reason=finish_reason) + DONE


def check_against(
    recording: Recording, message: AssistantMessage, usage: Usage | None, stop_reason: str | None
) -> None:
    """Assert that ``message`` is what the recording says it holds."""
    expected = {**recording["expected"], **DIFFERENT.get(recording["id"], {})}
    name = recording["id"]
    refused = [block for block in message.content if isinstance(block, TextContent) and block.vendor is not None]
    thinking = "".join(block.thinking for block in message.content if isinstance(block, ThinkingContent))
    assert message.text == (expected["text"] or "") + (expected["refusal"] or ""), name
    assert "".join(block.text for block in refused) == expected["refusal"], name
    assert thinking == (expected["thinking"] or ""), name
    ids = [call.id for call in message.tool_calls]
    assert len({*ids, ""}) == len(ids) + 1, name
    assert name in WITHOUT_IDS or ids == [call["id"] for call in expected["tool_calls"]], name
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        (call["name"], call["arguments"] or {}) for call in expected["tool_calls"]
    ], name
    assert [call.invalid_arguments for call in message.tool_calls] == [
        None if call["arguments"] is not None or call["arguments_raw"] == "null" else call["arguments_raw"]
        for call in expected["tool_calls"]
    ], name
    assert (message.response_id or "") == (expected.get("response_id") or message.response_id or ""), name
    if expected["outcome"] == "ok":
        reason = "tool_use" if message.tool_calls else "stop"
        reason = STOP_REASONS.get(expected["stop_reason"], expected["stop_reason"]) or reason
        assert stop_reason == ("refusal" if expected["refusal"] else reason), name
    if expected["usage"]:
        assert usage == openai_usage(expected["usage"]), name


NO_USAGE: dict[str, int | None] = {}

DIFFERENT: dict[str, dict[str, Any]] = {
    # The usage comes in a chunk after the error, and nothing after an error is waited for.
    "chat-openrouter-test-openrouter-stream-error": {"usage": NO_USAGE},
    # The thinking stands in reasoning_details alone, where the SDK that made the expectation does not look for text.
    "chat-snowflake-test-snowflake-thinking-streaming": {"thinking": "15 * 27 = 405"},
}
"""Where we read a recording otherwise than its ``expected`` says, and why."""

WITHOUT_IDS = {"chat-google-test-compatible-api-with-tool-calls-without-id-0"}
"""Recordings whose calls have the id ``""``; ours get one, because a result has to name it."""
