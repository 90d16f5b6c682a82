"""Draws the kept results as SVG, for light and dark: bars of each library's ratio to the floor, on a logarithmic scale.

``chart`` makes one picture; ``pictures`` all of them by name. MkDocs calls this through ``docs/performance_charts.py``;
``draw.py FOLDER`` writes the pictures.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

RESULTS = Path(__file__).parent / "results"
NAMES = {
    "ours": "cubepi-anyio",
    "cubeloop": "CubeLoop",
    "cubepi": "CubePi 0.6",
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "openai-agents",
    "langgraph": "langgraph",
    "agno": "agno",
    "strands": "strands",
}
CHARTS: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("tool_calls", "A tool call, of 64 and of 512 in one message", (64, 512)),
    ("turns", "A turn of one call, in a run of 10 and of 800 turns", (10, 800)),
    ("deltas", "A text delta to a listener, of 1 000 and of 50 000", (1_000, 50_000)),
    ("arguments", "16 bytes of a call's arguments, of 10 kB and of 1 MB", (10_000, 1_000_000)),
    ("many_agents", "A run, of 1 000 and of 5 000 at once", (1_000, 5_000)),
    ("cancel", "Aborting and cancelling 64 sleeping tools", ("abort", "cancel")),
    ("wire", "An event of Anthropic's wire format, agent included", ("agent",)),
    ("import", "Importing the package, and a provider", ("package", "provider")),
)
"""Benchmark, title, and the sizes that are shown, from the smaller to the larger."""

WIDTH, LABEL, ROW, TOP, RIGHT = 720, 170, 17, 46, 70
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.back { fill: #ffffff }
.title { font-size: 14px; font-weight: 600 }
.note { fill: #57606a; font-size: 11px }
.grid { stroke: #d0d7de }
.ours { fill: #0b7285 } .ours.second { fill: #66b2c0 }
.peer { fill: #8c959f } .peer.second { fill: #c4cad0 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9da7b1 } .grid { stroke: #3d444d }
.ours { fill: #3bc9db } .ours.second { fill: #15717f }
.peer { fill: #8b949e } .peer.second { fill: #4d545c }
}
"""
Bars = Mapping[tuple[str, str], Sequence[float | None]]
"""Ratios of a library on a backend, one for each size; ``None`` where there is none."""


def load(name: str) -> dict[str, Any]:
    """A file of results; without rows if it has not been made."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}


def bars_of(benchmark: str, sizes: Sequence[object], rows: Sequence[dict[str, Any]]) -> Bars:
    """The median ratios of a benchmark, this library first, then the peers by their first ratio."""
    found: dict[tuple[str, str], list[float | None]] = {}
    for row in rows:
        if row["benchmark"] == benchmark and row.get("size") in sizes and "ratio" in row:
            values = found.setdefault((row["library"], row["backend"]), [None] * len(sizes))
            values[sizes.index(row["size"])] = row["ratio"]["median"]

    def order(key: tuple[str, str]) -> tuple[bool, float]:
        return key[0] != "ours", next((value for value in found[key] if value is not None), math.inf)

    return {key: found[key] for key in sorted(found, key=order)}


def scale_of(bars: Bars) -> tuple[float, float]:
    """The logarithms between which the bars lie: from half the floor to the next power of ten or its half."""
    largest = max((value for values in bars.values() for value in values if value is not None), default=10.0)
    return math.log10(0.5), math.log10(largest * 1.15)


def chart(title: str, sizes: Sequence[object], bars: Bars) -> str:
    """One picture: a group of bars for each library and backend, a bar for each size."""
    height = TOP + len(bars) * (len(sizes) * ROW + 8) + 34
    low, high = scale_of(bars)
    span = WIDTH - LABEL - RIGHT

    def x_of(ratio: float) -> float:
        return LABEL + span * max(0.0, math.log10(ratio) - low) / (high - low)

    parts = [f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>']
    parts += [f'<text class="title" x="8" y="20">{escape(title)}</text>', *_grid(x_of, 10**high, height)]
    y = TOP
    for (library, backend), values in bars.items():
        where = f" on {backend}" if backend == "trio" else ""
        middle = y + len(sizes) * ROW / 2 + 4
        label = escape(NAMES.get(library, library) + where)
        parts.append(f'<text x="{LABEL - 8}" y="{middle:.0f}" text-anchor="end">{label}</text>')
        for place, value in enumerate(values):
            parts.append(_bar(library, place, value, y + place * ROW, x_of))
        y += len(sizes) * ROW + 8
    legend = " · ".join(f"{'dark' if place == 0 else 'light'}: {size}" for place, size in enumerate(sizes))
    note = "CPU time as a multiple of the floor (x1), logarithmic; " + (legend if len(sizes) > 1 else str(sizes[0]))
    parts.append(f'<text class="note" x="8" y="{height - 8}">{escape(note)}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _grid(x_of: Any, largest: float, height: int) -> list[str]:
    """Lines at 1, 2, 5, 10, …"""
    ticks = [step * 10**power for power in range(5) for step in (1, 2, 5) if step * 10**power <= largest]
    lines: list[str] = []
    for tick in ticks:
        x = x_of(tick)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 28}"/>')
        lines.append(f'<text class="note" x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">x{tick}</text>')
    return lines


def _bar(library: str, place: int, value: float | None, y: float, x_of: Any) -> str:
    if value is None:
        return f'<text class="note" x="{LABEL + 4}" y="{y + 12:.0f}">not measured</text>'
    name = ("ours" if library == "ours" else "peer") + (" second" if place else "")
    width = max(1.0, x_of(value) - LABEL)
    text = f"x{value:.2f}" if value < 20 else f"x{value:.0f}"
    return (
        f'<rect class="{name}" x="{LABEL}" y="{y:.0f}" width="{width:.1f}" height="{ROW - 3}" rx="2"/>'
        f'<text class="note" x="{LABEL + width + 5:.1f}" y="{y + 11:.0f}">{text}</text>'
    )


def pictures() -> dict[str, str]:
    """All charts for which there are results, by file name. This library's own results come from its own run."""
    peers = [row for row in load("peers")["rows"] if row["library"] != "ours"]
    made: dict[str, str] = {}
    for benchmark, title, sizes in CHARTS:
        bars = bars_of(benchmark, sizes, [*load(benchmark)["rows"], *peers])
        if bars:
            made[f"{benchmark}.svg"] = chart(title, sizes, bars)
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures().items():
        (folder / name).write_text(picture, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
