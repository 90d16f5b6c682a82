"""Claims of runs, questions and answers, in SQL. Each function is the inside of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import AlreadyAnswered, ClaimLost, RunIdTaken, RunNotEnded, ThreadBusy, UnknownRequest
from ...types.run import RunOutcome
from .worker import Transaction

__all__ = (
    "LockedThread",
    "claim",
    "clear_requests",
    "copy_runs",
    "end_of_run",
    "find_thread",
    "give_up_claim",
    "make_thread",
    "release",
    "renew",
    "save_answer",
    "thread_of_claim",
)

_FIND = """select id, claim_token, case when claim_expires_at > $now then 1 else 0 end
from cubepi_threads where thread_id = :thread_id $locked"""
_ENDING = "select ending from cubepi_runs where thread = :thread and run_id = :run_id"
_MAKE = "insert into cubepi_threads (thread_id) values (:thread_id)"


class LockedThread(NamedTuple):
    """The row of a thread, which nobody else can change until the transaction ends."""

    key: int
    claim_token: str | None
    is_claimed: bool
    """Whether the lease of its claim lasts."""


def find_thread(tx: Transaction, thread_id: str) -> LockedThread | None:
    """Lock the thread, if there is one."""
    row = tx.row(_FIND, thread_id=thread_id)
    return None if row is None else LockedThread(row[0], _text(row[1]), row[1] is not None and bool(row[2]))


def make_thread(tx: Transaction, thread_id: str) -> LockedThread:
    """Lock the thread, making it if there is none."""
    thread = find_thread(tx, thread_id)
    if thread is None:
        # Made by another at the same time, it is a conflict of keys: the transaction begins anew and finds it.
        tx.run(_MAKE, thread_id=thread_id)
        thread = find_thread(tx, thread_id)
        assert thread is not None
    return thread


def thread_of_claim(tx: Transaction, thread_id: str, token: str) -> LockedThread:
    """Lock the thread whose claim it is. Raises ``ClaimLost``."""
    thread = find_thread(tx, thread_id)
    if thread is None or thread.claim_token != token:
        raise ClaimLost(thread_id)
    return thread


def claim(tx: Transaction, thread_id: str, run_id: str, token: str, lease_seconds: float) -> int:
    """Claim the thread and return its version. Raises ``RunIdTaken`` or ``ThreadBusy``."""
    thread = make_thread(tx, thread_id)
    run = tx.row(_ENDING, thread=thread.key, run_id=run_id)
    if run is not None and _text(run[0]) not in (None, "suspended"):
        raise RunIdTaken(thread_id, run_id)
    if thread.is_claimed:
        raise ThreadBusy(thread_id)
    tx.run(
        "update cubepi_threads set claim_token = :token, claim_expires_at = $now + :lease where id = :thread",
        token=token,
        lease=lease_seconds,
        thread=thread.key,
    )
    tx.run(
        "insert into cubepi_runs (thread, run_id) values (:thread, :run_id)"
        if run is None
        else "update cubepi_runs set ending = null, ended_as = 0 where thread = :thread and run_id = :run_id",
        thread=thread.key,
        run_id=run_id,
    )
    count = tx.row("select count(*) from cubepi_messages where thread = :thread", thread=thread.key)
    return count[0] if count is not None else 0


def renew(tx: Transaction, thread_id: str, token: str, lease_seconds: float) -> None:
    """Let a claim last longer. Raises ``ClaimLost``."""
    matched = tx.run(
        "update cubepi_threads set claim_expires_at = $now + :lease"
        " where thread_id = :thread_id and claim_token = :token",
        lease=lease_seconds,
        thread_id=thread_id,
        token=token,
    )
    if matched == 0:
        raise ClaimLost(thread_id)


def release(tx: Transaction, thread_id: str, run_id: str, token: str, end: RunOutcome) -> None:
    """Give a claim back, if it is held, and note the end of its run."""
    thread = find_thread(tx, thread_id)
    if thread is None or thread.claim_token != token:
        return
    last = tx.row("select max(ended_as) from cubepi_runs where thread = :thread", thread=thread.key)
    tx.run(
        "update cubepi_runs set ending = :ending, ended_as = :ended_as where thread = :thread and run_id = :run_id",
        ending=end,
        ended_as=1 + ((last[0] if last is not None else 0) or 0),
        thread=thread.key,
        run_id=run_id,
    )
    give_up_claim(tx, thread_id, token)


def give_up_claim(tx: Transaction, thread_id: str, token: str) -> None:
    """Give a claim back as if it had never been, if it is held."""
    tx.run(
        "update cubepi_threads set claim_token = null, claim_expires_at = null"
        " where thread_id = :thread_id and claim_token = :token",
        thread_id=thread_id,
        token=token,
    )


def end_of_run(tx: Transaction, thread_id: str, key: int, run_id: str) -> int:
    """The place of a run's end among those of all runs of the thread. Raises ``RunNotEnded``."""
    run = tx.row(
        "select ended_as from cubepi_runs where thread = :thread and run_id = :run_id"
        " and ending is not null and ending <> 'suspended'",
        thread=key,
        run_id=run_id,
    )
    if run is None:
        raise RunNotEnded(thread_id, run_id)
    return run[0]


def copy_runs(tx: Transaction, key: int, new_key: int, last: int) -> None:
    """Copy the runs that have ended, up to the one whose end was the ``last``-th."""
    tx.run(
        "insert into cubepi_runs (thread, run_id, ending, ended_as)"
        " select :new, run_id, ending, ended_as from cubepi_runs where thread = :thread"
        " and ending is not null and ending <> 'suspended' and ended_as <= :last",
        new=new_key,
        thread=key,
        last=last,
    )


def save_answer(tx: Transaction, thread_id: str, request_id: str, answer: str) -> None:
    """Store the first answer. Raises ``AlreadyAnswered`` or ``UnknownRequest``. Two statements, the first decides."""
    where: dict[str, Any] = {"thread_id": thread_id, "request_id": request_id}
    this = " where request_id = :request_id and thread = (select id from cubepi_threads where thread_id = :thread_id)"
    if tx.run("update cubepi_requests set answer = :answer" + this + " and answer is null", answer=answer, **where) > 0:
        return
    if tx.row("select 1 from cubepi_requests" + this, **where) is None:
        raise UnknownRequest(request_id)
    raise AlreadyAnswered(request_id)


def clear_requests(tx: Transaction, thread_id: str, request_ids: Sequence[str]) -> None:
    """Forget questions."""
    tx.many(
        "delete from cubepi_requests where request_id = :request_id"
        " and thread = (select id from cubepi_threads where thread_id = :thread_id)",
        [{"thread_id": thread_id, "request_id": request_id} for request_id in request_ids],
    )


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
