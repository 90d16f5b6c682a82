"""Measures a library beside the floor, in alternating rounds, and prints what was found.

Standard output carries JSON lines only, standard error the table. Time is CPU time of this process, taken inside the
event loop, for one unit of work; ``ratio`` is the median of the rounds' own ratios, because the two sides of a round
met the same machine. Memory is the peak of what Python allocated during one more run, traced and so not timed.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import sys
import time
import tracemalloc
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import Any

import anyio
import workloads
from workloads import Library

BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "trio": ("trio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
}

Work = Callable[[], Awaitable[int]]
"""Does some units of work and returns how many."""
Row = dict[str, Any]


def run(backend: str, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an async function to its end on a backend of ``BACKENDS``."""
    name, options = BACKENDS[backend]
    return anyio.run(main, backend=name, backend_options=options)


def cpu_seconds(backend: str, work: Work, repeat: int = 1) -> float:
    """CPU seconds for one unit of ``work``, which is done ``repeat`` times; the event loop's own start is left out."""

    async def timed() -> float:
        units = 0
        await anyio.lowlevel.checkpoint()
        began = time.process_time()
        for _ in range(repeat):
            units += await work()
        return (time.process_time() - began) / units

    gc.collect()
    return run(backend, timed)


def peak_bytes(backend: str, work: Work) -> int:
    """The most bytes that Python had allocated at once during ``work``, beyond those before it."""

    async def traced() -> int:
        await anyio.lowlevel.checkpoint()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        await work()
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        return run(backend, traced)
    finally:
        tracemalloc.stop()


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median, smallest and largest of some rounds."""
    return {
        "median": round(median(values), digits),
        "low": round(min(values), digits),
        "high": round(max(values), digits),
    }


def paired_rounds(rounds: int, mine: Callable[[], float], floor: Callable[[], float]) -> tuple[Row, Row, Row]:
    """Measure two sides in turn; microseconds of mine, of the floor, and their ratio. Each round swaps who is first."""
    a: list[float] = []
    b: list[float] = []
    for number in range(rounds):
        for side, into in ((mine, a), (floor, b)) if number % 2 else ((floor, b), (mine, a)):
            into.append(side() * 1e6)
    ratios = [x / y for x, y in zip(a, b, strict=True) if y > 0]
    return spread(a), spread(b), spread(ratios or [math.nan])


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float | None:
    """The power of the size by which a cost grows: 0 is constant, 1 is linear. ``None`` if there is but one size."""
    if len(sizes) < 2 or min(costs) <= 0:
        return None
    return round(linear_regression([math.log(s) for s in sizes], [math.log(c) for c in costs]).slope, 3)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question about how a library's cost grows with the size of one kind of work."""

    name: str
    question: str
    unit: str
    size_of: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    work: Callable[[Library, int], Awaitable[int]]
    least_units: int = 1
    """Small works are repeated until this many units have been done, or their time would be noise."""
    rounds: int = 7
    largest_traced: int = 1_000_000_000
    """Beyond this size memory is not traced, because tracing takes several times the time."""


def parser(question: str) -> ArgumentParser:
    """The options that every program has."""
    options = ArgumentParser(description=question)
    options.add_argument("--rounds", type=int, default=None, help="how often each side is measured")
    options.add_argument("--quick", action="store_true", help="tiny sizes and one round: shows that it runs")
    options.add_argument("--backend", choices=("both", *BACKENDS), default="both", help="both: asyncio and trio")
    options.add_argument("--cap", type=float, help="CPU seconds: after a size that took more, larger ones are left out")
    options.add_argument("--library", default="ours", help="ours, floor, or a peer whose package is installed")
    return options


def parse(options: ArgumentParser, rounds: int) -> Namespace:
    """Read the command line; ``rounds`` is filled in and ``backends`` a tuple."""
    chosen = options.parse_args()
    logging.disable(logging.CRITICAL)
    chosen.rounds = chosen.rounds or (1 if chosen.quick else rounds)
    chosen.backends = ("asyncio", "trio") if chosen.backend == "both" else (chosen.backend,)
    return chosen


def emit(row: Row) -> None:
    """Print one line of JSON."""
    print(json.dumps(row), flush=True)


def table(lines: Sequence[Sequence[object]]) -> None:
    """Print rows of cells, the first of them the heads, to standard error."""
    cells = [[str(cell) for cell in line] for line in lines]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), file=sys.stderr)


def ask(question: Question) -> None:
    """Be the program of one question: measure at each size on each backend, print rows and what they come to."""
    chosen = parse(parser(question.question), question.rounds)
    library = workloads.load(chosen.library)
    sizes = question.quick_sizes if chosen.quick else question.sizes
    rows: list[Row] = []
    for backend in chosen.backends:
        if BACKENDS[backend][0] in library.backends:
            rows += _measure(question, library, backend, sizes, chosen)
    _print_table(question, rows)


def _measure(question: Question, library: Library, backend: str, sizes: Sequence[int], chosen: Namespace) -> list[Row]:
    floor = workloads.load("floor")
    for each in (library, floor):  # the first run fills caches that no later run fills again
        run(backend, lambda each=each: question.work(each, question.quick_sizes[0]))
    rows: list[Row] = []
    for size in sizes:
        began = time.process_time()
        rows.append(_measure_size(question, library, floor, backend, size, chosen.rounds))
        emit(rows[-1])
        if chosen.cap and time.process_time() - began > chosen.cap:
            break
    measured = [row["size"] for row in rows]
    summary: Row = {
        "benchmark": question.name,
        "library": library.name,
        "backend": backend,
        "exponent": exponent(measured, [row["cpu_us"]["median"] for row in rows]),
        "floor_exponent": exponent(measured, [row["floor_cpu_us"]["median"] for row in rows]),
    }
    traced = [row for row in rows if "peak_bytes" in row]
    summary["peak_exponent"] = exponent([row["size"] for row in traced], [row["peak_bytes"] for row in traced])
    summary["bytes_per_size"] = _bytes_per_size(traced, "peak_bytes")
    summary["floor_bytes_per_size"] = _bytes_per_size(traced, "floor_peak_bytes")
    emit(summary)
    return [*rows, summary]


def _bytes_per_size(traced: Sequence[Row], key: str) -> float:
    """Bytes for each unit of size: between the smallest and the largest, or of the only one."""
    first, last = traced[0], traced[-1]
    if first is last:
        return round(first[key] / first["size"], 1)
    return round((last[key] - first[key]) / (last["size"] - first["size"]), 1)


def _measure_size(question: Question, library: Library, floor: Library, backend: str, size: int, rounds: int) -> Row:
    async def mine() -> int:
        return await question.work(library, size)

    async def hand_written() -> int:
        return await question.work(floor, size)

    repeat = max(1, question.least_units // size)
    cpu, floor_cpu, ratio = paired_rounds(
        rounds,
        lambda: cpu_seconds(backend, mine, repeat),
        lambda: cpu_seconds(backend, hand_written, repeat),
    )
    row: Row = {
        "benchmark": question.name,
        "library": library.name,
        "backend": backend,
        "size": size,
        "size_of": question.size_of,
        "unit": question.unit,
        "rounds": rounds,
        "cpu_us": cpu,
        "floor_cpu_us": floor_cpu,
        "ratio": ratio,
    }
    if size <= question.largest_traced:
        row["peak_bytes"] = peak_bytes(backend, mine)
        row["floor_peak_bytes"] = peak_bytes(backend, hand_written)
    return row


def _print_table(question: Question, rows: Sequence[Row]) -> None:
    print(f"\n{question.question}", file=sys.stderr)
    lines: list[list[object]] = [
        ["backend", question.size_of, f"µs/{question.unit}", "floor", "ratio", "low", "high", "peak kB", "floor kB"]
    ]
    for row in rows:
        if "size" in row:
            cells: list[object] = [row["backend"], row["size"], row["cpu_us"]["median"], row["floor_cpu_us"]["median"]]
            cells += [f"x{row['ratio']['median']:.2f}", row["ratio"]["low"], row["ratio"]["high"]]
            cells += [round(row[key] / 1000, 1) if key in row else "" for key in ("peak_bytes", "floor_peak_bytes")]
            lines.append(cells)
    if len(lines) > 1:
        table(lines)
    for row in rows:
        if "exponent" in row:
            print(f"{row['backend']}: grows by size^{row['exponent']} (floor {row['floor_exponent']})", file=sys.stderr)
