"""How soon does a run end that is aborted or cancelled, and what of it is left?

64 tools sleep for ever; then the run is aborted, or the scope around it cancelled. Beside it the floor: the same tasks
in a bare task group. ``silent stream`` cancels a model call whose HTTP stream has fallen silent, beside the same with
httpx alone. CPU time from the abort until the run has returned.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import wire_floor
import workloads
from measure import Row, emit, paired_rounds, parse, parser, run, table
from wire_server import serving
from workloads import Library

QUESTION = "CPU from an abort or a cancellation until the run has returned"
PATIENCE_SECONDS = 3.0
"""A run that has not returned by then counts as one that does not end."""

Stop = Callable[[], object]
Begin = Callable[[Callable[[], None], Callable[[Stop], object]], Awaitable[object]]
"""Runs something; calls the first function when it is to be stopped, the second with its own way to be aborted."""


class Ending:
    """How one run ended: CPU seconds, or ``None`` if it did not, and how many tasks it left."""

    def __init__(self) -> None:
        self.cpu_seconds: float | None = None
        self.tasks_left = 0


async def stopped(begin: Begin, how: str) -> Ending | None:
    """Begin, stop it ``how`` once it waits, and see how it ends. ``None`` if there is no such way."""
    ending = Ending()
    ready, returned = anyio.Event(), anyio.Event()
    ways: dict[str, Stop] = {}
    before = len(anyio.get_running_tasks())

    async def go(scope: anyio.CancelScope) -> None:
        with scope:
            await begin(ready.set, lambda abort: ways.setdefault("abort", abort))
        returned.set()
        ready.set()

    async with anyio.create_task_group() as tasks:
        ways["cancel"] = (scope := anyio.CancelScope()).cancel
        tasks.start_soon(go, scope)
        await ready.wait()
        gc.collect()  # of all that was made before: a full collection takes longer than an ending, and hits some only
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        if returned.is_set():
            raise RuntimeError("the run ended before it was stopped")
        if how not in ways:
            scope.cancel()
            return None
        began = time.process_time()
        ways[how]()
        with anyio.move_on_after(PATIENCE_SECONDS):
            await returned.wait()
            ending.cpu_seconds = time.process_time() - began
        tasks.cancel_scope.cancel()
    ending.tasks_left = max(0, len(anyio.get_running_tasks()) - before)
    return ending


def sleeping_tools(library: Library, width: int) -> Begin:
    """A run in which ``width`` tools sleep."""

    async def begin(is_ready: Callable[[], None], on_abort: Callable[[Stop], object]) -> None:
        started = 0

        async def body(x: int) -> str:
            nonlocal started
            started += 1
            if started == width:
                is_ready()
            await anyio.sleep_forever()
            return "never"

        await run_tolerant(library, workloads.tool_loop(1, width), library.tool(body), on_abort)

    return begin


async def run_tolerant(
    library: Library, script: workloads.Script, tool: Any, on_abort: Callable[[Stop], object]
) -> None:
    """Run; how a library tells of an abort is its own affair."""
    try:
        await library.run(script, tool, on_abort=on_abort)
    except Exception as error:
        if not isinstance(error, RuntimeError | ValueError):  # a mistake of the adapter rather than an abort
            print(f"{library.name}: the run raised {error!r}", file=sys.stderr)


def silent_stream(listen: Callable[[str, Callable[[str], None]], Awaitable[object]], url: str) -> Begin:
    """A model call that has heard the beginning of its message and will hear no more."""

    async def begin(is_ready: Callable[[], None], on_abort: Callable[[Stop], object]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(later, is_ready)
            await listen(f"{url}/silent", lambda delta: None)

    async def later(is_ready: Callable[[], None]) -> None:
        await anyio.sleep(0.03)  # there is no delta to wait for: the server has sent the head long before
        is_ready()

    return begin


def seconds_of(backend: str, begin: Begin, how: str, repeat: int, left: list[int]) -> float:
    """CPU seconds of an ending, the mean of ``repeat``; the tasks they left are added to ``left``."""

    async def main() -> float:
        total = 0.0
        for _ in range(repeat):
            ending = await stopped(begin, how)
            if ending is None or ending.cpu_seconds is None:
                raise LookupError("does not end" if ending is not None else "no such way")
            total += ending.cpu_seconds
            left.append(ending.tasks_left)
        return total / repeat

    return run(backend, main)


def measure(names: tuple[str, str], how: str, mine: Begin, floor: Begin, backend: str, rounds: int, repeat: int) -> Row:
    size, library = names
    row: Row = {"benchmark": "cancel", "library": library, "backend": backend, "size": size, "size_of": "how"}
    left: list[int] = []
    try:
        seconds_of(backend, mine, how, 1, left)
        cpu, floor_cpu, ratio = paired_rounds(
            rounds,
            lambda: seconds_of(backend, mine, how, repeat, left),
            lambda: seconds_of(backend, floor, how, repeat, []),
        )
    except LookupError as error:
        return {**row, "failure": str(error)}
    figures = {"cpu_us": cpu, "floor_cpu_us": floor_cpu, "ratio": ratio, "tasks_left": max(left)}
    return {**row, "unit": "run", "rounds": rounds, **figures}


def measure_all(library: Library, backend: str, quick: bool, rounds: int) -> list[Row]:
    width, repeat = (4, 1) if quick else (64, 10)
    mine, floor = sleeping_tools(library, width), sleeping_tools(workloads.load("floor"), width)
    name = library.name
    rows = [measure((how, name), how, mine, floor, backend, rounds, repeat) for how in ("abort", "cancel")]
    listen = workloads.module_of(library.name).WIRES.get("agent")
    if listen is not None:
        with serving(0) as url:
            both = silent_stream(listen, url), silent_stream(wire_floor.listen, url)
            rows.append(measure(("silent stream", name), "cancel", *both, backend, rounds, min(repeat, 3)))
    return rows


def main() -> None:
    chosen = parse(parser(QUESTION), 7)
    library = workloads.load(chosen.library)
    lines: list[list[object]] = [["backend", "how", "µs/run", "floor", "ratio", "low", "high", "tasks left"]]
    for backend in chosen.backends:
        if backend.replace("uvloop", "asyncio") not in library.backends:
            continue
        for row in measure_all(library, backend, chosen.quick, chosen.rounds):
            emit(row)
            if "failure" in row:
                lines.append([backend, row["size"], row["failure"], "", "", "", "", ""])
                continue
            ratio = row["ratio"]
            cells = [backend, row["size"], row["cpu_us"]["median"], row["floor_cpu_us"]["median"]]
            lines.append([*cells, f"x{ratio['median']:.2f}", ratio["low"], ratio["high"], row["tasks_left"]])
    table(lines)


if __name__ == "__main__":
    main()
