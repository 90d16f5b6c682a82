"""The SQL databases of the tests, and what a second program can do to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from cubepi_anyio.checkpointers.mysql import MySQLCheckpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer
from cubepi_anyio.checkpointers.sql.store import SQLCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.types import TextContent, UserMessage
from tests.support.servers import shared_mariadb, shared_postgres

KINDS = ("sqlite", "postgres", "mysql")


@dataclass
class Database:
    """One database with our tables."""

    kind: str
    make_store: Callable[..., SQLCheckpointer]
    connect: Callable[[], Any]
    """A connection of another program, which commits each statement by itself."""
    folder: Path

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement as another program."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    @contextmanager
    def held(self, thread_id: str) -> Generator[None, None, None]:
        """Hold the lock that a write to the thread needs."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute("begin immediate" if self.kind == "sqlite" else "begin")
            if self.kind != "sqlite":
                cursor.execute(f"select id from cubepi_threads where thread_id = '{thread_id}' for update")
                assert len(cursor.fetchall()) == 1
            yield
            cursor.execute("rollback")
        finally:
            connection.close()

    async def someone_waits(self) -> None:
        """Return when a statement waits for a lock. SQLite's do not wait: the store comes back and asks again."""
        if self.kind != "sqlite":
            while not await anyio.to_thread.run_sync(self.waiting):  # noqa: ASYNC110 - another program's event
                # MariaDB renews its table of transactions only when nobody has read it for a tenth of a second.
                await anyio.sleep(0.15 if self.kind == "mysql" else 0.01)
        await anyio.wait_all_tasks_blocked()

    def waiting(self) -> list[int]:
        """The server's numbers of the connections that wait for a lock."""
        sql = {
            "postgres": "select pid from pg_stat_activity where wait_event_type = 'Lock'",
            "mysql": "select trx_mysql_thread_id from information_schema.innodb_trx where trx_state = 'LOCK WAIT'",
        }[self.kind]
        return [row[0] for row in self.execute(sql)]

    def kill(self, connections: list[int]) -> None:
        """End connections, as an administrator would, and return when they have ended."""
        for number in connections:
            with suppress(Exception):  # it has ended meanwhile
                kill = f"select pg_terminate_backend({number}, 5000)" if self.kind == "postgres" else f"kill {number}"
                self.execute(kill)
        while self.kind == "mysql" and set(connections) & set(self.others()):
            pass

    def others(self) -> list[int]:
        """The server's numbers of all connections but this one."""
        sql = {
            "postgres": "select pid from pg_stat_activity"
            " where pid <> pg_backend_pid() and backend_type = 'client backend'",
            "mysql": "select id from information_schema.processlist where id <> connection_id() and user = 'root'",
        }[self.kind]
        return [row[0] for row in self.execute(sql)]


def database(kind: str, request: pytest.FixtureRequest, folder: Path) -> Database:
    """The database of that kind; skips the test where its server is not installed."""
    if kind == "sqlite":
        path = folder / "threads.db"
        return Database(
            kind,
            lambda **options: SQLiteCheckpointer(path, **options),
            lambda: sqlite3.connect(path, isolation_level=None, timeout=5),
            folder,
        )
    if kind == "postgres":
        import psycopg  # noqa: PLC0415 - an extra

        conninfo = shared_postgres(request)
        return Database(
            kind,
            lambda **options: PostgresCheckpointer(conninfo, **options),
            lambda: psycopg.connect(conninfo, autocommit=True),
            folder,
        )
    import pymysql  # noqa: PLC0415 - an extra

    address = shared_mariadb(request)
    return Database(
        kind,
        lambda **options: MySQLCheckpointer(**address, **options),
        lambda: pymysql.connect(**address, autocommit=True),
        folder,
    )


def fresh() -> str:
    """A thread id that nobody has."""
    return f"thread-{uuid4().hex}"


def says(name: str, text: str = "hello") -> UserMessage:
    return UserMessage(id=name, content=[TextContent(text=text)])


async def ids(store: SQLCheckpointer, thread_id: str) -> list[str]:
    record = await store.load(thread_id)
    return [] if record is None else [message.id for message in record.messages]
