"""A timeline drawn as lines of text: a bar for each answer and call on one common time axis. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from ..screen.text import Glyphs, Line, Span, Style, as_line, counted, seconds_text, shorten
from .timeline import Bar, Mark, Timeline

__all__ = ("draw_timeline", "ending_span", "ending_style", "ending_words")

_ENDING_STYLES: dict[str, Style] = {
    "finished": "good",
    "timed_out": "late",
    "cancelled": "stopped",
    "aborted": "stopped",
    "abandoned": "stopped",
    "ignored_cancellation": "stopped",
}
_MARGIN = 2
_GAP = 3
_LONGEST_NAME = 24
_NARROWEST_BAR = 6
_SHORT_ENDING = 13
_NARROW = 60
_TICK_COLUMNS = 10


def ending_words(ending: str) -> str:
    """An ending as people say it; empty stands for what still runs."""
    return ending.replace("_", " ") or "running"


def ending_style(ending: str) -> Style:
    """How an ending looks; what is neither good nor stopped from outside is bad."""
    return _ENDING_STYLES.get(ending, "bad") if ending else "name"


def ending_span(ending: str, glyphs: Glyphs) -> Span:
    """An ending with its sign."""
    sign = f"{glyphs.good if ending == 'finished' else glyphs.bad} " if ending else ""
    return Span(sign + ending_words(ending), ending_style(ending))


def draw_timeline(timeline: Timeline, *, width: int, glyphs: Glyphs) -> list[Line]:
    """The lines of the picture, at most ``width`` columns wide as long as that is at least 40; sentences may be longer.

    The axis; for each bar its name, its place on the axis, its duration and its ending; the marks; what was
    cancelled, and when; a sentence that counts them all.
    """
    if not timeline.bars:
        return [as_line(" " * _MARGIN, Span("nothing had begun", "dim"))]
    chart = _Chart(timeline, width, glyphs)
    return [
        chart.axis(),
        *(chart.row(bar) for bar in timeline.bars),
        *(chart.mark(mark) for mark in timeline.marks),
        *chart.stopped(),
        chart.summary(),
    ]


class _Chart:
    """One picture: what its columns measure."""

    def __init__(self, timeline: Timeline, width: int, glyphs: Glyphs) -> None:
        self._timeline = timeline
        self._glyphs = glyphs
        self._width = width
        self._span_seconds = max(timeline.total_seconds, 1e-6)
        longest_ending = max(len(ending_words(bar.ending)) for bar in timeline.bars) + 2
        self._ending_columns = min(longest_ending, _SHORT_ENDING) if width < _NARROW else longest_ending
        names = max(len(bar.name) for bar in timeline.bars)
        self._duration_columns = max(len(self._duration(bar)) for bar in timeline.bars) + _GAP
        rest = width - _MARGIN - 2 - self._duration_columns - 2 - self._ending_columns
        self._name_columns = max(min(names, _LONGEST_NAME, rest - _NARROWEST_BAR), 4)
        self._bar_columns = max(rest - self._name_columns, _NARROWEST_BAR)

    def _duration(self, bar: Bar) -> str:
        return seconds_text(bar.lasted_seconds(self._timeline.total_seconds))

    def _halves(self, seconds: float) -> int:
        """Where a moment lies, in half columns from the left end of the axis."""
        return round(seconds / self._span_seconds * self._bar_columns * 2)

    def axis(self) -> Line:
        """A row of ticks with their times."""
        step = _round_step(self._span_seconds / max(self._bar_columns // _TICK_COLUMNS, 1))
        ticks = ""
        for number in range(math.ceil(self._span_seconds / step)):
            column = self._halves(number * step) // 2
            seconds = number * step
            label = self._glyphs.tick + (f"{seconds * 1000:g} ms" if step < 0.05 else f"{seconds:g} s")
            if column + len(label) <= self._bar_columns:
                ticks = f"{ticks:<{column}}{label}"
        return as_line(" " * (_MARGIN + self._name_columns + 2), Span(ticks, "dim"))

    def row(self, bar: Bar) -> Line:
        """Name, bar, duration, ending."""
        ending = ending_span(bar.ending, self._glyphs)
        name = f"{shorten(bar.name, self._name_columns, self._glyphs.ellipsis):<{self._name_columns}}"
        return as_line(
            " " * _MARGIN,
            Span(name, "name" if bar.kind == "tool" else "strong"),
            "  ",
            *self._bar(bar),
            f"{self._duration(bar):>{self._duration_columns}}  ",
            Span(shorten(ending.text, self._ending_columns, self._glyphs.ellipsis), ending.style),
        )

    def _bar(self, bar: Bar) -> Iterator[Span]:
        """The cells of one row, in runs of one style: the wait for an answer's first piece is thin and dim."""
        style = ending_style(bar.ending) if bar.kind == "tool" or bar.ending != "finished" else "name"
        end_seconds = self._timeline.total_seconds if bar.ended_seconds is None else bar.ended_seconds
        full_seconds = bar.began_seconds
        if bar.kind == "model":
            full_seconds = end_seconds if bar.first_seconds is None else bar.first_seconds
        first = min(self._halves(full_seconds), self._bar_columns * 2 - 1)
        last = max(self._halves(end_seconds), first + 1)
        wait = self._halves(bar.began_seconds)
        cells = [self._cell(2 * column, first, last, wait) for column in range(self._bar_columns)]
        for is_wait, run in groupby(cells, lambda cell: cell == self._glyphs.waiting):
            yield Span("".join(run), "dim" if is_wait else style)

    def _cell(self, half: int, first: int, last: int, wait: int) -> str:
        glyphs = self._glyphs
        filled = (first <= half < last, first <= half + 1 < last)
        if any(filled):
            return glyphs.bar if all(filled) else glyphs.first_half if filled[0] else glyphs.second_half
        return glyphs.waiting if wait <= half < first else " "

    def mark(self, mark: Mark) -> Line:
        """A pointer under the axis, with what happened there beside it."""
        glyphs = self._glyphs
        words = f"{mark.label} at {seconds_text(mark.at_seconds)}"
        column = min(self._halves(mark.at_seconds) // 2, self._bar_columns - 1)
        start = _MARGIN + self._name_columns + 2 + column
        if start + 2 + len(words) <= self._width:
            return as_line(" " * start, Span(f"{glyphs.pointer} {words}", "stopped"))
        left = max(start - len(words) - 1, 0)
        return as_line(" " * left, Span(f"{words} {glyphs.pointer}", "stopped"))

    def stopped(self) -> Iterator[Line]:
        """What was ended from outside, and when: a sentence for each kind of ending."""
        moments: dict[str, list[str]] = {}
        for bar in self._timeline.bars:
            if bar.ended_seconds is not None and bar.ending not in ("finished", "failed", "refused"):
                moments.setdefault(bar.ending, []).append(f"{bar.name} at {seconds_text(bar.ended_seconds)}")
        for ending, each in moments.items():
            yield as_line(" " * _MARGIN, Span(f"{ending_words(ending)}: ", ending_style(ending)), ", ".join(each))

    def summary(self) -> Line:
        """How many there were, and how they ended."""
        bars = self._timeline.bars
        calls = [bar for bar in bars if bar.kind == "tool"]
        endings = ", ".join(
            f"{number} {ending_words(name)}" for name, number in Counter(b.ending for b in bars).items()
        )
        counts = f"{counted(len(bars) - len(calls), 'answer')}, {counted(len(calls), 'call')}"
        words = f"{counts} in {seconds_text(self._timeline.total_seconds)}: {endings}"
        return as_line(" " * _MARGIN, Span(words, "dim"))


def _round_step(least_seconds: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least_seconds))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_seconds * 0.999)
