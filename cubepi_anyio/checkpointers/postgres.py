"""``PostgresCheckpointer``: threads in PostgreSQL; its dialect and how to connect. Needs the extra ``postgres``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import StoreSchemaError, StoreUnavailable, UsageError
from .sql.dialect import Busy, Dialect, Lost, Stopped, has_news, sever_socket
from .sql.schema import check_version, latest_version, missing_migrations
from .sql.store import SQLCheckpointer
from .sql.worker import run_whole

__all__ = ("PostgresCheckpointer",)

_WAY_OUT = "call `await store.create_tables()`, or run the .sql files in cubepi_anyio/checkpointers/sql/postgres"
_ADVISORY_KEY = 0x6375626570690001
_STORED = """stored as (
    insert into cubepi_messages (thread, message_id, run_id, body)
    select held.id, new.message_id, new.run_id, new.body
    from held, unnest(:message_ids::text[], :run_ids::text[], :bodys::text[])
        with ordinality as new (message_id, run_id, body, place)
    order by new.place on conflict do nothing
), noted as (
    insert into cubepi_extra (thread, name, value)
    select held.id, note.name, note.value from held, unnest(:names::text[], :values::text[]) as note (name, value)
    on conflict (thread, name) do update set value = excluded.value
) select id from held"""
"""Stores messages and notes of the row in ``held``: of none, if the claim does not hold."""


class PostgresCheckpointer(SQLCheckpointer):
    """A ``Checkpointer`` in a PostgreSQL database, shared by any number of processes.

    ``conninfo`` is what libpq takes: ``postgresql://user@host/database`` or ``host=… dbname=…``; it may name a
    ``search_path`` in its ``options``. The tables are never made by opening the store: call ``create_tables()`` once,
    or run the package's ``.sql`` files with what manages your database. An append is one statement and one round trip.
    Leases are measured by the database's clock.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        max_connections: int = 4,
        busy_timeout_seconds: float = 5.0,
        connect_timeout_seconds: int = 5,
    ) -> None:
        self._postgres = _Postgres(conninfo, max_connections, busy_timeout_seconds, connect_timeout_seconds)
        super().__init__(self._postgres, busy_timeout_seconds)

    def __repr__(self) -> str:
        return "<PostgresCheckpointer>"

    async def create_tables(self) -> None:
        """Make the tables, or bring those of an older release up to date, in one transaction.

        The store need not be open. Raises ``StoreSchemaError`` for tables of a newer release. A checkpoint; cancelled,
        it leaves when the transaction has ended.
        """
        await run_whole(self._postgres.migrate)


class _Postgres(Dialect):
    name = "postgres"
    begin = "begin"
    now = "extract(epoch from clock_timestamp())"
    locked = "for no key update"
    skip = "on conflict do nothing"
    append_claimed = f"""with held as materialized (
    select id from cubepi_threads where thread_id = :thread_id and claim_token = :token for no key update
), {_STORED}"""
    # The update changes nothing: it locks the row that is there, and returns it as it returns a new one.
    append_unclaimed = f"""with held as (
    insert into cubepi_threads as t (thread_id) values (:thread_id)
    on conflict (thread_id) do update set thread_id = t.thread_id
        where t.claim_token is null or t.claim_expires_at <= $now
    returning id
), {_STORED}"""

    def __init__(self, conninfo: str, max_connections: int, busy_seconds: float, connect_seconds: int) -> None:
        self._psycopg = _driver()
        self._conninfo = conninfo
        self._busy_seconds = busy_seconds
        self._connect_seconds = connect_seconds
        self.max_connections = max_connections

    def connect(self) -> Any:
        connection = self._psycopg.connect(self._conninfo, autocommit=True, connect_timeout=self._connect_seconds)
        connection.execute(f"set lock_timeout = {max(1, int(self._busy_seconds * 1000))}")
        return connection

    def prepare(self, connection: Any) -> None:
        check_version(self.name, self._version(connection), _WAY_OUT)

    def migrate(self) -> None:
        """Bring the tables to the latest version."""
        connection = None
        try:
            connection = self.connect()
            connection.execute("begin")
            # Two programs that start at once would both make the tables.
            connection.execute(f"select pg_advisory_xact_lock({_ADVISORY_KEY})")
            version = self._version(connection)
            missing_migrations(self.name, version, connection.execute)
            connection.execute("delete from cubepi_schema")
            connection.execute("insert into cubepi_schema values (%s)", (latest_version(self.name),))
            connection.execute("commit")
        except self._psycopg.Error as error:
            fault = self.fault(error)
            if isinstance(fault, Busy | Lost | Stopped):
                fault = StoreUnavailable(f"postgres: the tables could not be made: {error}; try again")
            raise fault from error
        finally:
            if connection is not None:
                self.close(connection)

    def _version(self, connection: Any) -> int:
        if connection.execute("select to_regclass('cubepi_schema')").fetchone()[0] is None:
            return 0
        row = connection.execute("select version from cubepi_schema").fetchone()
        return row[0] if row else 0

    def interrupt(self, connection: Any) -> None:
        connection.cancel_safe(timeout=2.0)

    def sever(self, connection: Any) -> None:
        with suppress(Exception):
            sever_socket(connection.fileno())

    def is_alive(self, connection: Any) -> bool:
        if connection.closed or connection.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            return False
        return not has_news(connection.fileno())

    def fault(self, error: Exception) -> Exception:
        psycopg = self._psycopg
        state: str = getattr(error, "sqlstate", None) or ""
        if state == "57014":
            return Stopped()
        if state in ("40001", "40P01", "23505"):  # serialization failure, deadlock, unique violation
            return Busy(str(error))
        if state in ("42P01", "42703", "3F000"):
            return StoreSchemaError(f"postgres: {error}; {_WAY_OUT}")
        if state[:2] == "22" or state == "54000" or isinstance(error, psycopg.DataError):
            return UsageError(f"postgres cannot store this: {error}")
        for prefix, meaning in _FAULTS.items():
            if state.startswith(prefix):
                return StoreUnavailable(f"postgres: {meaning} ({error}); nothing was written")
        if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Lost(str(error))
        return self.unexpected(error)


_FAULTS = {
    "55P03": "another transaction held the thread for longer than busy_timeout_seconds: try again",
    "57P": "the server is shutting down or has ended the connection: try again",
    "08": "the server cannot be reached",
    "53": "the server has no room, memory or connections left",
    "58": "the server's disk reports an error",
    "25006": "the database may not be written to",
    "42501": "this user may not use the tables: grant it select, insert, update and delete",
    "28": "the server refuses the user or the password",
    "3D": "there is no such database",
}
"""Beginnings of SQLSTATE codes."""


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("PostgresCheckpointer needs psycopg: install cubepi-anyio[postgres]") from error
    return psycopg
