"""What does it cost to keep a thread, and to load it again?

A run of many turns of one call, without a store, with the one in memory and with SQLite. The floor keeps each message
with ``sqlite3`` itself: WAL, ``synchronous=NORMAL``, a transaction for each message, in the thread of the event loop.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import workloads
from measure import Row, cpu_seconds, emit, paired_rounds, parse, parser, run, spread, table
from workloads import Library

QUESTION = "CPU of a turn of one call whose messages are stored as they end"
Keep = Callable[[dict[str, Any]], None]


def into_list() -> Keep:
    """Keeps messages as JSON in memory."""
    kept: list[str] = []
    return lambda message: kept.append(json.dumps(message))


def into_sqlite(path: Path) -> Keep:
    """Keeps messages as JSON in a file, each in its own transaction."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = normal")
    database.execute("create table messages (id integer primary key, thread text, message text)")

    def keep(message: dict[str, Any]) -> None:
        database.execute("begin immediate")
        database.execute("insert into messages (thread, message) values ('t1', ?)", (json.dumps(message),))
        database.execute("commit")

    return keep


@asynccontextmanager
async def no_store(path: Path) -> AsyncGenerator[None, None]:
    yield


def mine(library: Library, open_store: Callable[[Path], Any], turns: int, folder: Path) -> Callable[[], Awaitable[int]]:
    """The work of a library with a new store each time."""
    count = 0

    async def work() -> int:
        nonlocal count
        count += 1
        async with open_store(folder / f"{count}.db") as store:
            return await workloads.run_calls(library, turns, 1, store)

    return work


def by_hand(store: str, turns: int, folder: Path) -> Callable[[], Awaitable[int]]:
    count = 0

    async def work() -> int:
        nonlocal count
        count += 1
        path = folder / f"floor{count}.db"
        keep = {"none": lambda: None, "memory": into_list, "sqlite": lambda: into_sqlite(path)}[store]()
        return await workloads.run_calls(workloads.load("floor"), turns, 1, keep)

    return work


def measure(library: Library, store: str, open_store: Any, backend: str, turns: int, rounds: int) -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work, floor = mine(library, open_store, turns, folder), by_hand(store, turns, folder)
        repeat = max(1, 50 // turns)
        run(backend, work)
        cpu, floor_cpu, ratio = paired_rounds(
            rounds, lambda: cpu_seconds(backend, work, repeat), lambda: cpu_seconds(backend, floor, repeat)
        )
        row: Row = {
            "benchmark": "store",
            "library": library.name,
            "backend": backend,
            "size": f"{store}, {turns} turns",
        }
        row |= {"store": store, "turns": turns, "unit": "turn", "rounds": rounds}
        row |= {"cpu_us": cpu, "floor_cpu_us": floor_cpu, "ratio": ratio}
        files = [path.stat().st_size for path in folder.glob("1.db*")]
        if files:
            row["file_bytes_per_turn"] = round(sum(files) / turns)
        load = getattr(workloads.module_of(library.name), "LOAD", None)
        if load is not None and store != "none":
            row["load_us_per_message"] = loading(backend, library, open_store, load, turns, folder, rounds)
    return row


def loading(
    backend: str, library: Library, open_store: Any, load: Any, turns: int, folder: Path, rounds: int
) -> dict[str, float]:
    """CPU microseconds for each message of a stored thread that is read again."""

    async def main() -> list[float]:
        costs: list[float] = []
        async with open_store(folder / "load.db") as store:
            await workloads.run_calls(library, turns, 1, store)
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
                began = time.process_time()
                messages = await load(store)
                costs.append((time.process_time() - began) / messages * 1e6)
        return costs

    return spread(run(backend, main))


def main() -> None:
    chosen = parse(parser(QUESTION), 5)
    library = workloads.load(chosen.library)
    stores: dict[str, Any] = {"none": no_store, **getattr(workloads.module_of(library.name), "STORES", {})}
    lines: list[list[object]] = [["backend", "store", "µs/turn", "floor", "ratio", "bytes/turn", "load µs/message"]]
    for backend in chosen.backends:
        if backend.replace("uvloop", "asyncio") not in library.backends:
            continue
        for turns in (4, 8) if chosen.quick else (50, 400):
            for store, open_store in stores.items():
                row = measure(library, store, open_store, backend, turns, chosen.rounds)
                emit(row)
                cells = [backend, row["size"], row["cpu_us"]["median"], row["floor_cpu_us"]["median"]]
                cells += [f"x{row['ratio']['median']:.2f}", row.get("file_bytes_per_turn", "")]
                lines.append([*cells, row.get("load_us_per_message", {}).get("median", "")])
    table(lines)


if __name__ == "__main__":
    main()
