"""Abort signals, shields, and what leaves a task group."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio.concurrency import AbortSource, bare_error, native_cancel_requests, shielded

pytestmark = pytest.mark.anyio


# --- signals ---------------------------------------------------------------------------------


def test_a_signal_is_made_and_set_outside_of_any_event_loop() -> None:
    signal = AbortSource()
    assert (signal.is_set(), signal.reason) == (False, None)
    signal.set("enough")
    signal.set("too late")
    assert (signal.is_set(), signal.reason) == (True, "enough")


def test_a_signal_may_be_set_without_a_reason() -> None:
    signal = AbortSource()
    signal.set()
    signal.set("later")
    assert (signal.is_set(), signal.reason) == (True, None)


async def test_everybody_who_waits_for_a_signal_is_told() -> None:
    signal = AbortSource()
    told: list[str | None] = []

    async def wait() -> None:
        await signal.wait()
        told.append(signal.reason)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            signal.set("enough")
    assert told == ["enough"] * 3


async def test_waiting_for_a_signal_that_is_set_is_a_checkpoint() -> None:
    signal = AbortSource()
    signal.set()
    with anyio.fail_after(5):
        await signal.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await signal.wait()
    assert scope.cancelled_caught


async def test_a_cancelled_wait_leaves_the_signal_as_it_was() -> None:
    signal = AbortSource()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await signal.wait()
    assert scope.cancelled_caught
    assert not signal.is_set()
    signal.set()
    with anyio.fail_after(5):
        await signal.wait()


async def test_a_signal_can_be_read_in_a_worker_thread() -> None:
    signal = AbortSource()
    signal.set("enough")
    assert await anyio.to_thread.run_sync(lambda: (signal.is_set(), signal.reason)) == (True, "enough")


# --- shields ---------------------------------------------------------------------------------


async def test_a_shielded_block_finishes_although_its_surroundings_are_cancelled() -> None:
    steps = 0
    with anyio.CancelScope() as outer:
        outer.cancel()
        with shielded(5) as scope:
            for _ in range(3):
                await checkpoint()
                steps += 1
        assert not scope.cancelled_caught
        await checkpoint()
        steps = -1
    assert steps == 3
    assert outer.cancelled_caught


@pytest.mark.virtual_clock
async def test_a_shield_lasts_no_longer_than_it_was_given() -> None:
    started = anyio.current_time()
    with shielded(2) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - started == 2


# --- native cancellation ---------------------------------------------------------------------


async def test_native_cancellations_are_counted_on_asyncio_and_absent_on_trio(anyio_backend_name: str) -> None:
    assert native_cancel_requests() == 0
    if anyio_backend_name != "asyncio":
        return
    import asyncio  # noqa: PLC0415

    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await checkpoint()
    except asyncio.CancelledError:
        assert native_cancel_requests() == 1
        task.uncancel()
    assert native_cancel_requests() == 0


def test_there_are_no_native_cancellations_outside_of_an_event_loop() -> None:
    assert native_cancel_requests() == 0


# --- groups ----------------------------------------------------------------------------------


async def cancellation() -> BaseException:
    """A cancellation of this backend, as caught."""
    caught: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            caught.append(error)
            raise
    return caught[0]


async def test_a_single_error_leaves_as_itself() -> None:
    error = ValueError("x")
    assert bare_error(ExceptionGroup("ours", [error])) is error


async def test_cancellations_beside_an_error_are_removed() -> None:
    error, cancelled = ValueError("x"), await cancellation()
    assert bare_error(BaseExceptionGroup("ours", [cancelled, error, cancelled])) is error
    nested = BaseExceptionGroup("a nursery's", [cancelled, BaseExceptionGroup("deeper", [cancelled])])
    assert bare_error(BaseExceptionGroup("ours", [nested, error])) is error


async def test_nothing_but_cancellations_is_a_cancellation() -> None:
    cancelled = await cancellation()
    assert bare_error(BaseExceptionGroup("ours", [cancelled, cancelled])) is cancelled


async def test_a_group_of_somebody_else_is_left_as_it_is() -> None:
    theirs = ExceptionGroup("theirs", [ValueError("a")])
    assert bare_error(ExceptionGroup("ours", [theirs])) is theirs
    mixed = BaseExceptionGroup("theirs", [await cancellation(), ValueError("a")])
    assert bare_error(BaseExceptionGroup("ours", [mixed])) is mixed


async def test_several_errors_stay_a_group() -> None:
    errors = [ValueError("a"), KeyError("b")]
    group = ExceptionGroup("ours", errors)
    assert bare_error(group) is group
    left = bare_error(BaseExceptionGroup("ours", [*errors, await cancellation()]))
    assert isinstance(left, ExceptionGroup)
    assert left.message == "ours"
    assert list(left.exceptions) == errors


async def test_an_interrupt_leaves_as_itself() -> None:
    interrupt = KeyboardInterrupt()
    assert bare_error(BaseExceptionGroup("ours", [await cancellation(), interrupt])) is interrupt
