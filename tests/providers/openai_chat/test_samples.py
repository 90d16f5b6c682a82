"""Small answers of our own, in the dialects that matter most; they are there where the recordings are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubepi_anyio.errors import MalformedResponse
from cubepi_anyio.types import ThinkingContent, Usage

from .reading import Answer, read

SAMPLES = sorted((Path(__file__).parents[2] / "wire" / "openai_chat").glob("*.sse"))


def check(sample: Path, answer: Answer) -> None:
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


def test_the_samples_are_there() -> None:
    assert len(SAMPLES) == 6


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_is_read_the_same_wherever_it_is_cut(sample: Path) -> None:
    wire = sample.read_bytes()
    for cut in range(0, len(wire), 3):
        check(sample, read(wire[:cut], wire[cut:]))
    crlf = wire.replace(b"\n", b"\r\n")
    check(sample, read(b"\xef\xbb\xbf" + crlf))
    check(sample, read(*(crlf[at : at + 1] for at in range(len(crlf)))))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_that_stops_early_is_never_taken_for_a_whole_one(sample: Path) -> None:
    wire = sample.read_bytes()
    ends = [wire.find(f'"finish_reason":"{word}"'.encode()) for word in ("stop", "tool_calls", "content_filter")]
    end = min((at for at in ends if at >= 0), default=wire.index(b"[DONE]"))
    for length in range(end):
        answer = read(wire[:length])
        assert isinstance(answer.error, MalformedResponse), length
        assert "done" not in answer.types, length
