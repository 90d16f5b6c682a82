"""No guarantee without its test: README, docs and ``tests/guarantees`` say the same sixteen sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = re.compile(r'"""(G\d+): (.+?)"""')


def _proved() -> dict[str, tuple[str, str]]:
    """Each guarantee's sentence, as the first line of its test says it, and the test's path."""
    proved: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "tests" / "guarantees").glob("test_g*.py")):
        match = SENTENCE.match(path.read_text(encoding="utf-8"))
        assert match, f"{path.name} does not begin with its guarantee"
        proved[match[1]] = match[2], path.relative_to(ROOT).as_posix()
    return proved


def _claimed(page: str) -> list[tuple[str, str, str]]:
    """The rows of a page's table of guarantees: name, sentence, and the test it names."""
    rows = re.findall(r"^\| (G\d+) \| (.+?) \| (.+?) \|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return [(name, sentence, re.sub(r"\[test\]\((.+)\)|`(.+)`", r"\1\2", proof)) for name, sentence, proof in rows]


def test_every_guarantee_has_its_test() -> None:
    assert sorted(_proved(), key=lambda name: int(name[1:])) == [f"G{number}" for number in range(1, 17)]


@pytest.mark.parametrize("page", ["README.md", "docs/guarantees.md"])
def test_a_page_claims_what_the_tests_prove(page: str) -> None:
    assert _claimed(page) == [(name, *proof) for name, proof in _proved().items()]
