"""Small answers of our own, in the dialects that matter most; they are there where the recordings are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubepi_anyio.errors import MalformedResponse
from tests.providers.reading import check_sample, check_wherever_cut

from .reading import read

SAMPLES = sorted((Path(__file__).parents[2] / "wire" / "openai_chat").glob("*.sse"))


def test_the_samples_are_there() -> None:
    assert len(SAMPLES) == 6


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_is_read_the_same_wherever_it_is_cut(sample: Path) -> None:
    check_wherever_cut(sample, read, check_sample, step=3)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_that_stops_early_is_never_taken_for_a_whole_one(sample: Path) -> None:
    wire = sample.read_bytes()
    ends = [wire.find(f'"finish_reason":"{word}"'.encode()) for word in ("stop", "tool_calls", "content_filter")]
    end = min((at for at in ends if at >= 0), default=wire.index(b"[DONE]"))
    for length in range(end):
        answer = read(wire[:length])
        assert isinstance(answer.error, MalformedResponse), length
        assert "done" not in answer.types, length
