"""``SQLiteCheckpointer``: threads in one file; SQLite's dialect and how to connect."""

from __future__ import annotations

import os
import sqlite3
from typing import Any, ClassVar

from ..errors import StoreCorrupt, StoreError, StoreSchemaError, StoreUnavailable, UsageError
from .sql.dialect import Busy, Dialect, Stopped
from .sql.schema import latest_version, missing_migrations
from .sql.store import SQLCheckpointer

__all__ = ("SQLiteCheckpointer",)

_APPLICATION_ID = 0x63756265
"""Marks a file as one of ours: ``cube``."""


class SQLiteCheckpointer(SQLCheckpointer):
    """A ``Checkpointer`` in a SQLite file, which is made, with its tables, when it is opened for the first time.

    Several stores may use one file, in one process or in several. The file is in WAL mode with ``synchronous=NORMAL``:
    what was stored survives the death of the process at any moment; the last moments before a power cut may be lost,
    the file stays sound. Not for network file systems. Needs nothing but the standard library.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_seconds: float = 5.0) -> None:
        self.path: str = os.fspath(path)
        super().__init__(_SQLite(self.path), busy_timeout_seconds)

    def __repr__(self) -> str:
        return f"<SQLiteCheckpointer {self.path!r}>"


class _SQLite(Dialect):
    name = "sqlite"
    begin = "begin immediate"
    now = "((julianday('now') - 2440587.5) * 86400.0)"
    locked = ""
    skip = "on conflict do nothing"
    pyformat = False
    survives_interrupt = True
    max_connections = 1
    _faults: ClassVar[dict[int, str]] = {
        sqlite3.SQLITE_FULL: "there is no room left",
        sqlite3.SQLITE_READONLY: "it may not be written to",
        sqlite3.SQLITE_PERM: "this program may not use it",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
        sqlite3.SQLITE_IOERR: "the disk reports an error",
        sqlite3.SQLITE_NOMEM: "there is no memory left",
    }

    def __init__(self, path: str) -> None:
        self._path = path

    def connect(self) -> Any:
        # No timeout: while another writes, the store waits where it can be cancelled.
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        connection.text_factory = bytes
        try:
            connection.execute("pragma synchronous = normal")  # the first look into the file, which may be no database
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def prepare(self, connection: Any) -> None:
        if _pragma(connection, "user_version") != latest_version(self.name):
            # A connection that cannot be prepared is closed, which undoes what it has not committed.
            connection.execute("begin immediate")
            self._migrate(connection)
            connection.execute("commit")
        if _pragma(connection, "journal_mode") != b"wal":
            connection.execute("pragma journal_mode = wal")
        self._check_owner(connection)

    def _migrate(self, connection: Any) -> None:
        version = _pragma(connection, "user_version")
        if version or connection.execute("select 1 from sqlite_master").fetchone():
            self._check_owner(connection)
        missing_migrations(self.name, version, connection.execute)
        connection.execute(f"pragma application_id = {_APPLICATION_ID}")
        connection.execute(f"pragma user_version = {latest_version(self.name)}")

    def _check_owner(self, connection: Any) -> None:
        if _pragma(connection, "application_id") != _APPLICATION_ID:
            raise StoreSchemaError(f"{self._path!r} is another program's database; give the store a file of its own")

    def interrupt(self, connection: Any) -> None:
        connection.interrupt()

    def is_alive(self, connection: Any) -> bool:
        return not connection.in_transaction

    def fault(self, error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", None)
        if not isinstance(error, sqlite3.Error) or code is None:
            return self.unexpected(error)
        primary = code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or code == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            return Busy(str(error))
        if primary == sqlite3.SQLITE_INTERRUPT:
            return Stopped()
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreCorrupt("", f"the file {self._path!r}", f"{error}; restore it, or rebuild it with `.recover`")
        if primary in self._faults:
            return StoreUnavailable(f"sqlite: {self._path!r}: {self._faults[primary]} ({error}); nothing was written")
        if "no such table" in str(error) or "no such column" in str(error):
            return StoreSchemaError(f"{self._path!r} lacks our tables ({error}); open a file made by this package")
        return self.unexpected(error)

    def unexpected(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.DataError):
            raise UsageError(f"sqlite cannot store this: {error}")
        return StoreError(f"sqlite: {self._path!r}: {error}")


def _pragma(connection: Any, name: str) -> Any:
    return connection.execute(f"pragma {name}").fetchone()[0]
