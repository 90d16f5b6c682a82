"""How many function calls and allocations does a run take, a delta, a call, an abort? No clock, so no machine is in it.

A row's ``calls`` are all calls that Python's profiler tells of while one unit of work is done: functions of Python (a
coroutine that goes on counts again) and of C, also those of anyio and of the event loop. ``package_calls`` are the
functions of the package itself and what those call of C. ``functions`` are the package's functions that a unit passes
through, each once: its hops. ``allocations`` are counted in a run of its own, see ``allocations.py``.

All but the abort are differences of two sizes of the same work, which takes off the event loop's own housekeeping and
what opens and closes a run. The collector is off, and each work is done once before it is counted.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import allocations
import anyio
import workloads
from measure import BACKENDS, Row, emit, parse, parser, run, spread, table
from workloads import Answer, Library, Script

QUESTION = "Function calls and allocations of a run, a call, a delta and an abort"
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Calls in CPython 3.11, but no functions that anybody reads."""

Begin = Callable[[], None]
OneWork = Callable[[Library, int, bool, Begin], Awaitable[None]]
"""Does a work of a size, with a listener or none; what happens from its call of ``Begin`` on is counted."""


def heard(listener: bool) -> Callable[[str], None] | None:
    """The listener, if there is to be one."""
    return (lambda delta: None) if listener else None


def done(index: int) -> Answer:
    return Answer(text=("done",))


async def runs(library: Library, size: int, script: Script, listener: bool) -> None:
    """``size`` runs, one after the other."""
    tool, _ = workloads.counting_tool(library)
    for _ in range(size):
        await library.run(script, tool, on_delta=heard(listener))


async def text_run(library: Library, size: int, listener: bool, begin: Begin) -> None:
    begin()
    await runs(library, size, done, listener)


async def tool_run(library: Library, size: int, listener: bool, begin: Begin) -> None:
    begin()
    await runs(library, size, workloads.tool_loop(1, 1), listener)


async def batch(library: Library, size: int, listener: bool, begin: Begin) -> None:
    begin()
    await runs(library, 1, workloads.tool_loop(1, size), listener)


async def text_deltas(library: Library, size: int, listener: bool, begin: Begin) -> None:
    begin()
    await runs(library, 1, lambda index: Answer(text=workloads.words(size)), listener)


async def argument_deltas(library: Library, size: int, listener: bool, begin: Begin) -> None:
    deltas = workloads.argument_deltas(16 * size)
    begin()
    await runs(library, 1, lambda index: done(index) if index else Answer(argument_deltas=deltas), listener)


async def abort(library: Library, size: int, listener: bool, begin: Begin) -> None:
    """``size`` tools sleep; counted from the abort until the run has returned."""
    sleeping, aborts = 0, list[Callable[[], object]]()
    all_sleep, returned = anyio.Event(), anyio.Event()

    async def body(x: int) -> str:
        nonlocal sleeping
        sleeping += 1
        if sleeping == size:
            all_sleep.set()
        await anyio.sleep_forever()
        return "never"

    async def go() -> None:
        script = workloads.tool_loop(1, size)
        await library.run(script, library.tool(body), on_delta=heard(listener), on_abort=aborts.append)
        returned.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go)
        await all_sleep.wait()
        for _ in range(20):  # all that is still on its way to sleep arrives
            await anyio.lowlevel.checkpoint()
        begin()
        aborts[0]()
        await returned.wait()


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is counted: ``work`` at the larger of two sizes minus the smaller, for each unit. Only one: as it is."""

    name: str
    unit: str
    work: OneWork
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]


WORKS = (
    Work(name="run of one turn", unit="run", work=text_run, sizes=(10, 30), quick_sizes=(1, 2)),
    Work(name="run with one tool call", unit="run", work=tool_run, sizes=(10, 30), quick_sizes=(1, 2)),
    Work(name="call in a batch of 64", unit="call", work=batch, sizes=(1, 64), quick_sizes=(1, 4)),
    Work(name="text delta", unit="delta", work=text_deltas, sizes=(1_000, 2_000), quick_sizes=(16, 32)),
    Work(name="argument delta", unit="delta", work=argument_deltas, sizes=(1_000, 2_000), quick_sizes=(16, 32)),
    Work(name="abort of 64 sleeping tools", unit="abort", work=abort, sizes=(64,), quick_sizes=(4,)),
)


class Calls:
    """Counts calls by the code that is called, and calls of C by the code that calls."""

    def __init__(self) -> None:
        self.of_python: Counter[CodeType] = Counter()
        self.of_c: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.of_python[frame.f_code] += 1
        elif event == "c_call":
            self.of_c[frame.f_code] += 1


def count_calls(library: Library, backend: str, work: Work, size: int, listener: bool) -> Calls:
    calls = Calls()

    async def main() -> None:
        await work.work(library, size, listener, lambda: None)
        gc.collect()
        gc.disable()
        try:
            await work.work(library, size, listener, lambda: sys.setprofile(calls))
        finally:
            sys.setprofile(None)
            gc.enable()

    run(backend, main)
    return calls


def count_allocations(library: Library, backend: str, work: Work, size: int, listener: bool) -> int:
    counter = allocations.counter()
    assert counter is not None
    began = 0

    def begin() -> None:
        nonlocal began
        began = counter.value

    async def main() -> int:
        await work.work(library, size, listener, lambda: None)
        gc.collect()
        gc.disable()
        try:
            await work.work(library, size, listener, begin)
            return counter.value - began
        finally:
            gc.enable()

    return run(backend, main)


@dataclass
class Counted:
    """What one unit took, in one round."""

    calls: float
    package_calls: float
    functions: frozenset[str]
    allocations: float | None


def count(library: Library, backend: str, work: Work, sizes: Sequence[int], listener: bool, root: Path) -> Counted:
    small, large = sizes[0], sizes[-1]
    units = large - small or 1
    more = count_calls(library, backend, work, large, listener)
    allocated: float | None = None
    if allocations.counter() is not None:
        allocated = count_allocations(library, backend, work, large, listener)
    if small != large:
        less = count_calls(library, backend, work, small, listener)
        more.of_python.subtract(less.of_python)
        more.of_c.subtract(less.of_c)
        if allocated is not None:
            allocated -= count_allocations(library, backend, work, small, listener)
    own = {code for code in (*more.of_python, *more.of_c) if root in Path(code.co_filename).parents}
    passed = [code for code in own if more.of_python[code] >= units and code.co_name not in COMPREHENSIONS]
    return Counted(
        calls=(more.of_python.total() + more.of_c.total()) / units,
        package_calls=sum(more.of_python[code] + more.of_c[code] for code in own) / units,
        functions=frozenset(f"{Path(code.co_filename).relative_to(root)}:{code.co_qualname}" for code in passed),
        allocations=None if allocated is None else allocated / units,
    )


def measure(library: Library, backend: str, work: Work, listener: bool, quick: bool, rounds: int) -> Row:
    sizes = work.quick_sizes if quick else work.sizes
    root, floor = root_of(library), workloads.load("floor")
    if len(sizes) == 1:  # on asyncio chance decides which task a cancellation reaches first: 2 % between two rounds
        rounds *= 5
    mine = [count(library, backend, work, sizes, listener, root) for _ in range(rounds)]
    hand_written = [count(floor, backend, work, sizes, listener, root_of(floor)) for _ in range(rounds)]
    row: Row = {"benchmark": "counts", "library": library.name, "backend": backend}
    row |= {"size": work.name + (", one listener" if listener else ""), "size_of": "work"}
    row |= {"unit": work.unit, "rounds": rounds, "calls": spread([each.calls for each in mine], 2)}
    row |= {"floor_calls": spread([each.calls for each in hand_written], 2)}
    row |= {"ratio": spread([a.calls / b.calls for a, b in zip(mine, hand_written, strict=True)])}
    row |= {"package_calls": spread([each.package_calls for each in mine], 2)}
    for key, side in (("allocations", mine), ("floor_allocations", hand_written)):
        if found := [each.allocations for each in side if each.allocations is not None]:
            row[key] = spread(found, 2)
    always = sorted(name for name in mine[0].functions if all(name in each.functions for each in mine))
    return row | {"functions": len(always), "function_names": always}


def root_of(library: Library) -> Path:
    """The folder whose functions are the library's own."""
    if library.name == "ours":
        import cubepi_anyio  # noqa: PLC0415 - only where it is measured

        return Path(cubepi_anyio.__file__).parent
    if library.name == "floor":
        return Path(__file__).parent
    raise SystemExit(f"the functions of {library.name!r} are not counted; there are: ours, floor")


def main() -> None:
    chosen = parse(parser(QUESTION), 5)
    library = workloads.load(chosen.library)
    lines: list[list[object]] = [["backend", "work", "calls", "low", "high", "floor", "package", "hops", "allocated"]]
    for backend in chosen.backends:
        if BACKENDS[backend][0] not in library.backends:
            continue
        for work in WORKS:
            for listener in (False, True):
                row = measure(library, backend, work, listener, chosen.quick, chosen.rounds)
                emit(row)
                calls = row["calls"]
                cells = [backend, row["size"], calls["median"], calls["low"], calls["high"]]
                cells += [row["floor_calls"]["median"], row["package_calls"]["median"], row["functions"]]
                lines.append([*cells, row.get("allocations", {}).get("median", "")])
    table(lines)


if __name__ == "__main__":
    main()
