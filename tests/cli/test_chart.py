from __future__ import annotations

import pytest

from cubepi_anyio.cli.demo.chart import draw_timeline
from cubepi_anyio.cli.demo.timeline import Bar, Mark, Timeline
from cubepi_anyio.cli.screen.text import ASCII, UNICODE, plain_text

TIMELINE = Timeline(
    bars=[
        Bar("model", "model", 1, 0.0, first_seconds=1.0, ended_seconds=2.0, ending="finished"),
        Bar("tool", "count", 1, 2.0, ended_seconds=2.01, ending="finished"),
        Bar("tool", "search", 1, 2.0, ended_seconds=2.75, ending="failed"),
        Bar("tool", "wait", 1, 2.0, ended_seconds=4.0, ending="timed_out"),
    ],
    total_seconds=4.0,
)


def drawn(timeline: Timeline, width: int = 52, *, ascii_only: bool = False) -> list[str]:
    glyphs = ASCII if ascii_only else UNICODE
    return [plain_text(line) for line in draw_timeline(timeline, width=width, glyphs=glyphs)]


def test_bars_lie_where_their_times_are_on_one_axis() -> None:
    assert drawn(TIMELINE) == [
        "          ╷0 s      ╷2 s",
        "  model   ┄┄┄┄┄━━━━━             2.00 s  ✓ finished",
        "  count             ╸             10 ms  ✓ finished",
        "  search            ━━━━         0.75 s  ✗ failed",
        "  wait              ━━━━━━━━━━   2.00 s  ✗ timed out",
        "  timed out: wait at 4.00 s",
        "  1 answer, 3 calls in 4.00 s: 2 finished, 1 failed, 1 timed out",
    ]


def test_without_unicode_the_picture_is_ascii() -> None:
    lines = drawn(TIMELINE, ascii_only=True)
    assert lines[1] == "  model   .....=====             2.00 s  + finished"
    assert "".join(lines).isascii()


def test_a_mark_points_at_its_time() -> None:
    marked = Timeline(TIMELINE.bars, [Mark(2.0, "stopped"), Mark(4.0, "stopped it all")], 4.0, "aborted")
    lines = drawn(marked)
    assert lines[5] == "                    ▲ stopped at 2.00 s"
    assert lines[6] == "    stopped it all at 4.00 s ▲"
    assert lines[6].index("▲") == lines[4].rindex("━")


def test_what_still_runs_reaches_to_the_end() -> None:
    line = drawn(Timeline([Bar("tool", "t", 1, 1.0)], total_seconds=2.0), 50)[1]
    assert line.endswith("━   1.00 s  running")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_rows_fit_the_width_whatever_the_names(width: int) -> None:
    bars = [Bar("tool", name, 1, 0.0, ended_seconds=90.0, ending="timed_out") for name in ("t", "a_very_long_name" * 4)]
    axis, *rows = drawn(Timeline(bars, [Mark(45.0, "m")], 90.0), width)[:4]
    assert max(len(row) for row in (axis, *rows)) <= width
    assert "…" in rows[1]
    assert rows[0].index("━") == rows[1].index("━")


def test_a_run_of_no_length_is_still_drawn() -> None:
    lines = drawn(Timeline([Bar("tool", "t", 1, 0.0, ended_seconds=0.0, ending="finished")]), 50)
    assert lines[1].split() == ["t", "╸", "0", "ms", "✓", "finished"]


def test_a_run_in_which_nothing_began_says_so() -> None:
    assert drawn(Timeline()) == ["  nothing had begun"]
