"""What the checks of checkpointers are written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from uuid import uuid4

from ...checkpointers.base import Checkpointer, ThreadRecord
from ...types.content import TextContent
from ...types.hitl import ConfirmRequest, PersonRequest, RequestPayload
from ...types.messages import UserMessage
from ...types.run import RunOutcome

StoreFactory = Callable[[], AbstractAsyncContextManager[Checkpointer]]
"""Gives an open store; each time on the same database."""

Test = Callable[[StoreFactory], Awaitable[None]]
LEASE_SECONDS = 600.0
"""Longer than any check takes."""


def same(got: object, wanted: object, what: str) -> None:
    """Raise unless what came is what was wanted."""
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, got {got!r}")


@contextmanager
def raises(error_type: type[Exception], what: str) -> Generator[None, None, None]:
    """Raise unless the block raises an error of that type."""
    try:
        yield
    except error_type:
        return
    except Exception as error:
        raise AssertionError(f"{what}: expected {error_type.__name__}, got {error!r}") from error
    raise AssertionError(f"{what}: expected {error_type.__name__}, and nothing was raised")


def fresh() -> str:
    """A thread id nobody else has."""
    return f"thread-{uuid4().hex}"


def says(name: str, text: str = "hello", run_id: str | None = None) -> UserMessage:
    """A message."""
    return UserMessage(id=name, content=[TextContent(text=text)], run_id=run_id)


def asks(name: str, payload: RequestPayload | None = None) -> PersonRequest:
    """A question."""
    return PersonRequest(id=name, payload=payload or ConfirmRequest(prompt="May I?"), tool_call_id="call")


async def loaded(store: Checkpointer, thread_id: str) -> ThreadRecord:
    """The thread, which is there."""
    record = await store.load(thread_id)
    if record is None:
        raise AssertionError(f"thread {thread_id!r} was made, and load() finds none")
    return record


async def ids_of(store: Checkpointer, thread_id: str) -> list[str]:
    """The ids of a thread's messages, in order."""
    record = await store.load(thread_id)
    return [] if record is None else [message.id for message in record.messages]


def has_only(record: ThreadRecord, *names: str) -> None:
    """The thread has these messages, and nothing else."""
    same([message.id for message in record.messages], list(names), "messages")
    same((len(record.extra), len(record.requests), record.parent_thread_id), (0, 0, None), "the rest of the thread")


async def whole_run(
    store: Checkpointer, thread_id: str, run_id: str, *names: str, end: RunOutcome | None = "completed"
) -> None:
    """A whole run that appends messages."""
    claim = await store.claim_run(thread_id, run_id, lease_seconds=LEASE_SECONDS)
    await store.append(thread_id, [says(name, run_id=run_id) for name in names], claim=claim)
    if end is not None:
        await store.release_claim(claim, end)
