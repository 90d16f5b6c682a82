"""What the package relies on in other libraries holds. Each test fails when the library changes."""

from __future__ import annotations

import asyncio
import inspect
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import anyio
import httpx
import pytest
from anyio import CancelScope, from_thread, to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from cubepi_anyio.foreign.anyio_events import event_class_of
from cubepi_anyio.foreign.anyio_scopes import OwnCancelCount, surroundings_are_cancelled
from cubepi_anyio.foreign.anyio_threads import become_worker_thread, worker_thread_state
from cubepi_anyio.foreign.asyncio_tasks import (
    as_if_between_tasks,
    count_no_requests,
    native_cancel_counter,
    take_back_cancel_requests,
)
from cubepi_anyio.foreign.httpx_body import send_as_one_piece
from cubepi_anyio.foreign.loop_clock import loop_clock
from cubepi_anyio.foreign.pymysql_socket import connection_fileno
from cubepi_anyio.foreign.trio_outcome import error_sent
from cubepi_anyio.foreign.trio_scheduler import seed_scheduler

pytestmark = pytest.mark.anyio

on_asyncio = pytest.mark.parametrize(
    "anyio_backend",
    [pytest.param("asyncio", id="asyncio"), pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")],
)
on_trio = pytest.mark.parametrize("anyio_backend", ["trio"])


def running_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def swallow_a_native_cancellation() -> None:
    running_task().cancel()
    with suppress(asyncio.CancelledError):
        await checkpoint()


# --- asyncio_tasks ---------------------------------------------------------------------------


@on_asyncio
async def test_the_count_of_cancel_requests_outlives_the_error_until_it_is_taken_back() -> None:
    count = native_cancel_counter()
    assert count() == 0
    for expected in (1, 2):
        await swallow_a_native_cancellation()
        assert count() == expected
    take_back_cancel_requests()
    assert count() == 0
    await checkpoint()


@on_trio
async def test_nothing_is_counted_on_trio() -> None:
    assert native_cancel_counter() is count_no_requests
    assert count_no_requests() == 0


def test_nothing_is_counted_where_no_event_loop_runs() -> None:
    assert native_cancel_counter() is count_no_requests


@on_asyncio
async def test_a_scope_that_is_cancelled_between_tasks_reaches_the_task_that_would_be_spared() -> None:
    task = running_task()
    with CancelScope() as spared:
        spared.cancel()
        assert task.cancelling() == 0
        await checkpoint()
    with CancelScope() as scope:
        with as_if_between_tasks():
            assert asyncio.current_task() is None
            scope.cancel()
        assert asyncio.current_task() is task
        assert task.cancelling() == 1
        await checkpoint()
    assert (spared.cancelled_caught, scope.cancelled_caught, task.cancelling()) == (True, True, 0)


# --- anyio_scopes ----------------------------------------------------------------------------


async def requests_left_of_one(around: Callable[[], AbstractContextManager[object]]) -> int:
    """What is left of one cancel request of a task, after a child in its cancelled group left a cancelled scope."""

    async def child(tasks: TaskGroup) -> None:
        with around(), CancelScope() as own:
            own.cancel()
            tasks.cancel_scope.cancel()
            await anyio.sleep_forever()

    await swallow_a_native_cancellation()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child, tasks)
    left = running_task().cancelling()
    take_back_cancel_requests()
    return left


@on_asyncio
async def test_anyio_hands_cancellations_of_a_child_task_on_to_its_parent() -> None:
    assert await requests_left_of_one(nullcontext) == 0


@on_asyncio
async def test_a_wrapped_child_task_does_not_change_the_count_of_its_parent() -> None:
    assert await requests_left_of_one(OwnCancelCount) == 1


async def test_a_wrapped_task_is_cancelled_and_fails_as_any_other() -> None:
    with CancelScope() as scope, OwnCancelCount():
        scope.cancel()
        await checkpoint()
    assert scope.cancelled_caught
    with pytest.raises(LookupError, match="its own"), OwnCancelCount():
        raise LookupError("its own")


async def test_the_scopes_say_whether_the_surroundings_are_cancelled() -> None:
    assert not surroundings_are_cancelled()
    with CancelScope() as outer:
        outer.cancel()
        assert surroundings_are_cancelled()
        with CancelScope(shield=True):
            assert not surroundings_are_cancelled()
            await checkpoint()
        with CancelScope():
            assert surroundings_are_cancelled()
            await checkpoint()
    assert not surroundings_are_cancelled()


# --- anyio_events ----------------------------------------------------------------------------


async def test_the_class_of_an_event_makes_events_of_the_same_loop() -> None:
    first = anyio.Event()
    make = event_class_of(first)
    assert make is not anyio.Event
    second = make()
    assert type(second) is type(first)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.wait)
        await anyio.wait_all_tasks_blocked()
        assert second.statistics().tasks_waiting == 1
        second.set()
    assert second.is_set()


# --- anyio_threads ---------------------------------------------------------------------------


def in_thread_of_ours(function: Callable[[], object]) -> object:
    """What ``function`` returned or raised in a plain thread."""
    outcomes: list[object] = []

    def work() -> None:
        try:
            outcomes.append(function())
        except BaseException as error:  # noqa: ASYNC103 - it is what was asked for
            outcomes.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return outcomes[0]


@on_asyncio
async def test_a_plain_thread_takes_over_what_a_worker_thread_knows() -> None:
    loop = asyncio.get_running_loop()
    scope = CancelScope()
    found: list[object] = []

    def check(state: Any) -> object:
        become_worker_thread(state)
        return from_thread.check_cancelled()

    def call_back(state: Any) -> object:
        become_worker_thread(state)
        return from_thread.run_sync(asyncio.get_running_loop)

    def work() -> None:
        state = worker_thread_state()
        found.append(threading.current_thread().daemon)
        found.append(in_thread_of_ours(lambda: from_thread.run_sync(int)))
        found.append(in_thread_of_ours(lambda: call_back(state)))
        found.append(in_thread_of_ours(lambda: check(state)))
        from_thread.run_sync(scope.cancel)
        found.append(in_thread_of_ours(lambda: check(state)))

    with scope:
        await to_thread.run_sync(work)
    is_daemon, outside, inside, before, after = found
    assert isinstance(outside, anyio.NoEventLoopError)
    assert inside is loop
    assert before is None
    assert isinstance(after, anyio.get_cancelled_exc_class())
    assert not is_daemon  # else a thread of our own would not be needed


@on_trio
async def test_worker_threads_are_daemons_on_trio() -> None:
    assert await to_thread.run_sync(lambda: threading.current_thread().daemon)


# --- trio_outcome ----------------------------------------------------------------------------


class Driven:
    """Drives a coroutine and keeps what is sent into it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.sent: list[object] = []

    def __await__(self) -> Generator[Any, Any, Any]:
        value: object = None
        while True:
            try:
                trap = self.coroutine.send(value)
            except StopIteration as stop:
                return stop.value
            value = yield trap
            self.sent.append(value)


@on_trio
async def test_trio_sends_an_outcome_that_holds_the_error() -> None:
    passed = Driven(checkpoint())
    await passed
    assert passed.sent
    assert [error_sent(value) for value in passed.sent] == [None] * len(passed.sent)
    cancelled = Driven(anyio.sleep_forever())
    with CancelScope() as scope:
        scope.cancel()
        await cancelled
    assert scope.cancelled_caught
    assert isinstance(error_sent(cancelled.sent[-1]), anyio.get_cancelled_exc_class())


@on_asyncio
async def test_asyncio_sends_nothing() -> None:
    event = anyio.Event()
    waiting = Driven(event.wait())
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            await waiting

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        event.set()
    assert waiting.sent == [None] * len(waiting.sent) != []


# --- trio_scheduler --------------------------------------------------------------------------


async def order_of_tasks(seed: int) -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    seed_scheduler(seed)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(note, number)
    return order


@on_trio
async def test_equal_seeds_repeat_the_order_of_tasks_on_trio() -> None:
    orders = [await order_of_tasks(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 1
    assert [await order_of_tasks(seed) for seed in range(20)] == orders


# --- httpx_body ------------------------------------------------------------------------------


def test_a_body_of_httpx_is_an_async_generator() -> None:
    assert inspect.isasyncgenfunction(httpx.ByteStream.__aiter__)


async def test_httpx_sends_a_body_that_is_a_plain_object() -> None:
    bodies: list[bytes] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        assert not inspect.isasyncgen(aiter(request.stream))
        bodies.append(await request.aread())
        return httpx.Response(204)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        request = client.build_request("POST", "http://example.com/", content=b"all of it")
        send_as_one_piece(request, b"all of it")
        response = await client.send(request)
    assert (response.status_code, bodies) == (204, [b"all of it"])


def test_a_client_whose_requests_have_no_stream_sends_its_body_as_it_is() -> None:
    request = object()
    send_as_one_piece(request, b"x")


@pytest.mark.parametrize(
    "name",
    [
        "ConnectTimeout",
        "InvalidURL",
        "LocalProtocolError",
        "StreamError",
        "TimeoutException",
        "TransportError",
        "UnsupportedProtocol",
    ],
)
def test_httpx_has_the_errors_that_are_known_by_name(name: str) -> None:
    assert issubclass(getattr(httpx, name), Exception)


# --- pymysql_socket --------------------------------------------------------------------------


def packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def test_a_connection_of_pymysql_has_a_socket_while_it_is_open() -> None:
    pymysql = pytest.importorskip("pymysql")
    ours, theirs = socket.socketpair()
    greeting = b"\x0a8.0.0\0" + bytes(4) + b"a" * 8 + b"\0" + b"\x00\x82\x21\x02\x00\x08\x00\x15" + bytes(10)
    greeting += b"b" * 12 + b"\0mysql_native_password\0"
    fine = b"\0\0\0\x02\0\0\0"
    theirs.sendall(packet(0, greeting) + packet(2, fine) + packet(1, fine) * 4)
    with theirs:
        connection = pymysql.connections.Connection(user="u", password="", defer_connect=True)
        assert connection_fileno(connection) is None
        connection.connect(ours)
        assert connection_fileno(connection) == ours.fileno()
        connection.close()
        assert connection_fileno(connection) is None


# --- loop_clock ------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_clock_of_the_loop_is_the_one_that_deadlines_are_measured_by() -> None:
    clock = loop_clock()
    before, now, after = anyio.current_time(), clock(), anyio.current_time()
    assert before <= now <= after
    with anyio.CancelScope(deadline=clock()) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
