"""What all SQL stores have in common: locks, cancellation, bad rows, lost connections."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest

from cubepi_anyio.concurrency import has_native_cancellation
from cubepi_anyio.errors import StoreCorrupt, StoreUnavailable, UsageError
from cubepi_anyio.types.hitl import ConfirmRequest, PersonRequest
from tests.checkpointers.databases import KINDS, Database, database, fresh, ids, says

pytestmark = pytest.mark.anyio


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return database(request.param, request, tmp_path)


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return database(request.param, request, tmp_path)


# --- other writers ---------------------------------------------------------------------------


async def test_a_write_waits_for_another_writer(db: Database) -> None:
    thread = fresh()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])
        async with anyio.create_task_group() as tasks:
            with db.held(thread):
                tasks.start_soon(store.append, thread, [says("b")])
                await db.someone_waits()
                assert await ids(store, thread) == ["a"]
        assert await ids(store, thread) == ["a", "b"]


async def test_a_cancelled_write_that_waits_for_another_writer_is_absent(db: Database) -> None:
    thread = fresh()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])
        with db.held(thread):
            with anyio.fail_after(5), anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.append, thread, [says("b"), says("c")])
                    await db.someone_waits()
                    scope.cancel()
            began = time.monotonic()
        assert await ids(store, thread) == ["a"]
        assert time.monotonic() - began < 5
        await store.append(thread, [says("d")])
        assert await ids(store, thread) == ["a", "d"]


async def test_a_task_that_is_cancelled_twice_leaves_nothing_behind(db: Database) -> None:
    if not has_native_cancellation():
        pytest.skip("asyncio alone cancels tasks past scopes")
    import asyncio  # noqa: PLC0415 - the package works without an asyncio loop

    thread = fresh()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])
        with db.held(thread):
            task = asyncio.create_task(store.append(thread, [says("b"), says("c")]))
            await db.someone_waits()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=5)
            assert task.cancelled()
        assert await ids(store, thread) == ["a"]
        await store.append(thread, [says("d")])
        assert await ids(store, thread) == ["a", "d"]


async def test_a_cancelled_claim_that_waits_for_another_writer_is_no_claim(db: Database) -> None:
    thread = fresh()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])
        with db.held(thread), anyio.fail_after(10), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: store.claim_run(thread, "r1", lease_seconds=600))
                await db.someone_waits()
                scope.cancel()
        claim = await store.claim_run(thread, "r1", lease_seconds=600)
        assert (claim.run_id, claim.version) == ("r1", 1)


async def test_a_lock_that_is_held_too_long_is_an_error_and_the_store_goes_on(db: Database) -> None:
    thread = fresh()
    async with db.make_store(busy_timeout_seconds=0.1) as store:
        await store.append(thread, [says("a")])
        with db.held(thread):
            with pytest.raises(StoreUnavailable, match="try again"):
                await store.append(thread, [says("b")])
        await store.append(thread, [says("c")])
        assert await ids(store, thread) == ["a", "c"]


async def test_closing_waits_for_what_is_being_written(db: Database) -> None:
    thread, order = fresh(), list[str]()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])
    leaving = anyio.Event()

    async def append() -> None:
        await store.append(thread, [says("b")])
        order.append("stored")

    async def open_and_close() -> None:
        async with store:
            tasks.start_soon(append)
            await db.someone_waits()
            leaving.set()
        order.append("closed")

    async with anyio.create_task_group() as tasks:
        with db.held(thread):
            tasks.start_soon(open_and_close)
            await leaving.wait()
            await anyio.wait_all_tasks_blocked()
            assert order == []
    assert sorted(order) == ["closed", "stored"]
    async with store:
        assert await ids(store, thread) == ["a", "b"]


async def test_closing_waits_also_when_it_is_cancelled(db: Database) -> None:
    thread = fresh()
    async with db.make_store() as store:
        await store.append(thread, [says("a")])

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with store:
                tasks.start_soon(store.append, thread, [says("b")])
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
    async with store:
        assert await ids(store, thread) == ["a", "b"]


# --- use and misuse --------------------------------------------------------------------------


async def test_a_store_that_is_not_open_says_how_to_open_it(db: Database) -> None:
    store = db.make_store()
    with pytest.raises(UsageError, match="async with"):
        await store.load("t")
    async with store:
        with pytest.raises(UsageError, match="open already"):
            await store.__aenter__()
        assert await store.load(fresh()) is None
    with pytest.raises(UsageError, match="async with"):
        await store.append("t", [says("a")])
    async with store:
        assert await store.load(fresh()) is None


@pytest.mark.parametrize("name", ["x" * 513, "a\0b", "half \ud83d"])
async def test_an_id_that_cannot_be_kept_as_it_is_is_refused(db: Database, name: str) -> None:
    async with db.make_store() as store:
        with pytest.raises(UsageError, match="thread id"):
            await store.load(name)
        with pytest.raises(UsageError, match="message id"):
            await store.append(fresh(), [says(name)])
        with pytest.raises(UsageError, match="extra key"):
            await store.save_extra(fresh(), {name: 1})


async def test_more_tasks_than_connections_are_all_served(db: Database) -> None:
    threads = [fresh() for _ in range(20)]
    async with db.make_store() as store:
        async with anyio.create_task_group() as tasks:
            for thread in threads:
                tasks.start_soon(store.append, thread, [says("a"), says("b")])
        assert [await ids(store, thread) for thread in threads] == [["a", "b"]] * 20


async def test_deleting_a_thread_leaves_no_rows(db: Database) -> None:
    thread = fresh()
    tables = ("threads", "messages", "runs", "requests", "extra")
    async with db.make_store() as store:
        before = [db.execute(f"select count(*) from cubepi_{table}") for table in tables]
        claim = await store.claim_run(thread, "r", lease_seconds=600)
        await store.append(thread, [says("a")], claim=claim)
        await store.save_extra(thread, {"k": 1})
        await store.save_requests(thread, [PersonRequest(id="q", payload=ConfirmRequest(prompt="p"))])
        between = [db.execute(f"select count(*) from cubepi_{table}") for table in tables]
        assert [many[0][0] - few[0][0] for many, few in zip(between, before, strict=True)] == [1, 1, 1, 1, 1]
        await store.delete(thread)
        assert [db.execute(f"select count(*) from cubepi_{table}") for table in tables] == before


# --- what others wrote -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "broken"),
    [
        ("messages", "body", '{"role": "user", "cut'),
        ("messages", "body", '{"role": "robot", "id": "b"}'),
        ("messages", "body", '{"role":"user","id":"b"},{"role":"user","id":"c"}'),
        ("messages", "body", ""),
        ("requests", "body", '{"id": 1}'),
        ("requests", "answer", '{"kind": "confirm", "answer": 3}'),
        ("requests", "answer", '{"kind": "approve", "answer": {"decision": "maybe"}}'),
        ("extra", "value", "nonsense"),
    ],
)
async def test_a_row_that_cannot_be_read_is_named_and_nothing_is_loaded(
    db: Database, table: str, column: str, broken: str
) -> None:
    thread, healthy = fresh(), fresh()
    async with db.make_store() as store:
        for each in (thread, healthy):
            await store.append(each, [says("a"), says("b")])
            await store.save_extra(each, {"k": 1})
            await store.save_requests(each, [PersonRequest(id="q", payload=ConfirmRequest(prompt="p"))])
        own = f"thread = (select id from cubepi_threads where thread_id = '{thread}')"
        own += " and message_id = 'b'" if table == "messages" else ""
        seq = "k" if table == "extra" else db.execute(f"select seq from cubepi_{table} where {own}")[0][0]
        db.execute(f"update cubepi_{table} set {column} = '{broken}' where {own}")
        with pytest.raises(StoreCorrupt) as caught:
            await store.load(thread)
        assert caught.value.thread_id == thread
        assert caught.value.row == f"cubepi_{table}." + (f"name = {seq!r}" if table == "extra" else f"seq = {seq}")
        assert "mend or delete the row" in str(caught.value)
        assert await ids(store, healthy) == ["a", "b"]
        await store.append(thread, [says("c")])
        db.execute(f"delete from cubepi_{table} where {own}")
        assert await ids(store, thread) == (["a", "c"] if table == "messages" else ["a", "b", "c"])


# --- lost connections ------------------------------------------------------------------------


async def test_connections_that_were_closed_while_idle_are_replaced_unnoticed(server: Database) -> None:
    thread = fresh()
    async with server.make_store() as store:
        await store.append(thread, [says("a")])
        server.kill(server.others())
        await store.append(thread, [says("b")])
        assert await ids(store, thread) == ["a", "b"]


async def test_a_connection_that_is_lost_in_a_call_is_an_error_and_the_store_goes_on(server: Database) -> None:
    thread = fresh()
    async with server.make_store() as store:
        await store.append(thread, [says("a")])
        async with anyio.create_task_group() as tasks:

            async def append() -> None:
                with pytest.raises(StoreUnavailable, match="try again"):
                    await store.append(thread, [says("b")])
                lost.set()

            lost = anyio.Event()
            with server.held(thread):
                tasks.start_soon(append)
                await server.someone_waits()
                server.kill(server.waiting())
                await lost.wait()
        await store.append(thread, [says("c")])
        assert await ids(store, thread) == ["a", "c"]
