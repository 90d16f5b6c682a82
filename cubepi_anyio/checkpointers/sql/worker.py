"""``Connections``: blocking database connections on worker threads, whose calls can be cancelled.

A cancelled call interrupts its statement and waits until its thread has ended: what was being written is then either
there or not, and nothing of it is written later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import checkpoint

from ...concurrency import run_to_end
from ...errors import CubepiError, StoreUnavailable
from .dialect import Busy, Dialect, Lost, Stopped

__all__ = ("Connections", "Transaction", "run_whole")

_T = TypeVar("_T")

_LET_FINISH_SECONDS = 0.02
"""How long a cancelled call waits before it interrupts: most have ended by then, and their connection is as good as
before. One that was interrupted is not kept, and a new one takes longer than that."""
_ASK_AGAIN_SECONDS = 0.05
"""An interruption that arrives between two statements is lost, so it is repeated until the thread has ended."""
_SEVER_SECONDS = 5.0
"""How long a cancelled call waits for the server to react, before its connection is cut."""


class _Call(Generic[_T]):
    """One call of a function in a worker thread, which is waited for however the call ends."""

    def __init__(self, function: Callable[[_Call[_T]], _T]) -> None:
        self._function = function
        self._gate = threading.Lock()
        self._ended: anyio.Event | None = None
        self._state = "new"
        self.stopped: bool = False
        """Whether the call was cancelled; read between two statements."""
        self.value: _T | None = None
        self.error: Exception | None = None

    async def run(self, limiter: CapacityLimiter, stop: Callable[[float], None]) -> _T:
        """Run the function and return its value or raise its error. A checkpoint.

        When cancelled, ``stop`` is called in threads with the seconds since then, again and again, until the function
        has ended.
        """
        try:
            await to_thread.run_sync(self._body, abandon_on_cancel=True, limiter=limiter)
        except anyio.get_cancelled_exc_class():
            # The function may have ended in this very moment; then its value is dropped, not its effect.
            with self._gate:
                self.stopped = True
                if self._state == "running":
                    self._ended = anyio.Event()
                self._state = "over" if self._state == "new" else self._state
            if self._ended is not None:
                # It is shielded, and cuts the connection in the end.
                await self._wait_for_thread(self._ended, limiter, stop)  # noqa: ASYNC102
            raise
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] - set when there is no error

    def _body(self) -> None:
        with self._gate:
            if self._state == "over":
                return
            self._state = "running"
        try:
            self.value = self._function(self)
        except Exception as error:
            self.error = error
        finally:
            with self._gate:
                self._state = "over"
                ended = self._ended
            if ended is not None:
                with suppress(RuntimeError, anyio.RunFinishedError):
                    from_thread.run_sync(ended.set)

    async def _wait_for_thread(
        self, ended: anyio.Event, limiter: CapacityLimiter, stop: Callable[[float], None]
    ) -> None:
        async def insist() -> None:
            began = anyio.current_time()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_LET_FINISH_SECONDS):
                    await ended.wait()
                while not ended.is_set():
                    await to_thread.run_sync(stop, anyio.current_time() - began, limiter=limiter)
                    with anyio.move_on_after(_ASK_AGAIN_SECONDS):
                        await ended.wait()

        await run_to_end(insist)


async def run_whole(function: Callable[[], object]) -> None:
    """Run ``function`` in a worker thread and wait for it, also when cancelled, by whatever way. A checkpoint."""
    await checkpoint()
    await run_to_end(lambda: to_thread.run_sync(function))


class Transaction:
    """What a function of the store sees of its connection. In its worker thread only."""

    def __init__(self, dialect: Dialect, connection: Any, call: _Call[Any]) -> None:
        self._dialect = dialect
        self._connection = connection
        self._call = call

    def run(self, sql: str, **parameters: Any) -> int:
        """Execute one statement; the number of rows it matched."""
        return self._execute(sql, parameters).rowcount

    def many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute one statement for each of ``rows``."""
        self._check()
        if rows:
            self._dialect.execute_many(self._connection, sql, rows)

    def row(self, sql: str, **parameters: Any) -> tuple[Any, ...] | None:
        """The first row of a query."""
        return self._execute(sql, parameters).fetchone()

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return list(self._execute(sql, parameters).fetchall())

    def _execute(self, sql: str, parameters: Mapping[str, Any]) -> Any:
        self._check()
        return self._dialect.execute(self._connection, sql, parameters)

    def _check(self) -> None:
        if self._call.stopped:
            raise Stopped


class Connections:
    """The connections of one store: opened when needed, kept while they work. For one event loop at a time."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._idle: list[Any] = []
        self._is_open = False
        self._gate = threading.Lock()
        """Held to read or change the two above."""
        self._slots = CapacityLimiter(dialect.max_connections)
        self._threads = CapacityLimiter(2 * dialect.max_connections)
        """One thread for each call, and one to interrupt it."""

    async def open(self) -> None:
        """Open the first connection and check its tables. Raises ``StoreError``; cancelled, nothing is open.

        Raises ``Busy`` where it should be tried again.
        """
        connection = await self._connect(prepare=True)
        with self._gate:
            self._is_open = True
            self._idle = [connection]

    async def close(self) -> None:
        """Close the connections; no call may be running. Shield it, and run it in a task of its own."""
        with self._gate:
            self._is_open = False
            idle, self._idle = self._idle, []

        def close_all() -> None:
            for connection in idle:
                self._dialect.close(connection)

        await to_thread.run_sync(close_all, limiter=self._threads)

    async def run(self, function: Callable[[Transaction], _T], *, whole: bool = True) -> _T:
        """Run ``function`` in a transaction and commit it; if it raises or is cancelled, roll back. A checkpoint.

        ``whole=False``: each statement is a transaction by itself. Raises ``StoreError``, or ``Busy`` where the call
        should be made again.
        """
        async with self._slots:
            connection = self._usable() or await self._connect()
            call = _Call[_T](lambda call: self._transact(function, connection, call, whole))
            usable, survives = True, self._dialect.survives_interrupt

            def stop(seconds: float) -> None:
                nonlocal usable
                usable = survives
                # The server may be unreachable, or the statement have ended: both show in the call itself.
                with suppress(Exception):
                    self._dialect.interrupt(connection)
                if seconds > _SEVER_SECONDS:
                    self._dialect.sever(connection)

            try:
                return await call.run(self._threads, stop)
            except Lost as lost:
                usable = False
                raise StoreUnavailable(
                    f"{self._dialect.name}: the connection was lost, maybe after the write: {lost}; try again"
                ) from lost
            finally:
                if usable:
                    self._keep_or_close(connection)
                else:
                    self._dialect.close(connection)

    def _usable(self) -> Any:
        while True:
            with self._gate:
                connection = self._idle.pop() if self._idle else None
            if connection is None or self._dialect.is_alive(connection):
                return connection
            self._dialect.close(connection)

    # --- in worker threads -------------------------------------------------------------------

    def _transact(self, function: Callable[[Transaction], _T], connection: Any, call: _Call[_T], whole: bool) -> _T:
        dialect, transaction = self._dialect, Transaction(self._dialect, connection, call)
        try:
            if not whole:
                return function(transaction)
            transaction.run(dialect.begin)
            value = function(transaction)
            transaction.run("commit")
            return value
        except Exception as error:
            if whole:
                # Whether it worked shows when the connection is given back: one inside a transaction is not alive.
                with suppress(Exception):
                    dialect.execute(connection, "rollback", {})
            if isinstance(error, CubepiError | Busy | Stopped):
                raise
            fault = dialect.fault(error)
            raise (fault if fault.args else type(fault)(str(error))) from error

    async def _connect(self, *, prepare: bool = False) -> Any:
        """Open a connection. Nothing of a thread is written on the way, so a cancelled attempt is left to its thread.

        What it opens is for the next call: otherwise calls with little time would open connections for ever.
        """
        gate, abandoned, opened = threading.Lock(), False, None

        def connect() -> None:
            nonlocal opened
            connection = self._opened(prepare)
            with gate:
                opened = connection
                if not abandoned:
                    return
            self._keep_or_close(connection)

        try:
            await to_thread.run_sync(connect, abandon_on_cancel=True, limiter=self._threads)
        except anyio.get_cancelled_exc_class():
            with gate:
                abandoned, ended = True, opened
            if ended is not None:
                self._keep_or_close(ended)
            raise
        return opened

    def _keep_or_close(self, connection: Any) -> None:
        """Keep a connection for the next call, if it is good for one."""
        if self._dialect.is_alive(connection):
            with self._gate:
                if self._is_open and len(self._idle) < self._dialect.max_connections:
                    self._idle.append(connection)
                    return
        self._dialect.close(connection)

    def _opened(self, prepare: bool) -> Any:
        connection = None
        try:
            connection = self._dialect.connect()
            if prepare:
                self._dialect.prepare(connection)
        except Exception as error:
            if connection is not None:
                self._dialect.close(connection)
            if isinstance(error, CubepiError | Busy):
                raise
            fault = self._dialect.fault(error)
            if isinstance(fault, Lost | Stopped):
                fault = StoreUnavailable(f"{self._dialect.name}: cannot connect: {error}")
            raise fault from error
        return connection
