"""What every checkpointer promises, as checks that run on any: for the stores of this package and for yours.

::

    @asynccontextmanager
    async def make_store():  # entered twice, it gives two stores on one database
        async with MyCheckpointer(path) as store:
            yield store


    @pytest.mark.parametrize("check", CHECKPOINTER_CHECKS, ids=lambda check: check.name)
    async def test_my_store(check):
        await check(make_store)

A check needs no empty database: it uses thread ids nobody else has. It raises ``AssertionError``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import anyio

from ..checkpointers.base import Checkpointer, RunClaim, RunEnd, StoredRequest, ThreadRecord
from ..errors import (
    AlreadyAnswered,
    ClaimLost,
    RunIdTaken,
    RunNotEnded,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
    UnknownRequest,
    UsageError,
)
from ..types.content import DocumentContent, ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ..types.hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    PersonAnswer,
    PersonRequest,
    Question,
    RequestPayload,
)
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.usage import Usage
from .asyncio_steps import run_on_asyncio
from .steps import StepWatch
from .trio_steps import run_on_trio

__all__ = ("CHECKPOINTER_CHECKS", "CheckpointerCheck", "StoreFactory", "check_checkpointer")

StoreFactory = Callable[[], AbstractAsyncContextManager[Checkpointer]]
"""Gives an open store; each time on the same database."""

_Test = Callable[[StoreFactory], Awaitable[None]]
_LEASE_SECONDS = 600.0
_MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class CheckpointerCheck:
    """One promise and its proof."""

    name: str
    """The promise, with underscores."""
    test: _Test

    async def __call__(self, make_store: StoreFactory) -> None:
        """Prove it on the stores ``make_store`` gives. A checkpoint. Raises ``AssertionError``."""
        await self.test(make_store)


async def check_checkpointer(make_store: StoreFactory) -> None:
    """Run all checks, one after the other. Raises the ``AssertionError`` of the first that fails, with its name."""
    for check in CHECKPOINTER_CHECKS:
        try:
            await check(make_store)
        except Exception as error:
            error.add_note(f"in the check {check.name}")
            raise


# --- tools of the checks ---------------------------------------------------------------------


def _same(got: object, wanted: object, what: str) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, got {got!r}")


@contextmanager
def _raises(error_type: type[Exception], what: str) -> Generator[None, None, None]:
    try:
        yield
    except error_type:
        return
    except Exception as error:
        raise AssertionError(f"{what}: expected {error_type.__name__}, got {error!r}") from error
    raise AssertionError(f"{what}: expected {error_type.__name__}, and nothing was raised")


def _fresh() -> str:
    return f"thread-{uuid4().hex}"


def _says(name: str, text: str = "hello", run_id: str | None = None) -> UserMessage:
    return UserMessage(id=name, content=[TextContent(text=text)], run_id=run_id)


def _asks(name: str, payload: RequestPayload | None = None) -> PersonRequest:
    return PersonRequest(id=name, payload=payload or ConfirmRequest(prompt="May I?"), tool_call_id="call")


async def _loaded(store: Checkpointer, thread_id: str) -> ThreadRecord:
    record = await store.load(thread_id)
    if record is None:
        raise AssertionError(f"thread {thread_id!r} was made, and load() finds none")
    return record


async def _ids(store: Checkpointer, thread_id: str) -> list[str]:
    record = await store.load(thread_id)
    return [] if record is None else [message.id for message in record.messages]


def _has_only(record: ThreadRecord, *names: str) -> None:
    """The thread has these messages, and nothing else."""
    _same([message.id for message in record.messages], list(names), "messages")
    _same((len(record.extra), len(record.requests), record.parent_thread_id), (0, 0, None), "the rest of the thread")


async def _run(store: Checkpointer, thread_id: str, run_id: str, *names: str, end: RunEnd | None = "completed") -> None:
    """A whole run that appends messages."""
    claim = await store.claim_run(thread_id, run_id, lease_seconds=_LEASE_SECONDS)
    await store.append(thread_id, [_says(name, run_id=run_id) for name in names], claim=claim)
    if end is not None:
        await store.release_claim(claim, end)


def _every_kind_of_message() -> list[Message]:
    text = "text, é, 漢字, 🎈, \u0000, \u2028, \\ \" ' % :name %s $now"
    return [
        UserMessage(
            id="user",
            timestamp=1.25,
            metadata={"nested": {"list": [1, 2.5, None, True, "x"]}, "": ""},
            content=[
                TextContent(text=text),
                ImageContent(source="aGk=", media_type="image/png"),
                DocumentContent(source="aGk=", title="t"),
            ],
        ),
        AssistantMessage(
            id="assistant",
            run_id="run",
            stop_reason="tool_use",
            usage=Usage(input_tokens=3, output_tokens=4, cache_read_tokens=5),
            provider_id="p",
            model_id="m",
            api="a",
            content=[
                ThinkingContent(thinking="hm", signature="s"),
                TextContent(text=text),
                ToolCall(id="call", name="tool", arguments={"big": 2**60, "text": text}),
                ToolCall(id="bad", name="tool", invalid_arguments='{"cut'),
                OpaqueContent(kind="search", data={"k": [1]}),
            ],
        ),
        ToolResultMessage(
            id="result",
            run_id="run",
            tool_call_id="call",
            tool_name="tool",
            is_error=True,
            content=[TextContent(text="x" * 100_000)],
            details={"exit_code": 1, "none": None},
        ),
    ]


# --- threads and messages --------------------------------------------------------------------


async def _what_was_stored_is_loaded_as_it_was(make_store: StoreFactory) -> None:
    thread, messages = _fresh(), _every_kind_of_message()
    async with make_store() as store:
        await store.append(thread, messages)
        record = await _loaded(store, thread)
        _same(record.messages, messages, "messages")
        _same(record.thread_id, thread, "thread_id")
        _has_only(record, "user", "assistant", "result")


async def _an_unknown_thread_is_none(make_store: StoreFactory) -> None:
    async with make_store() as store:
        _same(await store.load(_fresh()), None, "load() of an unknown thread")


async def _messages_are_kept_in_the_order_of_their_appending(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.append(thread, [_says("z"), _says("a")])
        await store.append(thread, [_says("m")])
        await store.append(thread, [])
        _same(await _ids(store, thread), ["z", "a", "m"], "order")


async def _a_message_is_stored_once(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.append(thread, [_says("a", "first"), _says("a", "twice in one call")])
        await store.append(thread, [_says("b"), _says("a", "again"), _says("c")])
        messages = (await _loaded(store, thread)).messages
        _same([message.id for message in messages], ["a", "b", "c"], "ids")
        _same(messages[0].text, "first", "the first message of an id stands")


async def _a_message_without_an_id_is_refused(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        with _raises(UsageError, "append() of a message without an id"):
            await store.append(thread, [_says("a"), _says("")])
        _same(await store.load(thread), None, "nothing of the refused call is stored")


async def _equal_ids_in_two_threads_are_two_messages(make_store: StoreFactory) -> None:
    one, other = _fresh(), _fresh()
    async with make_store() as store:
        await store.append(one, [_says("a", "one")])
        await store.append(other, [_says("a", "other")])
        texts = [(await _loaded(store, thread)).messages[0].text for thread in (one, other)]
        _same(texts, ["one", "other"], "texts")


async def _ids_that_look_alike_are_different(make_store: StoreFactory) -> None:
    thread = _fresh()
    names = ["a", "A", "a ", "á", "%", "_", "'", '"', "\\", "漢", "x" * 500]
    async with make_store() as store:
        await store.append(thread, [_says(name) for name in names])
        _same(await _ids(store, thread), names, "ids of messages")
        await store.append(thread.upper(), [_says("other")])
        _same(await _ids(store, thread), names, "a thread of another case is another one")


async def _the_version_counts_messages(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r1", lease_seconds=_LEASE_SECONDS)
        _same(claim.version, 0, "version of an empty thread")
        await store.append(thread, [_says("a"), _says("b")], claim=claim)
        await store.append(thread, [_says("b")], claim=claim)
        _same((await _loaded(store, thread)).version, 2, "version after two messages, one of them twice")
        await store.release_claim(claim, "completed")
        _same((await store.claim_run(thread, "r2", lease_seconds=_LEASE_SECONDS)).version, 2, "version of a claim")


async def _values_json_cannot_express_do_not_stop_a_run(make_store: StoreFactory) -> None:
    thread = _fresh()
    odd = ToolResultMessage(
        id="a",
        tool_call_id="c",
        tool_name="t",
        content=[TextContent(text="half a character: \ud83d")],
        details={"object": object(), "nan": float("nan"), "bytes": b"\xff", "set": {1}},
    )
    async with make_store() as store:
        await store.append(thread, [odd])
        loaded = (await _loaded(store, thread)).messages[0]
        _same(loaded.text, "half a character: \ufffd", "text")
        details = loaded.details if isinstance(loaded, ToolResultMessage) else None
        _same(details, {"object": "<object>", "nan": None, "bytes": "<bytes>", "set": [1]}, "details")


async def _nothing_live_is_taken_in_or_handed_out(make_store: StoreFactory) -> None:
    thread = _fresh()
    message, extra = _says("a", "as it was"), {"list": [1]}
    async with make_store() as store:
        await store.append(thread, [message])
        await store.save_extra(thread, extra)
        await store.save_requests(thread, [_asks("q", AskRequest(questions=[Question(key="k", prompt="p")]))])
        message.content.append(TextContent(text=", changed later"))
        extra["list"].append(2)
        for _ in range(2):
            record = await _loaded(store, thread)
            _same([each.text for each in record.messages], ["as it was"], "texts")
            _same((record.extra, len(record.requests)), ({"list": [1]}, 1), "extra and questions")
            record.messages[0].content.clear()
            record.messages.clear()
            record.extra["list"].clear()
            record.requests.clear()


async def _extra_is_merged_key_by_key(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.save_extra(thread, {"a": {"x": 1}, "b": [1], "n": None})
        await store.save_extra(thread, {"a": {"y": 2}, "c": "\u0000é"})
        await store.save_extra(thread, {})
        wanted = {"a": {"y": 2}, "b": [1], "n": None, "c": "\u0000é"}
        _same((await _loaded(store, thread)).extra, wanted, "extra")


async def _threads_are_listed_oldest_first(make_store: StoreFactory) -> None:
    threads = [_fresh() for _ in range(3)]
    async with make_store() as store:
        await store.append(threads[0], [])
        await store.save_extra(threads[1], {})
        await store.claim_run(threads[2], "r", lease_seconds=_LEASE_SECONDS)
        listed = await store.list_threads()
        _same([thread for thread in listed if thread in threads], threads, "threads")


async def _a_deleted_thread_leaves_nothing(make_store: StoreFactory) -> None:
    other, thread = _fresh(), _fresh()
    async with make_store() as store:
        # The one to delete comes last: a database may give its number to the next.
        for each in (other, thread):
            await _run(store, each, "r", "a")
            await store.save_extra(each, {"k": 1})
            await store.save_requests(each, [_asks("q")])
        await store.delete(thread)
        await store.delete(thread)
        _same(await store.load(thread), None, "load() of a deleted thread")
        await _run(store, thread, "r", "b")
        record = await _loaded(store, thread)
        _has_only(record, "b")
        _same(await _ids(store, other), ["a"], "the other thread")


# --- claims ----------------------------------------------------------------------------------


async def _one_run_at_a_time_holds_a_thread(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store, make_store() as other:
        claim = await store.claim_run(thread, "r1", lease_seconds=_LEASE_SECONDS)
        _same((claim.thread_id, claim.run_id), (thread, "r1"), "claim")
        with _raises(ThreadBusy, "a second claim"):
            await other.claim_run(thread, "r2", lease_seconds=_LEASE_SECONDS)
        with _raises(ThreadBusy, "a second claim of the same run"):
            await store.claim_run(thread, "r1", lease_seconds=_LEASE_SECONDS)
        with _raises(ThreadBusy, "append() without the claim"):
            await other.append(thread, [_says("a")])
        await store.append(thread, [_says("b")], claim=claim)
        _same(await _ids(other, thread), ["b"], "messages")
        await store.release_claim(claim, "completed")
        await other.append(thread, [_says("c")])
        await other.claim_run(thread, "r2", lease_seconds=_LEASE_SECONDS)


async def _a_lease_that_ran_out_is_taken_over(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store, make_store() as other:
        lost = await store.claim_run(thread, "r1", lease_seconds=0)
        await store.append(thread, [_says("a")], claim=lost)
        await store.renew_claim(lost, lease_seconds=0)
        taken = await other.claim_run(thread, "r2", lease_seconds=_LEASE_SECONDS)
        if taken.token == lost.token:
            raise AssertionError("two claims have one token")
        await _has_no_rights(store, lost)
        await other.append(thread, [_says("c")], claim=taken)
        await other.renew_claim(taken, lease_seconds=_LEASE_SECONDS)
        _same(await _ids(store, thread), ["a", "c"], "messages")


async def _has_no_rights(store: Checkpointer, claim: RunClaim) -> None:
    with _raises(ClaimLost, "append() with a lost claim"):
        await store.append(claim.thread_id, [_says("b")], claim=claim)
    with _raises(ClaimLost, "renew_claim() of a lost claim"):
        await store.renew_claim(claim, lease_seconds=_LEASE_SECONDS)
    await store.release_claim(claim, "completed")


async def _a_renewed_lease_lasts(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r1", lease_seconds=0)
        for _ in range(2):
            await store.renew_claim(claim, lease_seconds=_LEASE_SECONDS)
        with _raises(ThreadBusy, "a claim while a renewed lease lasts"):
            await store.claim_run(thread, "r2", lease_seconds=_LEASE_SECONDS)


async def _a_claim_given_back_or_of_a_deleted_thread_is_lost(make_store: StoreFactory) -> None:
    async with make_store() as store:
        released = await store.claim_run(_fresh(), "r", lease_seconds=_LEASE_SECONDS)
        await store.release_claim(released, "aborted")
        await _has_no_rights(store, released)
        deleted = await store.claim_run(_fresh(), "r", lease_seconds=_LEASE_SECONDS)
        await store.delete(deleted.thread_id)
        await _has_no_rights(store, deleted)
        _same(await store.load(deleted.thread_id), None, "a deleted thread")


async def _a_run_id_names_one_run(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        for end in ("completed", "aborted", "error", "limit"):
            await _run(store, thread, end, end=end)
            with _raises(RunIdTaken, f"a second run of the id of one that ended {end}"):
                await store.claim_run(thread, end, lease_seconds=_LEASE_SECONDS)
        await _run(store, thread, "waits", end="suspended")
        again = await store.claim_run(thread, "waits", lease_seconds=0)
        await store.claim_run(thread, "waits", lease_seconds=_LEASE_SECONDS)
        with _raises(ClaimLost, "append() of a run that was claimed anew"):
            await store.append(thread, [_says("a")], claim=again)
        await store.claim_run(_fresh(), "completed", lease_seconds=_LEASE_SECONDS)


# --- questions -------------------------------------------------------------------------------


async def _questions_and_answers_are_loaded_as_they_were(make_store: StoreFactory) -> None:
    thread = _fresh()
    decision = ApproveAnswer(decision="edit", reason="é", edited_args={"x": [1]})
    cases: list[tuple[str, RequestPayload, PersonAnswer]] = [
        ("z", ConfirmRequest(prompt="p", details={"k": 1}), False),
        ("y", ApproveRequest(tool_name="rm", args={"path": "/"}), decision),
        ("x", AskRequest(questions=[Question(key="decision", prompt="p")]), {"decision": "approve"}),
        ("w", AskRequest(questions=[Question(key="k", prompt="p")]), {}),
    ]
    async with make_store() as store:
        requests = [_asks(name, payload) for name, payload, _ in cases]
        await store.save_requests(thread, requests)
        wanted = [StoredRequest(request) for request in requests]
        _same((await _loaded(store, thread)).requests, wanted, "questions, oldest first")
        for name, _, answer in cases:
            await store.save_answer(thread, name, answer)
        wanted = [StoredRequest(_asks(name, payload), answer, True) for name, payload, answer in cases]
        _same((await _loaded(store, thread)).requests, wanted, "answers")


async def _a_question_is_stored_once(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.save_requests(thread, [_asks("q")])
        await store.save_answer(thread, "q", True)
        await store.save_requests(thread, [_asks("q", AskRequest(questions=[])), _asks("r")])
        wanted = [StoredRequest(_asks("q"), True, True), StoredRequest(_asks("r"))]
        _same((await _loaded(store, thread)).requests, wanted, "questions")


async def _the_first_answer_stands(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store, make_store() as other:
        await store.save_requests(thread, [_asks("q")])
        told: list[tuple[bool, str]] = []

        async def answer(one: Checkpointer, value: bool) -> None:
            try:
                await one.save_answer(thread, "q", value)
                told.append((value, "stored"))
            except AlreadyAnswered:
                told.append((value, "already answered"))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(answer, (store, other)[number % 2], number < 3)
        stored = [value for value, outcome in told if outcome == "stored"]
        _same(len(stored), 1, "answers that were taken")
        _same((await _loaded(store, thread)).requests, [StoredRequest(_asks("q"), stored[0], True)], "the answer")


async def _an_answer_needs_its_question(make_store: StoreFactory) -> None:
    thread, other = _fresh(), _fresh()
    async with make_store() as store:
        await store.save_requests(other, [_asks("q")])
        with _raises(UnknownRequest, "save_answer() in an unknown thread"):
            await store.save_answer(thread, "q", True)
        await store.append(thread, [])
        with _raises(UnknownRequest, "save_answer() to a question of another thread"):
            await store.save_answer(thread, "q", True)


async def _cleared_questions_are_forgotten(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.clear_requests(thread, ["q"])
        await store.save_requests(thread, [_asks("q"), _asks("r"), _asks("s")])
        await store.save_answer(thread, "q", True)
        await store.clear_requests(thread, ["q", "s", "unknown"])
        _same((await _loaded(store, thread)).requests, [StoredRequest(_asks("r"))], "questions")
        with _raises(UnknownRequest, "save_answer() to a cleared question"):
            await store.save_answer(thread, "q", True)
        await store.save_requests(thread, [_asks("q")])
        wanted = [StoredRequest(_asks("r")), StoredRequest(_asks("q"))]
        _same((await _loaded(store, thread)).requests, wanted, "questions")


# --- forks -----------------------------------------------------------------------------------


async def _a_fork_is_a_copy_with_a_life_of_its_own(make_store: StoreFactory) -> None:
    thread, copy = _fresh(), _fresh()
    async with make_store() as store:
        await store.append(thread, _every_kind_of_message())
        await store.save_extra(thread, {"k": [1]})
        await store.save_requests(thread, [_asks("q")])
        await _run(store, thread, "goes on", "m", end=None)
        await store.fork(thread, copy)
        record, original = await _loaded(store, copy), await _loaded(store, thread)
        _same(record.messages, original.messages, "messages")
        _same((record.extra, record.parent_thread_id), ({"k": [1]}, thread), "the copy")
        _same(len(record.requests), 0, "questions of the copy")
        _same(record.version, 4, "version")
        await store.append(copy, [_says("only in the copy")])
        await store.save_extra(copy, {"k": 2})
        await store.delete(copy)
        _same(await _loaded(store, thread), original, "the original")


async def _a_fork_after_a_run_leaves_out_what_ended_later(make_store: StoreFactory) -> None:
    thread, copy = _fresh(), _fresh()
    async with make_store() as store:
        await store.append(thread, [_says("before")])
        await _run(store, thread, "r1", "m1", end="aborted")
        await _run(store, thread, "waits", "m2", end="suspended")
        await _run(store, thread, "r2", "m3")
        await _run(store, thread, "waits", "m4")
        await store.append(thread, [_says("after")])
        await _run(store, thread, "goes on", "m5", end=None)
        await store.fork(thread, copy, after_run_id="r2")
        _same(await _ids(store, copy), ["before", "m1", "m3", "after"], "messages")
        with _raises(RunIdTaken, "a run of the copied past"):
            await store.claim_run(copy, "r1", lease_seconds=_LEASE_SECONDS)
        await _run(store, copy, "r3", "m6")
        again = _fresh()
        await store.fork(copy, again, after_run_id="r1")
        _same(await _ids(store, again), ["before", "m1", "after"], "messages of the fork of a fork")


async def _a_fork_that_cannot_be_is_refused(make_store: StoreFactory) -> None:
    thread, other = _fresh(), _fresh()
    async with make_store() as store:
        with _raises(ThreadNotFound, "fork() of an unknown thread"):
            await store.fork(thread, _fresh())
        await store.append(other, [_says("a")])
        await _run(store, thread, "waits", end="suspended")
        await _run(store, thread, "goes on", end=None)
        with _raises(ThreadExists, "fork() to a thread that is there"):
            await store.fork(thread, other)
        for run_id in ("unknown", "waits", "goes on"):
            copy = _fresh()
            with _raises(RunNotEnded, f"fork() after the run {run_id!r}"):
                await store.fork(thread, copy, after_run_id=run_id)
            _same(await store.load(copy), None, "the copy of a refused fork")
        _same(await _ids(store, other), ["a"], "the thread that was there")


# --- several at once -------------------------------------------------------------------------


async def _two_stores_share_one_database(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store, make_store() as other:
        await store.append(thread, [_says("a")])
        await other.append(thread, [_says("b"), _says("a", "again")])
        await store.save_requests(thread, [_asks("q")])
        await other.save_answer(thread, "q", True)
        records = [await _loaded(each, thread) for each in (store, other)]
        _same(records[0], records[1], "the thread as two stores see it")
        _same([message.text for message in records[0].messages], ["hello", "hello"], "messages")


async def _tasks_that_append_at_once_lose_nothing(make_store: StoreFactory) -> None:
    thread, stored = _fresh(), 5
    async with make_store() as store, make_store() as other:

        async def write(one: Checkpointer, task: int) -> None:
            for number in range(stored):
                await one.append(thread, [_says(f"{task}-{number}-a"), _says(f"{task}-{number}-b"), _says("shared")])

        async with anyio.create_task_group() as tasks:
            for task in range(6):
                tasks.start_soon(write, (store, other)[task % 2], task)
        ids = await _ids(store, thread)
        wanted = [f"{task}-{number}-{half}" for task in range(6) for number in range(stored) for half in "ab"]
        _same(sorted(ids), sorted([*wanted, "shared"]), "ids")
        for task in range(6):
            own = [name for name in ids if name.startswith(f"{task}-")]
            wanted = [f"{task}-{number}-{half}" for number in range(stored) for half in "ab"]
            _same(own, wanted, "the order of one task's messages")


async def _of_claims_at_once_one_is_granted(make_store: StoreFactory) -> None:
    thread, granted = _fresh(), list[str]()
    async with make_store() as store, make_store() as other:

        async def claim(one: Checkpointer, run_id: str) -> None:
            try:
                granted.append((await one.claim_run(thread, run_id, lease_seconds=_LEASE_SECONDS)).run_id)
            except ThreadBusy:
                return

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(claim, (store, other)[number % 2], f"r{number}")
    _same(len(granted), 1, "claims granted")


async def _a_store_can_be_opened_again(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        await store.append(thread, [_says("a")])
    async with make_store() as store:
        _same(await _ids(store, thread), ["a"], "messages after opening again")


# --- cancellation ----------------------------------------------------------------------------


async def _every_method_is_a_checkpoint(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r", lease_seconds=_LEASE_SECONDS)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.load(thread),
            lambda: store.append(thread, [_says("a")], claim=claim),
            lambda: store.save_extra(thread, {"k": 1}),
            lambda: store.claim_run(_fresh(), "r", lease_seconds=1),
            lambda: store.renew_claim(claim, lease_seconds=1),
            lambda: store.release_claim(claim, "completed"),
            lambda: store.save_requests(thread, [_asks("q")]),
            lambda: store.save_answer(thread, "q", True),
            lambda: store.clear_requests(thread, ["q"]),
            lambda: store.fork(thread, _fresh()),
            lambda: store.delete(thread),
            lambda: store.list_threads(),
        ]
        for number, call in enumerate(calls):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await call()
            if not scope.cancelled_caught:
                raise AssertionError(f"call {number} of {len(calls)} did not notice that it had been cancelled before")
        _has_only(await _loaded(store, thread))


async def _a_cancelled_append_is_whole_or_absent(make_store: StoreFactory) -> None:
    thread, wanted = _fresh(), list[str]()
    names = ("a", "b", "c")
    async with make_store() as store:
        for position in range(_MOST_STEPS):
            batch = [_says(f"{position}-{name}") for name in names]
            cancelled = await _cancelled_at(position, lambda batch=batch: store.append(thread, batch))
            stored = await _ids(store, thread)
            added = stored[len(wanted) :]
            _same(stored[: len(wanted)], wanted, "what was stored before")
            if added or not cancelled:
                _same(added, [message.id for message in batch], f"an append cancelled at step {position}")
            wanted = stored
            if not cancelled:
                return
        raise AssertionError(f"append() had not ended after {_MOST_STEPS} steps")


async def _a_cancelled_claim_leaves_the_thread_free(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        for position in range(_MOST_STEPS):
            got: list[RunClaim] = []

            async def claim(run_id: str = f"r{position}", got: list[RunClaim] = got) -> None:
                got.append(await store.claim_run(thread, run_id, lease_seconds=_LEASE_SECONDS))

            cancelled = await _cancelled_at(position, claim)
            if got:
                await store.release_claim(got[0], "aborted")
            free = await store.claim_run(thread, f"after {position}", lease_seconds=_LEASE_SECONDS)
            await store.release_claim(free, "completed")
            if not cancelled:
                return
        raise AssertionError(f"claim_run() had not ended after {_MOST_STEPS} steps")


async def _a_cancelled_answer_is_whole_or_absent(make_store: StoreFactory) -> None:
    thread = _fresh()
    async with make_store() as store:
        for position in range(_MOST_STEPS):
            name = f"q{position}"
            await store.save_requests(thread, [_asks(name)])
            cancelled = await _cancelled_at(position, lambda name=name: store.save_answer(thread, name, True))
            answered = (await _loaded(store, thread)).requests[-1].answered
            if answered:
                with _raises(AlreadyAnswered, "a second answer"):
                    await store.save_answer(thread, name, False)
            else:
                await store.save_answer(thread, name, False)
            if not cancelled:
                _same(answered, True, "an answer that was not cancelled")
                return
        raise AssertionError(f"save_answer() had not ended after {_MOST_STEPS} steps")


async def _a_store_is_usable_while_calls_are_cancelled_beside(make_store: StoreFactory) -> None:
    thread, kept = _fresh(), _fresh()
    async with make_store() as store:

        async def disturb(number: int) -> None:
            with anyio.move_on_after(0.001 * (number % 4)):
                await store.append(thread, [_says(f"{number}-{name}") for name in "ab"])

        async def write() -> None:
            for number in range(10):
                await store.append(kept, [_says(str(number))])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for number in range(20):
                tasks.start_soon(disturb, number)
        _same(await _ids(store, kept), [str(number) for number in range(10)], "messages of the task left alone")
        stored = await _ids(store, thread)
        halves = [name for name in stored if name[:-1] + ("b" if name.endswith("a") else "a") not in stored]
        _same(halves, [], "appends of which only half is stored")


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


def _checks(tests: Sequence[_Test]) -> tuple[CheckpointerCheck, ...]:
    return tuple(CheckpointerCheck(getattr(test, "__name__", "").lstrip("_"), test) for test in tests)


CHECKPOINTER_CHECKS = _checks(
    (
        _what_was_stored_is_loaded_as_it_was,
        _an_unknown_thread_is_none,
        _messages_are_kept_in_the_order_of_their_appending,
        _a_message_is_stored_once,
        _a_message_without_an_id_is_refused,
        _equal_ids_in_two_threads_are_two_messages,
        _ids_that_look_alike_are_different,
        _the_version_counts_messages,
        _values_json_cannot_express_do_not_stop_a_run,
        _nothing_live_is_taken_in_or_handed_out,
        _extra_is_merged_key_by_key,
        _threads_are_listed_oldest_first,
        _a_deleted_thread_leaves_nothing,
        _one_run_at_a_time_holds_a_thread,
        _a_lease_that_ran_out_is_taken_over,
        _a_renewed_lease_lasts,
        _a_claim_given_back_or_of_a_deleted_thread_is_lost,
        _a_run_id_names_one_run,
        _questions_and_answers_are_loaded_as_they_were,
        _a_question_is_stored_once,
        _the_first_answer_stands,
        _an_answer_needs_its_question,
        _cleared_questions_are_forgotten,
        _a_fork_is_a_copy_with_a_life_of_its_own,
        _a_fork_after_a_run_leaves_out_what_ended_later,
        _a_fork_that_cannot_be_is_refused,
        _two_stores_share_one_database,
        _tasks_that_append_at_once_lose_nothing,
        _of_claims_at_once_one_is_granted,
        _a_store_can_be_opened_again,
        _every_method_is_a_checkpoint,
        _a_cancelled_append_is_whole_or_absent,
        _a_cancelled_claim_leaves_the_thread_free,
        _a_cancelled_answer_is_whole_or_absent,
        _a_store_is_usable_while_calls_are_cancelled_beside,
    )
)
"""All checks."""
