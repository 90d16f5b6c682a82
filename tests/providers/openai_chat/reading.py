"""Reads a Chat Completions answer without a network, and says whether a message is what a recording expects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from cubepi_anyio.errors import ProviderError
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.providers.exchange import decoded_object
from cubepi_anyio.providers.openai_chat.presets import Quirks
from cubepi_anyio.providers.openai_chat.response import STOP_REASONS, ChatReader
from cubepi_anyio.providers.sse import SSEDecoder
from cubepi_anyio.stream.builder import MessageBuilder
from cubepi_anyio.stream.draft import DraftWriter
from cubepi_anyio.types import AssistantMessage, TextContent, ThinkingContent, Usage
from tests.recordings import Recording


@dataclass
class Answer:
    """What came out of an answer."""

    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
    heard: list[bool] = field(default_factory=list[bool])
    error: ProviderError | None = None
    usage: Usage | None = None
    message: AssistantMessage = field(default_factory=AssistantMessage)
    broken: AssistantMessage = field(default_factory=AssistantMessage)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def stop_reason(self) -> str | None:
        return self.events[-1].stop_reason if self.events and self.events[-1].type == "done" else None


def read(
    *chunks: bytes, whole: bool = False, quirks: Quirks | None = None, strict: dict[str, Any] | None = None
) -> Answer:
    """Read a streamed answer given in chunks, or with ``whole`` one that was not streamed."""
    answer = Answer()
    draft = DraftWriter(answer.events.append, api="openai-chat")
    reader = ChatReader(draft, "req_1", quirks=quirks, strict_schemas=strict)
    try:
        if whole:
            reader.feed_body(decoded_object(b"".join(chunks), "the answer"))
        else:
            _feed(reader, chunks, answer.heard)
    except ProviderError as error:
        answer.error = error
    answer.usage = reader.usage
    builder = MessageBuilder()
    for event in answer.events:
        if event.given is not None:
            builder = MessageBuilder(event.given)
        else:
            builder.apply(event)
    if answer.events:
        answer.broken = builder.broken(answer.events[-1].mark, answer.events[-1].length)
    answer.message = builder.finished()
    return answer


def _feed(reader: ChatReader, chunks: tuple[bytes, ...], heard: list[bool]) -> None:
    decoder = SSEDecoder()
    for piece in chunks:
        for event in decoder.feed(piece):
            heard.append(reader.feed(event))
            if reader.ended:
                return
    heard.extend(reader.feed(event) for event in decoder.finish())
    if not reader.ended:
        reader.finish()


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
        assert usage == wire_usage(expected["usage"]), name


def wire_usage(counted: dict[str, int | None]) -> Usage:
    """The counters of a recording as ours: their input includes what the cache had, ours does not."""
    read_tokens, written = counted["cache_read"] or 0, counted["cache_write"] or 0
    return Usage(
        input_tokens=(counted["input"] or 0) - read_tokens - written,
        output_tokens=counted["output"] or 0,
        cache_read_tokens=read_tokens,
        cache_write_tokens=written,
        reasoning_tokens=counted["reasoning"] or 0,
    )


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
