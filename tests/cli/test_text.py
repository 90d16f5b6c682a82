from __future__ import annotations

import pytest

from cubepi_anyio.cli.screen.text import (
    ASCII,
    UNICODE,
    counted,
    glyphs_for,
    printable,
    seconds_text,
    shorten,
    size_text,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.10 s"),
        (59.99, "59.99 s"),
        (59.996, "1 min 0 s"),
        (185, "3 min 5 s"),
    ],
)
def test_a_duration_is_written_with_its_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(1, "1 byte"), (999, "999 bytes"), (1449, "1.4 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")],
)
def test_a_size_is_written_with_its_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_number_of_things_is_one_or_several() -> None:
    assert [counted(n, "file") for n in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]
    assert counted(2, "entry", "entries") == "2 entries"


def test_what_controls_a_terminal_is_not_printable() -> None:
    assert printable("a\x1b[2Jb\x07\u202ec\nd\t\udcff") == "a?[2Jb??c d ?"


def test_a_text_is_cut_to_its_columns() -> None:
    assert [shorten("abcdef", columns, "…") for columns in (6, 4, 1, 0)] == ["abcdef", "abc…", "…", ""]


@pytest.mark.parametrize(
    ("encoding", "glyphs"), [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), ("no-such", ASCII)]
)
def test_pictures_use_what_the_encoding_has(encoding: str, glyphs: object) -> None:
    assert glyphs_for(encoding) is glyphs
