"""``MySQLCheckpointer``: threads in MySQL or MariaDB; its dialect and how to connect. Needs the extra ``mysql``."""

from __future__ import annotations

import ssl as ssl_module
from contextlib import suppress
from typing import Any

from ..errors import StoreSchemaError, StoreUnavailable, UsageError
from ..foreign.pymysql_socket import connection_fileno
from .sql.dialect import Busy, Dialect, Lost, Stopped, has_news, sever_socket
from .sql.schema import check_version, latest_version, missing_migrations
from .sql.store import SQLCheckpointer
from .sql.worker import run_whole

__all__ = ("MySQLCheckpointer",)

_WAY_OUT = "call `await store.create_tables()`, or run the .sql files in cubepi_anyio/checkpointers/sql/mysql"


class MySQLCheckpointer(SQLCheckpointer):
    """A ``Checkpointer`` in a MySQL (8.0 and later) or MariaDB (10.5 and later) database.

    Any number of processes may share it. The tables are never made by opening the store: call ``create_tables()`` once,
    or run the package's ``.sql`` files with what manages your database. A cancelled call needs a second connection to
    say ``kill query``. Leases are measured by the database's clock.
    """

    def __init__(
        self,
        database: str,
        *,
        host: str = "127.0.0.1",
        port: int = 3306,
        unix_socket: str | None = None,
        user: str | None = None,
        password: str = "",
        ssl: ssl_module.SSLContext | None = None,
        max_connections: int = 4,
        busy_timeout_seconds: float = 5.0,
        connect_timeout_seconds: int = 5,
    ) -> None:
        address: dict[str, Any] = {"host": host, "port": port}
        if unix_socket is not None:
            address = {"unix_socket": unix_socket}
        account = {"database": database, "user": user, "password": password, "ssl": ssl}
        options = {**address, **account, "connect_timeout": connect_timeout_seconds}
        self._mysql = _MySQL(options, max_connections, busy_timeout_seconds)
        super().__init__(self._mysql, busy_timeout_seconds)

    def __repr__(self) -> str:
        return "<MySQLCheckpointer>"

    async def create_tables(self) -> None:
        """Make the tables, or bring those of an older release up to date.

        The store need not be open. MySQL commits each change of a table by itself: if this fails, call it again. Raises
        ``StoreSchemaError`` for tables of a newer release. A checkpoint; cancelled, it leaves when all is done.
        """
        await run_whole(self._mysql.migrate)


class _MySQL(Dialect):
    name = "mysql"
    begin = "start transaction"
    now = "(unix_timestamp(now(6)) + 0e0)"
    locked = "for update"
    # Not `insert ignore`, which cuts what is too long and turns other errors into warnings as well.
    skip = "on duplicate key update thread = values(thread)"

    def __init__(self, options: dict[str, Any], max_connections: int, busy_seconds: float) -> None:
        self._pymysql = _driver()
        self._options = options
        self._busy_seconds = busy_seconds
        self.max_connections = max_connections

    def connect(self) -> Any:
        # Matched rows are counted, not changed ones: renewing a lease twice in one moment is no loss of it.
        connection = self._pymysql.connect(
            **self._options,
            charset="utf8mb4",
            autocommit=True,
            client_flag=self._pymysql.constants.CLIENT.FOUND_ROWS,
            init_command=f"set session innodb_lock_wait_timeout = {max(1, round(self._busy_seconds))}",
        )
        # Every transaction locks its thread's row first; more locks than that would only meet others'.
        self.execute(connection, "set session transaction isolation level read committed", {})
        return connection

    def prepare(self, connection: Any) -> None:
        check_version(self.name, self._version(connection), _WAY_OUT)

    def migrate(self) -> None:
        """Bring the tables to the latest version."""
        connection = None
        try:
            connection = self.connect()
            # Two programs that start at once would both make the tables. The lock ends with the connection.
            self.execute(connection, "select get_lock(concat('cubepi:', left(database(), 50)), 60)", {})
            version = self._version(connection)
            missing_migrations(self.name, version, lambda sql: self.execute(connection, sql, {}))
            self.execute(connection, "start transaction", {})
            self.execute(connection, "delete from cubepi_schema", {})
            self.execute(connection, f"insert into cubepi_schema values ({latest_version(self.name)})", {})
            self.execute(connection, "commit", {})
        except self._pymysql.Error as error:
            fault = self.fault(error)
            if isinstance(fault, Busy | Lost | Stopped):
                fault = StoreUnavailable(f"mysql: the tables could not be made: {error}; try again")
            raise fault from error
        finally:
            if connection is not None:
                self.close(connection)

    def _version(self, connection: Any) -> int:
        if self.execute(connection, "show tables like 'cubepi_schema'", {}).fetchone() is None:
            return 0
        row = self.execute(connection, "select version from cubepi_schema", {}).fetchone()
        return row[0] if row else 0

    def interrupt(self, connection: Any) -> None:
        second = self._pymysql.connect(**self._options)
        try:
            second.cursor().execute(f"kill query {connection.thread_id()}")
        finally:
            self.close(second)

    def sever(self, connection: Any) -> None:
        with suppress(Exception):
            fileno = connection_fileno(connection)
            if fileno is not None:
                sever_socket(fileno)

    def is_alive(self, connection: Any) -> bool:
        fileno = connection_fileno(connection)  # asking the server would cost a round trip
        return connection.open and fileno is not None and not has_news(fileno)

    def fault(self, error: Exception) -> Exception:
        pymysql = self._pymysql
        code = error.args[0] if isinstance(error, pymysql.Error) and error.args else None
        if code == 1317:
            return Stopped()
        if code in (1213, 1062, 1020):  # deadlock, duplicate key, row changed since it was read
            return Busy(str(error))
        if code in (1146, 1054):
            return StoreSchemaError(f"mysql: {error}; {_WAY_OUT}")
        if code in (1406, 1366, 1264, 1153):
            return UsageError(f"mysql cannot store this: {error}")
        for codes, meaning in _FAULTS.items():
            if code in codes:
                return StoreUnavailable(f"mysql: {meaning} ({error}); nothing was written")
        if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError | OSError):
            return Lost(str(error))
        return self.unexpected(error)


_FAULTS = {
    (1205,): "another transaction held the thread for longer than busy_timeout_seconds: try again",
    (1290, 1792, 1836): "the database may not be written to",
    (1021, 1114, 28): "the server has no room left",
    (1040, 1203, 1226): "the server takes no more connections",
    (1044, 1142, 1227): "this user may not use the tables: grant it select, insert, update and delete",
    (1045, 1698): "the server refuses the user or the password",
    (1049,): "there is no such database",
}
"""Error codes of the server."""


def _driver() -> Any:
    try:
        import pymysql  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("MySQLCheckpointer needs PyMySQL: install cubepi-anyio[mysql]") from error
    return pymysql
