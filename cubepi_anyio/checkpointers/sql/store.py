"""``SQLCheckpointer``: threads in the tables of a SQL database, by one algorithm over all dialects.

Each method checks and encodes what it was given on the event loop, and is one transaction in a worker thread.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from ...concurrency import run_to_end
from ...errors import ClaimLost, StoreError, StoreUnavailable, ThreadBusy, ThreadExists, ThreadNotFound, UsageError
from ...types.hitl import PersonAnswer, PersonRequest
from ...types.json import JsonObject
from ...types.messages import Message
from ...types.run import RunOutcome
from ..base import RunClaim, StoredRequest, ThreadRecord
from ..codec import (
    decode_answer,
    decode_messages,
    decode_request,
    decode_value,
    encode_answer,
    encode_message,
    encode_request,
    encode_value,
)
from . import runs
from .dialect import Busy, Dialect
from .worker import Connections, Transaction

__all__ = ("SQLCheckpointer",)

_T = TypeVar("_T")

_LONGEST_ID_BYTES = 512
_ALL_RUNS = 2**62
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.001, 0.05
_UNDO_SECONDS = 5.0

_INSERT_MESSAGE = """insert into cubepi_messages (thread, message_id, run_id, body)
values (:thread, :message_id, :run_id, :body) $skip"""
_INSERT_REQUEST = "insert into cubepi_requests (thread, request_id, body) values (:thread, :request_id, :body) $skip"
# One statement, so that all of it is of one moment.
_LOAD = """select 0, id, thread_id, parent_thread_id, null from cubepi_threads where thread_id = :thread_id
union all select 1, m.seq, null, m.body, null
    from cubepi_messages m join cubepi_threads t on m.thread = t.id where t.thread_id = :thread_id
union all select 2, r.seq, r.request_id, r.body, r.answer
    from cubepi_requests r join cubepi_threads t on r.thread = t.id where t.thread_id = :thread_id
union all select 3, 0, e.name, e.value, null
    from cubepi_extra e join cubepi_threads t on e.thread = t.id where t.thread_id = :thread_id"""
_TABLES = ("cubepi_messages", "cubepi_requests", "cubepi_extra", "cubepi_runs")


class SQLCheckpointer:
    """A ``Checkpointer`` in a SQL database; the base of the stores for SQLite, PostgreSQL and MySQL.

    Open it with ``async with``, in one event loop at a time; any number of tasks may use it then. A cancelled call
    interrupts the database and leaves when its thread has ended: what it was writing is there or is not, and nothing of
    it is written later. ``busy_timeout_seconds`` bounds how long a call waits for other writers before it raises
    ``StoreUnavailable``.
    """

    def __init__(self, dialect: Dialect, busy_timeout_seconds: float) -> None:
        self._connections = Connections(dialect)
        self._dialect = dialect
        self._busy_timeout_seconds = busy_timeout_seconds
        self._is_open = False
        self._calls = 0
        self._last_call_ended: anyio.Event | None = None

    async def __aenter__(self) -> Self:
        """Open the store. See ``Checkpointer.__aenter__``."""
        if self._is_open:
            raise UsageError("the store is open already; share it, or make a second one")
        self._is_open = True
        try:
            await self._retried(self._connections.open)
        except BaseException:
            self._is_open = False
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close the store when its calls have ended, also when cancelled."""
        self._is_open = False
        await run_to_end(self._close)  # noqa: ASYNC102 - shields itself

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._calls:
                self._last_call_ended = anyio.Event()
                await self._last_call_ended.wait()
                self._last_call_ended = None
            await self._connections.close()

    async def load(self, thread_id: str) -> ThreadRecord | None:
        """See ``Checkpointer.load``."""
        _check_id("thread", thread_id)
        # Read in the thread as well: a long thread takes its time.
        return await self._run(lambda tx: _record(thread_id, tx.rows(_LOAD, thread_id=thread_id)), whole=False)

    async def append(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        claim: RunClaim | None = None,
        extra: JsonObject | None = None,
    ) -> None:
        """See ``Checkpointer.append``."""
        _check_id("thread", thread_id)
        rows: list[dict[str, Any]] = []
        for message in messages:
            body = encode_message(message).decode()
            _check_id("message", message.id)
            rows.append({"message_id": message.id, "run_id": _checked_run(message.run_id), "body": body})
        notes = _rows_of_notes(extra or {})
        token = claim.token if claim is not None else None
        sql = self._dialect.append_claimed if claim else self._dialect.append_unclaimed
        if sql is None:
            await self._run(lambda tx: _append(tx, thread_id, rows, notes, token))
        else:
            await self._run(lambda tx: _append_at_once(tx, sql, thread_id, rows, notes, token), whole=False)

    async def save_extra(self, thread_id: str, extra: JsonObject) -> None:
        """See ``Checkpointer.save_extra``."""
        _check_id("thread", thread_id)
        notes = _rows_of_notes(extra)
        await self._run(lambda tx: _save_notes(tx, runs.make_thread(tx, thread_id).key, notes))

    # --- claims ------------------------------------------------------------------------------

    async def claim_run(self, thread_id: str, run_id: str, *, lease_seconds: float) -> RunClaim:
        """See ``Checkpointer.claim_run``. Cancelled, it gives back what it may have claimed."""
        _check_id("thread", thread_id)
        _check_id("run", run_id)
        token, about_to_commit = os.urandom(16).hex(), list[bool]()

        def claim(tx: Transaction) -> int:
            version = runs.claim(tx, thread_id, run_id, token, lease_seconds)
            about_to_commit.append(True)
            return version

        try:
            version = await self._run(claim)
        except anyio.get_cancelled_exc_class():
            if about_to_commit:
                await run_to_end(lambda: self._undo_claim(thread_id, token))  # noqa: ASYNC102 - shields itself
            raise
        return RunClaim(thread_id, run_id, token, version)

    async def _undo_claim(self, thread_id: str, token: str) -> None:
        with anyio.move_on_after(_UNDO_SECONDS, shield=True):
            try:
                await self._counted(lambda tx: runs.give_up_claim(tx, thread_id, token), whole=False)
            except StoreError:
                # Then it ends with its lease.
                return

    async def renew_claim(self, claim: RunClaim, *, lease_seconds: float) -> None:
        """See ``Checkpointer.renew_claim``."""
        await self._run(lambda tx: runs.renew(tx, claim.thread_id, claim.token, lease_seconds), whole=False)

    async def release_claim(self, claim: RunClaim, end: RunOutcome) -> None:
        """See ``Checkpointer.release_claim``."""
        await self._run(lambda tx: runs.release(tx, claim.thread_id, claim.run_id, claim.token, end))

    # --- questions ---------------------------------------------------------------------------

    async def save_requests(self, thread_id: str, requests: Sequence[PersonRequest]) -> None:
        """See ``Checkpointer.save_requests``."""
        _check_id("thread", thread_id)
        rows = [{"request_id": request.id, "body": encode_request(request).decode()} for request in requests]
        for row in rows:
            _check_id("question", row["request_id"])

        def save(tx: Transaction) -> None:
            thread = runs.make_thread(tx, thread_id)
            tx.many(_INSERT_REQUEST, [{"thread": thread.key, **row} for row in rows])

        await self._run(save)

    async def save_answer(self, thread_id: str, request_id: str, answer: PersonAnswer) -> None:
        """See ``Checkpointer.save_answer``."""
        _check_id("thread", thread_id)
        _check_id("question", request_id)
        text = encode_answer(answer).decode()
        await self._run(lambda tx: runs.save_answer(tx, thread_id, request_id, text), whole=False)

    async def clear_requests(self, thread_id: str, request_ids: Sequence[str]) -> None:
        """See ``Checkpointer.clear_requests``."""
        _check_id("thread", thread_id)
        for request_id in request_ids:
            _check_id("question", request_id)
        await self._run(lambda tx: runs.clear_requests(tx, thread_id, request_ids))

    # --- whole threads -----------------------------------------------------------------------

    async def fork(self, thread_id: str, new_thread_id: str, *, after_run_id: str | None = None) -> None:
        """See ``Checkpointer.fork``. The messages are copied within the database."""
        _check_id("thread", thread_id)
        _check_id("thread", new_thread_id)
        await self._run(lambda tx: _fork(tx, thread_id, new_thread_id, _checked_run(after_run_id)))

    async def delete(self, thread_id: str) -> None:
        """See ``Checkpointer.delete``."""
        _check_id("thread", thread_id)

        def delete(tx: Transaction) -> None:
            thread = runs.find_thread(tx, thread_id)
            if thread is None:
                return
            for table in _TABLES:
                tx.run(f"delete from {table} where thread = :thread", thread=thread.key)
            tx.run("delete from cubepi_threads where id = :thread", thread=thread.key)

        await self._run(delete)

    async def list_threads(self) -> list[str]:
        """See ``Checkpointer.list_threads``."""
        rows = await self._run(lambda tx: tx.rows("select thread_id from cubepi_threads order by id"), whole=False)
        return [_name(row[0]) for row in rows]

    # --- waiting for other writers -----------------------------------------------------------

    async def _run(self, function: Callable[[Transaction], _T], *, whole: bool = True) -> _T:
        if not self._is_open:
            raise UsageError("the store is not open; use it as `async with store:`")
        return await self._counted(function, whole=whole)

    async def _counted(self, function: Callable[[Transaction], _T], *, whole: bool) -> _T:
        """Run ``function``, with closing waiting for it, also while it waits for other writers."""
        self._calls += 1
        try:
            return await self._retried(lambda: self._connections.run(function, whole=whole))
        finally:
            self._calls -= 1
            if not self._calls and self._last_call_ended is not None:
                self._last_call_ended.set()

    async def _retried(self, attempt: Callable[[], Any]) -> Any:
        """Try again while the database is busy: waiting here, and not in the driver, can be cancelled."""
        deadline = anyio.current_time() + self._busy_timeout_seconds
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            try:
                return await attempt()
            except Busy as busy:
                if anyio.current_time() >= deadline:
                    raise StoreUnavailable(
                        f"{self._dialect.name}: others held the database for {self._busy_timeout_seconds:g} seconds"
                        f" ({busy}); nothing was written, try again or raise busy_timeout_seconds"
                    ) from busy
            # Two that met once would meet again if they waited equally long.
            await anyio.sleep(wait_seconds * random.uniform(0.5, 1.0))
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)


def _append(
    tx: Transaction, thread_id: str, rows: list[dict[str, Any]], notes: list[dict[str, str]], token: str | None
) -> None:
    if token is not None:
        thread = runs.thread_of_claim(tx, thread_id, token)
    else:
        thread = runs.make_thread(tx, thread_id)
        if thread.is_claimed:
            raise ThreadBusy(thread_id)
    tx.many(_INSERT_MESSAGE, [{"thread": thread.key, **row} for row in rows])
    _save_notes(tx, thread.key, notes)


def _append_at_once(
    tx: Transaction,
    sql: str,
    thread_id: str,
    rows: list[dict[str, Any]],
    notes: list[dict[str, str]],
    token: str | None,
) -> None:
    columns = {f"{name}s": [row[name] for row in rows] for name in ("message_id", "run_id", "body")}
    columns |= {f"{name}s": [note[name] for note in notes] for name in ("name", "value")}
    claimed = {} if token is None else {"token": token}
    if tx.row(sql, thread_id=thread_id, **claimed, **columns) is None:
        raise ThreadBusy(thread_id) if token is None else ClaimLost(thread_id)


def _save_notes(tx: Transaction, key: int, notes: list[dict[str, str]]) -> None:
    """Replace the notes of a thread whose row is locked."""
    old = [{"thread": key, "name": note["name"]} for note in notes]
    tx.many("delete from cubepi_extra where thread = :thread and name = :name", old)
    new = [{"thread": key, **note} for note in notes]
    tx.many("insert into cubepi_extra (thread, name, value) values (:thread, :name, :value)", new)


def _fork(tx: Transaction, thread_id: str, new_thread_id: str, after_run_id: str | None) -> None:
    thread = runs.find_thread(tx, thread_id)
    if thread is None:
        raise ThreadNotFound(thread_id)
    if tx.row("select 1 from cubepi_threads where thread_id = :thread_id", thread_id=new_thread_id) is not None:
        raise ThreadExists(new_thread_id)
    last = _ALL_RUNS if after_run_id is None else runs.end_of_run(tx, thread_id, thread.key, after_run_id)
    tx.run(
        "insert into cubepi_threads (thread_id, parent_thread_id) values (:new, :parent)",
        new=new_thread_id,
        parent=thread_id,
    )
    new = runs.make_thread(tx, new_thread_id)
    runs.copy_runs(tx, thread.key, new.key, last)
    ended = (
        " and (run_id is null or run_id in (select run_id from cubepi_runs where thread = :new))"
        if after_run_id is not None
        else ""
    )
    tx.run(
        "insert into cubepi_messages (thread, message_id, run_id, body) select :new, message_id, run_id, body"
        " from cubepi_messages where thread = :thread" + ended + " order by seq",
        new=new.key,
        thread=thread.key,
    )
    tx.run(
        "insert into cubepi_extra (thread, name, value)"
        " select :new, name, value from cubepi_extra where thread = :thread",
        new=new.key,
        thread=thread.key,
    )


# --- rows to records -------------------------------------------------------------------------


def _record(thread_id: str, rows: list[tuple[Any, ...]]) -> ThreadRecord | None:
    if not rows:
        return None
    rows.sort(key=lambda row: (row[0], row[1]))
    record = ThreadRecord(thread_id)
    messages: list[tuple[bytes | str, str]] = []
    for kind, seq, name, value, answer in rows:
        if kind == 1:
            messages.append((_data(value), f"cubepi_messages.seq = {seq}"))
        elif kind == 0:
            record.parent_thread_id = None if value is None else _name(value)
        elif kind == 2:
            record.requests.append(_stored_request(thread_id, f"cubepi_requests.seq = {seq}", value, answer))
        else:
            row = f"cubepi_extra.name = {_name(name)!r}"
            record.extra[_name(name)] = decode_value(_data(value), thread_id, row)
    record.messages = decode_messages(messages, thread_id)
    record.version = len(messages)
    return record


def _stored_request(thread_id: str, row: str, body: Any, answer: Any) -> StoredRequest:
    request = decode_request(_data(body), thread_id, row)
    if answer is None:
        return StoredRequest(request)
    return StoredRequest(request, decode_answer(_data(answer), thread_id, row), answered=True)


def _data(value: Any) -> bytes | str:
    """JSON as it came from the driver; of another type only where somebody else wrote it."""
    return value if isinstance(value, bytes | str) else repr(value)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def _rows_of_notes(extra: JsonObject) -> list[dict[str, str]]:
    for name in extra:
        _check_id("extra key", name)
    return [{"name": name, "value": encode_value(value).decode()} for name, value in extra.items()]


def _checked_run(run_id: str | None) -> str | None:
    if run_id is not None:
        _check_id("run", run_id)
    return run_id


def _check_id(what: str, name: str) -> None:
    """Refuse ids that one of the databases cannot keep as they are."""
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the {what} id {name!r} has half a character and cannot be stored") from error
    if size > _LONGEST_ID_BYTES or "\0" in name:
        raise UsageError(f"the {what} id {name[:40]!r}... cannot be stored: at most 512 bytes, without U+0000")
