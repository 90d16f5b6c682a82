"""PostgreSQL and MySQL: tables are made when asked for, and what is wrong with a server is said."""

from __future__ import annotations

import select
import socket
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from cubepi_anyio.checkpointers.mysql import MySQLCheckpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sql import schema
from cubepi_anyio.errors import StoreSchemaError, StoreUnavailable, UsageError
from tests.checkpointers.databases import Database, database, fresh, ids, says
from tests.support.servers import shared_mariadb, shared_postgres

pytestmark = pytest.mark.anyio


def mysql(address: dict[str, Any], **changed: Any) -> MySQLCheckpointer:
    options: dict[str, Any] = {**address, **changed}
    return MySQLCheckpointer(**options)


@pytest.fixture(params=["postgres", "mysql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes stores in a database without our tables."""
    name = fresh().replace("-", "_")
    database(request.param, request, tmp_path).execute(
        f"create {'schema' if request.param == 'postgres' else 'database'} {name}"
    )
    if request.param == "postgres":
        conninfo = shared_postgres(request)
        return lambda: PostgresCheckpointer(f"{conninfo} options='-c search_path={name}'")
    address = shared_mariadb(request)
    return lambda: mysql(address, database=name)


async def test_opening_makes_no_tables_and_says_how_they_are_made(empty: Any) -> None:
    with pytest.raises(StoreSchemaError, match=r"no tables.*create_tables\(\)"):
        async with empty():
            pass
    await empty().create_tables()
    async with empty() as store:
        await store.append("t", [says("a")])
        assert await ids(store, "t") == ["a"]


async def test_making_tables_at_once_and_again_changes_nothing(empty: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(empty().create_tables)
    async with empty() as store:
        await store.append("t", [says("a")])
    await empty().create_tables()
    async with empty() as store:
        assert await ids(store, "t") == ["a"]


async def test_tables_of_another_release_are_told_apart(empty: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await empty().create_tables()
    store = empty()
    files = (
        *schema.migration_files(store._dialect.name),
        ("0002_more.sql", "alter table cubepi_runs add column more text;\n"),
    )
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migration_files", lambda dialect: files)
        with pytest.raises(StoreSchemaError, match=r"version 1, and version 2 is needed.*create_tables\(\)"):
            async with empty():
                pass
        await empty().create_tables()
        async with empty() as newer:
            await newer.append("t", [says("a")])
    for attempt in (empty().__aenter__, empty().create_tables):
        with pytest.raises(StoreSchemaError, match=r"version 2.*newer release"):
            await attempt()


async def test_a_table_that_somebody_dropped_is_a_schema_error(empty: Any) -> None:
    await empty().create_tables()
    async with empty() as store:
        await store._connections.run(lambda tx: tx.run("drop table cubepi_messages"))
        with pytest.raises(StoreSchemaError, match="create_tables"):
            await store.append("t", [says("a")])


async def test_a_database_that_may_not_be_written_to_can_be_read(request: pytest.FixtureRequest) -> None:
    conninfo, thread = shared_postgres(request), fresh()
    async with PostgresCheckpointer(conninfo) as store:
        await store.append(thread, [says("a")])
    async with PostgresCheckpointer(f"{conninfo} options='-c default_transaction_read_only=on'") as store:
        with pytest.raises(StoreUnavailable, match="may not be written to"):
            await store.append(thread, [says("b")])
        assert await ids(store, thread) == ["a"]


async def test_a_user_without_rights_is_told_which_are_needed(request: pytest.FixtureRequest) -> None:
    address = shared_mariadb(request)
    admin: Database = database("mysql", request, Path())
    name = "u" + fresh().replace("-", "_")[-19:]
    admin.execute(f"create user {name} identified by 'hunter2'")
    admin.execute(f"grant select on cubepi.* to {name}")
    async with mysql(address, user=name, password="hunter2") as store:
        with pytest.raises(StoreUnavailable, match="grant it select, insert"):
            await store.append(fresh(), [says("a")])
    wrong = mysql(address, user=name, password="swordfish")
    with pytest.raises(StoreUnavailable, match="refuses the user or the password") as caught:
        await wrong.__aenter__()
    assert "swordfish" not in str(caught.value) + repr(caught.value) + repr(wrong)


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Generator[tuple[str, list[int]]]:
    """A way to PostgreSQL that counts the round trips of one connection: the conninfo, and how many there were."""
    conninfo = shared_postgres(request)

    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - an extra

    address, trips = conninfo_to_dict(conninfo), [0]
    port = address.get("port", 5432)
    with TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:  # a short path
        listener.bind(f"{folder}/.s.PGSQL.{port}")
        listener.listen()
        listener.settimeout(10)

        def relay() -> None:
            with listener.accept()[0] as client, socket.socket(socket.AF_UNIX) as server:
                server.connect(f"{address['host']}/.s.PGSQL.{port}")
                last = server
                while True:
                    for end in select.select([client, server], [], [])[0]:
                        data = end.recv(65536)
                        if not data:
                            return
                        trips[0] += end is client and last is server
                        last = end
                        (server if end is client else client).sendall(data)

        thread = threading.Thread(target=relay)
        thread.start()
        yield make_conninfo(conninfo, host=folder), trips
        thread.join()


async def test_an_append_to_postgres_is_one_round_trip_also_with_notes(counted: tuple[str, list[int]]) -> None:
    thread, (conninfo, trips) = fresh(), counted
    async with PostgresCheckpointer(conninfo) as store:
        claim = await store.claim_run(thread, "r", lease_seconds=600)
        before = trips[0]
        for number in range(3):
            batch = [says(f"{number}-{name}") for name in "ab"]
            await store.append(thread, batch, claim=claim, extra={"k": number, f"k{number}": 0})
        assert trips[0] - before == 3
        await store.append(thread, [], claim=claim, extra={"k": 3, "l": 4})
        assert trips[0] - before == 4
        record = await store.load(thread)
        assert record is not None
        assert (len(record.messages), record.extra) == (6, {"k": 3, "k0": 0, "k1": 0, "k2": 0, "l": 4})


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    stores = [
        PostgresCheckpointer("host=/nowhere user=u dbname=d password=hunter2"),
        PostgresCheckpointer("host=127.0.0.1 port=1 user=u dbname=d password=hunter2"),
        MySQLCheckpointer("d", port=1, user="u", password="hunter2"),
    ]
    for store in stores:
        with pytest.raises(StoreUnavailable, match="cannot connect") as caught:
            await store.__aenter__()
        assert "hunter2" not in str(caught.value) + repr(store) + repr(caught.value.__cause__)
    for create_tables in (stores[0].create_tables, stores[2].create_tables):
        with pytest.raises(StoreUnavailable, match="could not be made"):
            await create_tables()


@pytest.mark.parametrize(
    ("driver", "make", "extra"),
    [
        ("psycopg", lambda: PostgresCheckpointer("dbname=d"), "postgres"),
        ("pymysql", lambda: MySQLCheckpointer("d"), "mysql"),
    ],
)
def test_a_missing_driver_names_the_extra(driver: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(UsageError, match=rf"cubepi-anyio\[{extra}\]"):
        make()
