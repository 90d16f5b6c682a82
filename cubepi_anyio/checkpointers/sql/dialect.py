"""``Dialect``: what differs between SQL databases. Everything here runs in worker threads unless it says otherwise."""

from __future__ import annotations

import os
import re
import selectors
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar

from ...errors import StoreError

__all__ = ("Busy", "Dialect", "Lost", "Stopped", "has_news", "sever_socket")


class Busy(Exception):
    """The database asks to try the whole transaction again: it is locked, or two transactions met."""


class Lost(Exception):
    """The connection is gone. Its argument says how."""


class Stopped(Exception):
    """The statement was interrupted, because its call was cancelled."""


class Dialect(ABC):
    """One kind of database: how to connect, to interrupt, to say some things in SQL, and what its errors mean.

    Statements are written with ``:name`` parameters and these words: ``$now`` (seconds since the epoch),
    ``$locked`` (after a ``select``: lock its rows), ``$skip`` (after an ``insert`` into a table with a column
    ``thread``: pass over rows that are there).
    """

    name: ClassVar[str]
    """The folder of its migrations."""
    begin: ClassVar[str]
    """Begins a transaction that may write."""
    now: ClassVar[str]
    locked: ClassVar[str]
    skip: ClassVar[str]
    pyformat: ClassVar[bool] = True
    """Whether the driver writes parameters as ``%(name)s``."""
    survives_interrupt: ClassVar[bool] = False
    """Whether a connection can be used on after a statement was interrupted. Where the interruption is a message of its
    own, it may arrive late and hit the next statement."""
    append_claimed: ClassVar[str | None] = None
    """Appends in one statement, where the database can; returns a row if the claim of ``:token`` holds."""
    append_unclaimed: ClassVar[str | None] = None
    """The same without a claim; returns a row if nobody holds one."""
    max_connections: int

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection that commits each statement by itself. Raises the driver's errors."""

    @abstractmethod
    def prepare(self, connection: Any) -> None:
        """Check the tables of the first connection. Raises ``StoreSchemaError``."""

    @abstractmethod
    def interrupt(self, connection: Any) -> None:
        """End the statement that runs on ``connection`` in another thread. May be called when none runs."""

    @abstractmethod
    def is_alive(self, connection: Any) -> bool:
        """Whether an idle connection can be used, as far as can be told without asking the server."""

    @abstractmethod
    def fault(self, error: Exception) -> Exception:
        """What an error of the driver means: a ``StoreError``, ``Busy``, ``Lost`` or ``Stopped``."""

    def sever(self, connection: Any) -> None:
        """Cut a connection that does not react to ``interrupt``; the thread that uses it gets an error."""
        return

    def close(self, connection: Any) -> None:
        """Close a connection in whatever state it is."""
        with suppress(Exception):
            connection.close()

    def execute(self, connection: Any, sql: str, parameters: Mapping[str, Any]) -> Any:
        """Execute one statement and return its cursor."""
        cursor = connection.cursor()
        cursor.execute(self.spelled(sql), parameters)
        return cursor

    def execute_many(self, connection: Any, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute one statement for each of ``rows``, of which there is at least one."""
        connection.cursor().executemany(self.spelled(sql), rows)

    def spelled(self, sql: str) -> str:
        """The statement as the driver takes it."""
        return _spelled(type(self), sql)

    def unexpected(self, error: Exception) -> StoreError:
        """What no rule of ``fault`` fits."""
        return StoreError(f"{self.name}: {error}")


@lru_cache(maxsize=256)
def _spelled(dialect: type[Dialect], sql: str) -> str:
    for word in ("now", "locked", "skip"):
        sql = sql.replace(f"${word}", getattr(dialect, word))
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", sql) if dialect.pyformat else sql


def has_news(descriptor: int) -> bool:
    """Whether something arrived on an idle connection: nobody asked, so the server has closed it or is about to."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))


def sever_socket(descriptor: int) -> None:
    """Shut a socket down under the driver that uses it."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.shutdown(socket.SHUT_RDWR)
