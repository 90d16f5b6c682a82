"""Small answers of our own, in the forms that matter most; they are there where the recordings are not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubepi_anyio.errors import MalformedResponse, ProviderError
from cubepi_anyio.types import ThinkingContent
from tests.providers.reading import Answer, check_sample, check_wherever_cut

from .reading import read

SAMPLES = sorted((Path(__file__).parents[2] / "wire" / "openai_responses").glob("*.sse"))


def check(sample: Path, answer: Answer) -> None:
    check_sample(sample, answer)
    wanted = json.loads(sample.with_suffix(".json").read_text("utf-8"))
    message = answer.message
    thinking = [block for block in message.content if isinstance(block, ThinkingContent)]
    assert answer.usage is not None
    assert [block.signature for block in thinking if block.signature] == wanted["signatures"]
    assert [block.type for block in message.content] == wanted["blocks"]
    assert (message.response_id, message.request_id, message.api) == ("resp_a", "req_1", "openai-responses")


def test_the_samples_are_there() -> None:
    assert len(SAMPLES) == 6


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_is_read_the_same_wherever_it_is_cut(sample: Path) -> None:
    check_wherever_cut(sample, read, check, step=7)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_that_stops_early_is_never_taken_for_a_whole_one(sample: Path) -> None:
    wire = sample.read_bytes()
    end = len(wire.partition(b"data: [DONE]")[0].rstrip()) - 1
    for length in range(0, end, 3):
        answer = read(wire[:length])
        assert isinstance(answer.error, MalformedResponse), length
        assert "done" not in answer.types, length
        assert (
            answer.message.text
            == json.loads(sample.with_suffix(".json").read_text("utf-8"))["text"][: len(answer.message.text)]
        )


def _orders(events: list[bytes]) -> Iterator[list[bytes]]:
    """The events with one of them lost, sent twice, or changed with its neighbour."""
    for at in range(len(events)):
        yield [*events[:at], *events[at + 1 :]]
        yield [*events[:at], events[at], *events[at:]]
        yield [*events[:at], *events[at : at + 2][::-1], *events[at + 2 :]]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_events_lost_repeated_or_out_of_order_are_an_answer_or_a_typed_error(sample: Path) -> None:
    events = [each + b"\n\n" for each in sample.read_bytes().split(b"\n\n") if each]
    for order in _orders(events):
        answer = read(*order)
        ended = "done" in answer.types
        assert ended or isinstance(answer.error, ProviderError)
        assert ended == (answer.error is None)
        assert not ended or any(b"response.completed" in each or b"response.incomplete" in each for each in order)
        assert all(call.id and call.name for call in answer.message.tool_calls)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
@pytest.mark.parametrize("value", [b"null", b"[]", b"{}", b'"x"', b"7", b"[7]"])
def test_a_value_of_another_kind_anywhere_is_an_answer_or_a_typed_error(sample: Path, value: bytes) -> None:
    wire = sample.read_bytes()
    for found in re.finditer(rb'(?<=":)("(?:[^"\\]|\\.)*"|\[\]|\{\}|[0-9]+)(?=[,}])', wire):
        answer = read(wire[: found.start()] + value + wire[found.end() :])
        assert ("done" in answer.types) == (answer.error is None)
        assert answer.error is None or isinstance(answer.error, ProviderError)
