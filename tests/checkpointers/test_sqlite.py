"""SQLite: one file, several processes, and everything that can be wrong with a file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio.checkpointers.sql import schema
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.errors import StoreCorrupt, StoreSchemaError, StoreUnavailable
from cubepi_anyio.types import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, message_adapter
from tests.checkpointers.databases import ids, says

pytestmark = pytest.mark.anyio


def raw(store: SQLiteCheckpointer) -> Any:
    """The store's own connection."""
    return store._connections._idle[0]


async def test_the_file_is_made_when_it_is_opened_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SQLiteCheckpointer(path)
    assert not path.exists()
    async with store:
        await store.append("t", [says("a")])
    async with SQLiteCheckpointer(str(path)) as other:
        assert await ids(other, "t") == ["a"]
    assert os.listdir(tmp_path) == ["threads.db"]
    assert repr(store) == f"<SQLiteCheckpointer {str(path)!r}>"


async def test_a_store_in_memory_works_while_it_is_open() -> None:
    async with SQLiteCheckpointer(":memory:") as store:
        await store.append("t", [says("a")])
        assert await ids(store, "t") == ["a"]


async def test_stores_that_open_a_new_file_at_once_make_it_once(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"

    async def use(name: str) -> None:
        async with SQLiteCheckpointer(path) as store:
            await store.append("t", [says(name)])

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(use, str(number))
    async with SQLiteCheckpointer(path) as store:
        assert sorted(await ids(store, "t")) == [str(number) for number in range(8)]


async def test_a_long_statement_is_interrupted_when_its_call_is_cancelled(tmp_path: Path) -> None:
    endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n"
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: store._connections.run(lambda tx: tx.rows(endless)))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        connection = raw(store)
        await store.append("t", [says("a")])
        assert await ids(store, "t") == ["a"]
        assert raw(store) is connection


# --- files with something wrong --------------------------------------------------------------


async def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        async with SQLiteCheckpointer(tmp_path / "no such folder" / "threads.db"):
            pass


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    path.write_bytes(b"these are not the pages of a database" * 100)
    with pytest.raises(StoreCorrupt, match=r"not a database.*restore it") as caught:
        async with SQLiteCheckpointer(path):
            pass
    assert (caught.value.thread_id, caught.value.row) == ("", f"the file {str(path)!r}")
    assert path.read_bytes().startswith(b"these are")


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    connection = sqlite3.connect(path)
    connection.execute("create table theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreSchemaError, match="another program"):
        async with SQLiteCheckpointer(path):
            pass
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    async with SQLiteCheckpointer(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(StoreSchemaError, match=r"version 99.*newer release"):
        async with SQLiteCheckpointer(path):
            pass


async def test_a_file_of_an_older_release_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "threads.db"
    async with SQLiteCheckpointer(path) as store:
        await store.append("t", [says("a")])
    files = (*schema.migration_files("sqlite"), ("0002_more.sql", "alter table cubepi_runs add column more text;\n"))
    monkeypatch.setattr(schema, "migration_files", lambda dialect: files)
    for _ in range(2):
        async with SQLiteCheckpointer(path) as store:
            assert await ids(store, "t") == ["a"]
            assert raw(store).execute("pragma user_version").fetchone() == (2,)
            raw(store).execute("select more from cubepi_runs")


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "threads.db"
    async with SQLiteCheckpointer(path) as store:
        await store.append("t", [says("a")])
    broken = "alter table cubepi_runs add column more text;\ncreate table cubepi_runs (x);\n"
    with monkeypatch.context() as patch:
        files = (*schema.migration_files("sqlite"), ("0002_broken.sql", broken))
        patch.setattr(schema, "migration_files", lambda dialect: files)
        with pytest.raises(Exception, match="already exists"):
            async with SQLiteCheckpointer(path):
                pass
    async with SQLiteCheckpointer(path) as store:
        assert await ids(store, "t") == ["a"]
        columns = [row[1] for row in raw(store).execute("pragma table_info(cubepi_runs)")]
        assert b"more" not in columns


async def test_a_damaged_file_is_told_from_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    async with SQLiteCheckpointer(path) as store:
        await store.append("t", [says(str(number), "x" * 5000) for number in range(100)])
    with path.open("r+b") as file:
        file.seek(4096 * 12)
        file.write(b"\xff" * 4096 * 60)
    async with SQLiteCheckpointer(path) as store:
        with pytest.raises(StoreCorrupt, match=r"malformed.*restore it"):
            await store.load("t")
        assert await store.load("other") is None


async def test_a_full_disk_is_an_error_and_the_store_goes_on(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        await store.append("t", [says("a")])
        pages = raw(store).execute("pragma page_count").fetchone()[0]
        raw(store).execute(f"pragma max_page_count = {pages + 2}")
        with pytest.raises(StoreUnavailable, match=r"no room left.*nothing was written"):
            await store.append("t", [says("b"), says("c", "x" * 100_000)])
        assert await ids(store, "t") == ["a"]
        raw(store).execute("pragma max_page_count = 100000")
        await store.append("t", [says("b")])
        assert await ids(store, "t") == ["a", "b"]


async def test_a_database_that_may_not_be_written_to_can_be_read(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        await store.append("t", [says("a")])
        raw(store).execute("pragma query_only = on")
        with pytest.raises(StoreUnavailable, match="may not be written to"):
            await store.append("t", [says("b")])
        assert await ids(store, "t") == ["a"]


async def test_tables_that_somebody_dropped_are_a_schema_error(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        raw(store).execute("drop table cubepi_messages")
        with pytest.raises(StoreSchemaError, match="lacks our tables"):
            await store.append("t", [says("a")])


# --- several processes -----------------------------------------------------------------------

WRITER = """
import sys
import threading
import anyio
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.types import UserMessage

async def main(path, name, count):
    async with SQLiteCheckpointer(path, busy_timeout_seconds=60) as store:
        for number in range(count):
            await store.append("t", [UserMessage(id=f"{name}-{number}-{half}") for half in "ab"])
            print(number, flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def stored(path: Path) -> list[str]:
    return anyio.run(_stored, path)


async def _stored(path: Path) -> list[str]:
    async with SQLiteCheckpointer(path) as store:
        return await ids(store, "t")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    processes = [writer(path, name, 60) for name in "xyz"]
    for process in processes:
        assert await anyio.to_thread.run_sync(process.communicate) is not None
        assert process.returncode == 0
    found = await _stored(path)
    assert len(found) == len(set(found)) == 360
    assert [name for name in found if name.startswith("x")] == [f"x-{n}-{half}" for n in range(60) for half in "ab"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_was_stored_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    process = writer(path, "x", 100_000)
    assert process.stdout is not None
    for number in range(30):
        assert await anyio.to_thread.run_sync(process.stdout.readline) == f"{number}\n"
    process.send_signal(signal.SIGKILL)
    rest = await anyio.to_thread.run_sync(process.communicate)
    told = 30 + len(rest[0].split("\n")) - 1
    found = await _stored(path)
    # One append may have been stored and not told; each is whole.
    assert len(found) in (2 * told, 2 * told + 2)
    assert found == [f"x-{number}-{half}" for number in range(len(found) // 2) for half in "ab"]


# --- cost ------------------------------------------------------------------------------------


def turn(number: int) -> tuple[AssistantMessage, ToolResultMessage]:
    name = f"{number:032x}"
    return (
        AssistantMessage(
            id=f"a{name}",
            content=[ToolCall(id=f"c{name}", name="search", arguments={"query": "x"})],
            usage=Usage(input_tokens=3, output_tokens=4),
            model_id="m",
            run_id="r",
        ),
        ToolResultMessage(
            id=f"r{name}",
            tool_call_id=f"c{name}",
            tool_name="search",
            content=[TextContent(text="one short line of text")],
            run_id="r",
        ),
    )


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_turn_costs_the_same_however_long_the_thread_is(tmp_path: Path) -> None:
    path, spent = tmp_path / "threads.db", list[float]()
    size_bytes = 0
    async with SQLiteCheckpointer(path) as store:
        claim = await store.claim_run("t", "r", lease_seconds=600)
        for number in range(800):
            answer, result = turn(number)
            size_bytes += len(message_adapter.dump_json(answer)) + len(message_adapter.dump_json(result))
            began = time.process_time()
            await store.append("t", [answer], claim=claim)
            await store.append("t", [result], claim=claim)
            spent.append(time.process_time() - began)
        assert len(await ids(store, "t")) == 1600
    assert sorted(spent[-200:])[100] < 1.5 * sorted(spent[:200])[100]
    assert path.stat().st_size < 2 * size_bytes


async def test_a_connection_whose_call_was_cancelled_meanwhile_is_kept_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, may_open, connect = list[Any](), threading.Event(), sqlite3.connect
    may_open.set()

    def slowly(*args: Any, **options: Any) -> Any:
        assert may_open.wait(20)
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", slowly)
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        connections = store._connections
        opened.pop().execute("begin")  # one that is left in a transaction is closed, and the next call opens another
        may_open.clear()
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, "t", [says("a")])
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        may_open.set()
        while not connections._idle:  # noqa: ASYNC110 - a thread's event
            await anyio.sleep(0.001)
        await store.append("t", [says("b")])
        assert await ids(store, "t") == ["b"]
        assert connections._idle == opened
        assert len(opened) == 1
