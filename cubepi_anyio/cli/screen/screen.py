"""Where lines are shown: on a terminal with rich, or as plain lines anywhere."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, TextIO

from .text import Glyphs, Line, Span, Style, as_line, glyphs_for, plain_text

__all__ = (
    "RICH_HINT",
    "LiveScreen",
    "PlainScreen",
    "Reader",
    "Screen",
    "open_screen",
    "show_what_cannot_be_encoded",
)

RICH_HINT = "For a live display: pip install 'cubepi-anyio[cli]'"
"""Said where rich is not installed."""

_PLAIN_COLUMNS = 100
_COLOURS: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "name": "cyan",
    "good": "green",
    "bad": "red",
    "late": "yellow",
    "stopped": "magenta",
}


class Screen(Protocol):
    """Shows lines for good, and, where it is live, below them a region that changes."""

    glyphs: Glyphs
    is_live: bool
    hint: str
    """What the person could do for a better display; empty where there is nothing."""

    @property
    def width(self) -> int:
        """Columns of a line."""
        ...

    def print(self, *lines: Line) -> None:
        """Show lines for good, at once."""
        ...

    def write(self, *spans: Span) -> None:
        """Show pieces of text for good, at once, without ending the line; text may hold line breaks.

        Take the region away first (``close``): it is drawn below whole lines.
        """
        ...

    def show(self, region: Sequence[Line]) -> None:
        """Replace the region that changes; nothing happens where the screen is not live."""
        ...

    def close(self) -> None:
        """Take the region away and leave the terminal as it was. May be called twice."""
        ...


class Reader:
    """Whoever reads what a run writes. Stand in it while writing an event; write nothing once it has gone.

    ``BrokenPipeError`` leaves once, and ends the run; the events of its settling have nobody to be shown to.
    """

    def __init__(self) -> None:
        self.is_there: bool = True

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(exc, BrokenPipeError):
            self.is_there = False


def open_screen(*, colour: bool) -> Screen:
    """The best screen for standard output.

    Live on a terminal if rich is installed; without a terminal, and on one that calls itself ``dumb``, plain lines
    without any escape code. ``colour`` is overruled by ``NO_COLOR``.
    """
    out: TextIO = sys.stdout
    show_what_cannot_be_encoded(out)
    if not out.isatty() or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return PlainScreen(out)
    if find_spec("rich") is None:
        return PlainScreen(out, hint=RICH_HINT)
    return LiveScreen(out, colour=colour and not os.environ.get("NO_COLOR"))


def show_what_cannot_be_encoded(out: object) -> None:
    """Have characters that the encoding lacks, as in the name of a file, replaced and not raised."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")


class PlainScreen:
    """Lines of text without escape codes."""

    is_live = False

    def __init__(self, out: TextIO, *, hint: str = "") -> None:
        self._out = out
        self.hint = hint
        self.glyphs: Glyphs = glyphs_for(out.encoding or "ascii")

    @property
    def width(self) -> int:
        """Columns of a line: the terminal's, ``COLUMNS``, or 100."""
        return max(shutil.get_terminal_size((_PLAIN_COLUMNS, 24)).columns, 40)

    def print(self, *lines: Line) -> None:
        """Write lines, and have them arrive at once. Raises ``BrokenPipeError`` if nobody reads any more."""
        self._out.write("".join(f"{plain_text(line)}\n" for line in lines))
        self._out.flush()

    def write(self, *spans: Span) -> None:
        """Write pieces of a line, and have them arrive at once. Raises ``BrokenPipeError`` if nobody reads any more."""
        self._out.write("".join(span.text for span in spans))
        self._out.flush()

    def show(self, region: Sequence[Line]) -> None:
        """Nothing: what was written stays."""

    def close(self) -> None:
        """Nothing: nothing was changed."""


class LiveScreen:
    """A terminal through rich: lines with styles, and a region below them that is drawn again and again."""

    is_live = True
    hint = ""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        """Needs rich. Nothing is drawn by a thread: whoever shows a region draws it."""
        from rich.console import Console  # noqa: PLC0415 - rich is optional
        from rich.live import Live  # noqa: PLC0415

        self._console = Console(
            file=out, force_terminal=True, no_color=not colour, highlight=False, markup=False, emoji=False
        )
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._touched = False
        self.glyphs: Glyphs = glyphs_for(out.encoding or "ascii")

    @property
    def width(self) -> int:
        """Columns of the terminal as it is now."""
        return max(self._console.width, 40)

    def print(self, *lines: Line) -> None:
        """Show lines above the region; long ones are wrapped between words, and go on under their second span."""
        for line in lines:
            self._print(line)

    def write(self, *spans: Span) -> None:
        """Show pieces of a line; the terminal wraps what is too long."""
        self._console.print(self._text(spans), end="", soft_wrap=True)

    def show(self, region: Sequence[Line]) -> None:
        """Draw the region again."""
        from rich.console import Group  # noqa: PLC0415

        self._touched = True
        self._live.start()
        self._live.update(Group(*(self._text(line, wrap=False) for line in region)), refresh=True)

    def close(self) -> None:
        """Take the region away and show the cursor again."""
        if self._touched:
            self._touched = False
            self._live.update("", refresh=False)
            self._live.stop()
            self._console.show_cursor(True)
            self._console.file.flush()

    def _print(self, line: Line) -> None:
        if len(line) < 2:
            self._console.print(self._text(line))
            return
        indent = len(line[0].text)
        wrapped = self._text(line[1:]).wrap(self._console, max(self._console.width - indent, 20))
        for number, part in enumerate(wrapped):
            self._console.print(self._text((line[0] if number == 0 else Span(" " * indent),)) + part)

    def _text(self, line: Line, *, wrap: bool = True) -> Any:
        from rich.text import Text  # noqa: PLC0415

        text = Text(no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
        for span in line or as_line(""):
            text.append(span.text, _COLOURS[span.style])
        return text
