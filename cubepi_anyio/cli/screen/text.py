"""Lines of styled text, and how numbers, names and results are written in them. Pure; ``screen.py`` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = (
    "ASCII",
    "BLANK",
    "UNICODE",
    "Glyphs",
    "Line",
    "Span",
    "Style",
    "as_line",
    "counted",
    "glyphs_for",
    "plain_text",
    "printable",
    "seconds_text",
    "shorten",
    "size_text",
)

Style = Literal["plain", "strong", "dim", "name", "good", "bad", "late", "stopped"]
"""What a piece of text means; a screen decides how that looks."""


class Span(NamedTuple):
    """A piece of text with one style."""

    text: str
    style: Style = "plain"


Line = tuple[Span, ...]
"""One line, without a line break."""

BLANK: Line = ()
"""A line with nothing in it."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that pictures are made of; each takes one column."""

    bar: str
    first_half: str
    """A cell of which only the first half is filled."""
    second_half: str
    waiting: str
    rest: str
    """What is left to do of a progress bar."""
    tick: str
    pointer: str
    good: str
    bad: str
    separator: str
    ellipsis: str
    frames: str
    """The pictures of a spinner, one after the other."""


UNICODE = Glyphs("━", "╸", "╺", "┄", "─", "╷", "▲", "✓", "✗", "·", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
"""For terminals that show Unicode."""
ASCII = Glyphs("=", "=", "=", ".", "-", "|", "^", "+", "x", "-", "~", "|/-\\")
"""For all others."""


def glyphs_for(encoding: str) -> Glyphs:
    """The finer characters where ``encoding`` has them all, else those of ASCII."""
    try:
        for field in UNICODE.__slots__:
            getattr(UNICODE, field).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def as_line(*parts: str | Span) -> Line:
    """A line of the parts; strings are plain."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def plain_text(line: Line) -> str:
    """The line without its styles and without blanks at its end."""
    return "".join(span.text for span in line).rstrip()


def printable(text: str) -> str:
    """``text`` on one line, with a ``?`` for each character that would control a terminal rather than show."""
    return "".join(char if char.isprintable() else " " if char in "\n\t\r" else "?" for char in text)


def shorten(text: str, columns: int, ellipsis: str) -> str:
    """``text``, cut to ``columns`` characters; where it was cut it ends in ``ellipsis``."""
    return text if len(text) <= columns else text[: max(columns - len(ellipsis), 0)] + ellipsis[:columns]


def seconds_text(seconds: float) -> str:
    """A duration as people read it: ``38 ms``, ``1.25 s``, ``3 min 5 s``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``2,000 files``; ``plural`` where an ``s`` does not make it."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size_text(size_bytes: int) -> str:
    """A size as people read it: ``712 bytes``, ``1.4 kB``, ``2.0 MB``."""
    if size_bytes < 1000:
        return counted(size_bytes, "byte")
    if size_bytes < 999_950:
        return f"{size_bytes / 1000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"
