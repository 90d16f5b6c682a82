"""Checks of checkpointers: several stores and tasks at once, and cancellation wherever it lands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ...checkpointers.base import Checkpointer, RunClaim
from ...errors import AlreadyAnswered, ThreadBusy
from ...types.messages import UserMessage
from ..sweeps.asyncio_steps import run_on_asyncio
from ..sweeps.steps import StepWatch
from ..sweeps.trio_steps import run_on_trio
from ._tools import (
    LEASE_SECONDS,
    StoreFactory,
    Test,
    asks,
    fresh,
    has_only,
    ids_of,
    loaded,
    raises,
    same,
    says,
)

_MOST_STEPS = 500


async def two_stores_share_one_database(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store, make_store() as other:
        await store.append(thread, [says("a")])
        await other.append(thread, [says("b"), says("a", "again")])
        await store.save_requests(thread, [asks("q")])
        await other.save_answer(thread, "q", True)
        records = [await loaded(each, thread) for each in (store, other)]
        same(records[0], records[1], "the thread as two stores see it")
        same([message.text for message in records[0].messages], ["hello", "hello"], "messages")


async def tasks_that_append_at_once_lose_nothing(make_store: StoreFactory) -> None:
    thread, stored = fresh(), 5
    async with make_store() as store, make_store() as other:

        async def write(one: Checkpointer, task: int) -> None:
            for number in range(stored):
                await one.append(thread, [says(f"{task}-{number}-a"), says(f"{task}-{number}-b"), says("shared")])

        async with anyio.create_task_group() as tasks:
            for task in range(6):
                tasks.start_soon(write, (store, other)[task % 2], task)
        ids = await ids_of(store, thread)
        wanted = [f"{task}-{number}-{half}" for task in range(6) for number in range(stored) for half in "ab"]
        same(sorted(ids), sorted([*wanted, "shared"]), "ids")
        for task in range(6):
            own = [name for name in ids if name.startswith(f"{task}-")]
            wanted = [f"{task}-{number}-{half}" for number in range(stored) for half in "ab"]
            same(own, wanted, "the order of one task's messages")


async def tasks_that_append_notes_at_once_lose_none(make_store: StoreFactory) -> None:
    thread, stored = fresh(), 5
    async with make_store() as store, make_store() as other:

        async def write(one: Checkpointer, task: int) -> None:
            for number in range(stored):
                await one.append(thread, [says(f"{task}-{number}")], extra={f"of {task}": number, "shared": number})

        async with anyio.create_task_group() as tasks:
            for task in range(6):
                tasks.start_soon(write, (store, other)[task % 2], task)
        wanted = dict.fromkeys([*(f"of {task}" for task in range(6)), "shared"], stored - 1)
        same((await loaded(store, thread)).extra, wanted, "notes")


async def of_claims_at_once_one_is_granted(make_store: StoreFactory) -> None:
    thread, granted = fresh(), list[str]()
    async with make_store() as store, make_store() as other:

        async def claim(one: Checkpointer, run_id: str) -> None:
            try:
                granted.append((await one.claim_run(thread, run_id, lease_seconds=LEASE_SECONDS)).run_id)
            except ThreadBusy:
                return

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(claim, (store, other)[number % 2], f"r{number}")
    same(len(granted), 1, "claims granted")


async def a_store_can_be_opened_again(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.append(thread, [says("a")])
    async with make_store() as store:
        same(await ids_of(store, thread), ["a"], "messages after opening again")


# --- cancellation ----------------------------------------------------------------------------


async def every_method_is_a_checkpoint(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r", lease_seconds=LEASE_SECONDS)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.load(thread),
            lambda: store.append(thread, [says("a")], claim=claim, extra={"k": 1}),
            lambda: store.append(thread, [], claim=claim),
            lambda: store.save_extra(thread, {"k": 1}),
            lambda: store.claim_run(fresh(), "r", lease_seconds=1),
            lambda: store.renew_claim(claim, lease_seconds=1),
            lambda: store.release_claim(claim, "completed"),
            lambda: store.save_requests(thread, [asks("q")]),
            lambda: store.save_answer(thread, "q", True),
            lambda: store.clear_requests(thread, ["q"]),
            lambda: store.fork(thread, fresh()),
            lambda: store.delete(thread),
            lambda: store.list_threads(),
        ]
        for number, call in enumerate(calls):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await call()
            if not scope.cancelled_caught:
                raise AssertionError(f"call {number} of {len(calls)} did not notice that it had been cancelled before")
        has_only(await loaded(store, thread))


async def a_cancelled_append_is_whole_or_absent(make_store: StoreFactory) -> None:
    for claimed in (False, True):
        await _cancel_appends(make_store, ("a", "b", "c"), claimed=claimed)


async def a_cancelled_append_of_notes_is_whole_or_absent(make_store: StoreFactory) -> None:
    for claimed in (False, True):
        await _cancel_appends(make_store, (), claimed=claimed)


async def _cancel_appends(make_store: StoreFactory, names: tuple[str, ...], *, claimed: bool) -> None:
    """Append messages and two notes, cancelled one step later each time."""
    thread, wanted, notes = fresh(), list[str](), dict[str, Any]()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r", lease_seconds=LEASE_SECONDS) if claimed else None
        for position in range(_MOST_STEPS):
            batch = [says(f"{position}-{name}") for name in names]
            extra = {"last": position, f"note {position}": [position]}

            async def append(batch: list[UserMessage] = batch, extra: dict[str, Any] = extra) -> None:
                await store.append(thread, batch, claim=claim, extra=extra)

            cancelled = await _cancelled_at(position, append)
            record = await store.load(thread)
            stored = [message.id for message in record.messages] if record is not None else []
            added = stored[len(wanted) :]
            same(stored[: len(wanted)], wanted, "what was stored before")
            stored_notes = record.extra if record is not None else {}
            if added or stored_notes != notes or not cancelled:
                same(added, [message.id for message in batch], f"an append cancelled at step {position}")
                same(stored_notes, {**notes, **extra}, f"notes of an append cancelled at step {position}")
            wanted, notes = stored, stored_notes
            if not cancelled:
                return
        raise AssertionError(f"append() had not ended after {_MOST_STEPS} steps")


async def a_cancelled_claim_leaves_the_thread_free(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        for position in range(_MOST_STEPS):
            got: list[RunClaim] = []

            async def claim(run_id: str = f"r{position}", got: list[RunClaim] = got) -> None:
                got.append(await store.claim_run(thread, run_id, lease_seconds=LEASE_SECONDS))

            cancelled = await _cancelled_at(position, claim)
            if got:
                await store.release_claim(got[0], "aborted")
            free = await store.claim_run(thread, f"after {position}", lease_seconds=LEASE_SECONDS)
            await store.release_claim(free, "completed")
            if not cancelled:
                return
        raise AssertionError(f"claim_run() had not ended after {_MOST_STEPS} steps")


async def a_cancelled_answer_is_whole_or_absent(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        for position in range(_MOST_STEPS):
            name = f"q{position}"
            await store.save_requests(thread, [asks(name)])
            cancelled = await _cancelled_at(position, lambda name=name: store.save_answer(thread, name, True))
            answered = (await loaded(store, thread)).requests[-1].answered
            if answered:
                with raises(AlreadyAnswered, "a second answer"):
                    await store.save_answer(thread, name, False)
            else:
                await store.save_answer(thread, name, False)
            if not cancelled:
                same(answered, True, "an answer that was not cancelled")
                return
        raise AssertionError(f"save_answer() had not ended after {_MOST_STEPS} steps")


async def a_store_is_usable_while_calls_are_cancelled_beside(make_store: StoreFactory) -> None:
    thread, kept = fresh(), fresh()
    async with make_store() as store:

        async def disturb(number: int) -> None:
            with anyio.move_on_after(0.001 * (number % 4)):
                await store.append(thread, [says(f"{number}-{name}") for name in "ab"])

        async def write() -> None:
            for number in range(10):
                await store.append(kept, [says(str(number))])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for number in range(20):
                tasks.start_soon(disturb, number)
        same(await ids_of(store, kept), [str(number) for number in range(10)], "messages of the task left alone")
        stored = await ids_of(store, thread)
        halves = [name for name in stored if name[:-1] + ("b" if name.endswith("a") else "a") not in stored]
        same(halves, [], "appends of which only half is stored")


async def _cancelled_at(position: int, work: Callable[[], Awaitable[Any]]) -> bool:
    """Cancel ``work`` from outside after ``position`` scheduler steps of its tasks; whether it came to that."""
    watch, scope = StepWatch(position), anyio.CancelScope()
    watch.act = scope.cancel

    async def scoped() -> None:
        with scope:
            await work()

    if position == 0:
        watch.fire()
    on_trio = anyio.get_cancelled_exc_class().__module__.startswith("trio")
    in_time = await (run_on_trio if on_trio else run_on_asyncio)(scoped, watch, 20.0)
    watch.closed = True
    if not in_time:
        raise AssertionError(f"cancelled at step {position}, the call had not ended 20 seconds later")
    return watch.acted


CHECKS: tuple[Test, ...] = (
    two_stores_share_one_database,
    tasks_that_append_at_once_lose_nothing,
    tasks_that_append_notes_at_once_lose_none,
    of_claims_at_once_one_is_granted,
    a_store_can_be_opened_again,
    every_method_is_a_checkpoint,
    a_cancelled_append_is_whole_or_absent,
    a_cancelled_append_of_notes_is_whole_or_absent,
    a_cancelled_claim_leaves_the_thread_free,
    a_cancelled_answer_is_whole_or_absent,
    a_store_is_usable_while_calls_are_cancelled_beside,
)
