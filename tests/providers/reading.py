"""Reads answers without a network: what the readers of all wire formats have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cubepi_anyio.errors import ProviderError
from cubepi_anyio.events.stream import StreamEvent
from cubepi_anyio.providers.http.exchange import ResponseReader, decoded_object
from cubepi_anyio.providers.http.sse import ServerSentEvent, SSEDecoder
from cubepi_anyio.stream.builder import MessageBuilder
from cubepi_anyio.stream.draft import DraftWriter
from cubepi_anyio.types import AssistantMessage, ThinkingContent, Usage


@dataclass
class Answer:
    """What came out of an answer."""

    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
    heard: list[bool] = field(default_factory=list[bool])
    """What the reader said of each event of the wire: false for a sign of life."""
    error: ProviderError | None = None
    usage: Usage | None = None
    message: AssistantMessage = field(default_factory=AssistantMessage)
    broken: AssistantMessage = field(default_factory=AssistantMessage)
    """What of the message may be kept if it goes no further."""

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def stop_reason(self) -> str | None:
        return self.events[-1].stop_reason if self.events and self.events[-1].type == "done" else None


def read_with(
    make_reader: Callable[[DraftWriter, str], ResponseReader[ServerSentEvent]],
    api: str,
    chunks: tuple[bytes, ...],
    *,
    whole: bool,
) -> Answer:
    """Read a streamed answer given in chunks, or with ``whole`` one that was not streamed."""
    answer = Answer()
    reader = make_reader(DraftWriter(answer.events.append, api=api), "req_1")
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


def _feed(reader: ResponseReader[ServerSentEvent], chunks: tuple[bytes, ...], heard: list[bool]) -> None:
    decoder = SSEDecoder()
    for chunk in chunks:
        for event in decoder.feed(chunk):
            heard.append(reader.feed(event))
            if reader.ended:
                return
    for event in decoder.finish():
        heard.append(reader.feed(event))
        if reader.ended:
            return
    reader.finish()


def openai_usage(counted: dict[str, int | None]) -> Usage:
    """The counters of a recording of OpenAI's formats as ours: their input includes what the cache had, ours not."""
    read_tokens, written = counted["cache_read"] or 0, counted["cache_write"] or 0
    return Usage(
        input_tokens=(counted["input"] or 0) - read_tokens - written,
        output_tokens=counted["output"] or 0,
        cache_read_tokens=read_tokens,
        cache_write_tokens=written,
        reasoning_tokens=counted["reasoning"] or 0,
    )


def check_sample(sample: Path, answer: Answer) -> None:
    """Assert that one of our own samples was read as the file beside it says."""
    wanted = json.loads(sample.with_suffix(".json").read_text("utf-8"))
    message = answer.message
    thinking = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]
    assert answer.error is None
    assert (message.text, "".join(thinking)) == (wanted["text"], wanted["thinking"])
    assert [[call.id, call.name, call.arguments] for call in message.tool_calls] == wanted["calls"]
    assert answer.stop_reason == wanted["stop_reason"]
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    counts = wanted["usage"]
    assert answer.usage == (None if counts is None else Usage(**dict(zip(names, counts, strict=True))))


def check_wherever_cut(
    sample: Path, read: Callable[..., Answer], check: Callable[[Path, Answer], None], step: int
) -> None:
    """Check a sample cut in two at every ``step`` bytes, with the other line ends, and byte by byte."""
    wire = sample.read_bytes()
    for cut in range(0, len(wire), step):
        check(sample, read(wire[:cut], wire[cut:]))
    crlf = wire.replace(b"\n", b"\r\n")
    check(sample, read(b"\xef\xbb\xbf" + crlf))
    check(sample, read(*(crlf[at : at + 1] for at in range(len(crlf)))))
