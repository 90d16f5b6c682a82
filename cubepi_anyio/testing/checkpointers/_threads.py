"""Checks of checkpointers: threads, messages, notes and forks."""

from __future__ import annotations

from ...errors import RunIdTaken, RunNotEnded, ThreadExists, ThreadNotFound, UsageError
from ...types.content import DocumentContent, ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ...types.hitl import AskRequest, Question
from ...types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ...types.usage import Usage
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
    whole_run,
)


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


async def what_was_stored_is_loaded_as_it_was(make_store: StoreFactory) -> None:
    thread, messages = fresh(), _every_kind_of_message()
    async with make_store() as store:
        await store.append(thread, messages)
        record = await loaded(store, thread)
        same(record.messages, messages, "messages")
        same(record.thread_id, thread, "thread_id")
        has_only(record, "user", "assistant", "result")


async def an_unknown_thread_is_none(make_store: StoreFactory) -> None:
    async with make_store() as store:
        same(await store.load(fresh()), None, "load() of an unknown thread")


async def messages_are_kept_in_the_order_of_their_appending(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.append(thread, [says("z"), says("a")])
        await store.append(thread, [says("m")])
        await store.append(thread, [])
        same(await ids_of(store, thread), ["z", "a", "m"], "order")


async def a_message_is_stored_once(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.append(thread, [says("a", "first"), says("a", "twice in one call")])
        await store.append(thread, [says("b"), says("a", "again"), says("c")])
        messages = (await loaded(store, thread)).messages
        same([message.id for message in messages], ["a", "b", "c"], "ids")
        same(messages[0].text, "first", "the first message of an id stands")


async def a_message_without_an_id_is_refused(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        with raises(UsageError, "append() of a message without an id"):
            await store.append(thread, [says("a"), says("")])
        same(await store.load(thread), None, "nothing of the refused call is stored")


async def equal_ids_in_two_threads_are_two_messages(make_store: StoreFactory) -> None:
    one, other = fresh(), fresh()
    async with make_store() as store:
        await store.append(one, [says("a", "one")])
        await store.append(other, [says("a", "other")])
        texts = [(await loaded(store, thread)).messages[0].text for thread in (one, other)]
        same(texts, ["one", "other"], "texts")


async def ids_that_look_alike_are_different(make_store: StoreFactory) -> None:
    thread = fresh()
    names = ["a", "A", "a ", "á", "%", "_", "'", '"', "\\", "漢", "x" * 500]
    async with make_store() as store:
        await store.append(thread, [says(name) for name in names])
        same(await ids_of(store, thread), names, "ids of messages")
        await store.append(thread.upper(), [says("other")])
        same(await ids_of(store, thread), names, "a thread of another case is another one")


async def the_version_counts_messages(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r1", lease_seconds=LEASE_SECONDS)
        same(claim.version, 0, "version of an empty thread")
        await store.append(thread, [says("a"), says("b")], claim=claim)
        await store.append(thread, [says("b")], claim=claim)
        same((await loaded(store, thread)).version, 2, "version after two messages, one of them twice")
        await store.release_claim(claim, "completed")
        same((await store.claim_run(thread, "r2", lease_seconds=LEASE_SECONDS)).version, 2, "version of a claim")


async def values_json_cannot_express_do_not_stop_a_run(make_store: StoreFactory) -> None:
    thread = fresh()
    odd = ToolResultMessage(
        id="a",
        tool_call_id="c",
        tool_name="t",
        content=[TextContent(text="half a character: \ud83d")],
        details={"object": object(), "nan": float("nan"), "bytes": b"\xff", "set": {1}},
    )
    async with make_store() as store:
        await store.append(thread, [odd])
        kept = (await loaded(store, thread)).messages[0]
        same(kept.text, "half a character: \ufffd", "text")
        details = kept.details if isinstance(kept, ToolResultMessage) else None
        same(details, {"object": "<object>", "nan": None, "bytes": "<bytes>", "set": [1]}, "details")


async def nothing_live_is_taken_in_or_handed_out(make_store: StoreFactory) -> None:
    thread = fresh()
    message, extra, notes = says("a", "as it was"), {"list": [1]}, {"with the message": [1]}
    async with make_store() as store:
        await store.append(thread, [message], extra=notes)
        await store.save_extra(thread, extra)
        await store.save_requests(thread, [asks("q", AskRequest(questions=[Question(key="k", prompt="p")]))])
        message.content.append(TextContent(text=", changed later"))
        extra["list"].append(2)
        notes["with the message"].append(2)
        for _ in range(2):
            record = await loaded(store, thread)
            same([each.text for each in record.messages], ["as it was"], "texts")
            same(record.extra, {"list": [1], "with the message": [1]}, "extra")
            same(len(record.requests), 1, "questions")
            record.messages[0].content.clear()
            record.messages.clear()
            record.extra["list"].clear()
            record.extra["with the message"].clear()
            record.requests.clear()


async def extra_is_merged_key_by_key(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.save_extra(thread, {"a": {"x": 1}, "b": [1], "n": None})
        await store.save_extra(thread, {"a": {"y": 2}, "c": "\u0000é"})
        await store.save_extra(thread, {})
        wanted = {"a": {"y": 2}, "b": [1], "n": None, "c": "\u0000é"}
        same((await loaded(store, thread)).extra, wanted, "extra")


async def notes_are_stored_with_messages(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.save_extra(thread, {"a": {"x": 1}, "b": [1]})
        await store.append(thread, [says("m1")], extra={"a": {"y": 2}, "n": None, "c": "\u0000é"})
        record = await loaded(store, thread)
        same(record.extra, {"a": {"y": 2}, "b": [1], "n": None, "c": "\u0000é"}, "notes, replaced key by key")
        claim = await store.claim_run(thread, "r", lease_seconds=LEASE_SECONDS)
        for number in (1, 2):
            await store.append(thread, [says("m1"), says("m2")], claim=claim, extra={"same": number, "a": number})
        await store.append(thread, [says("m3")], claim=claim)
        await store.append(thread, [says("m4")], claim=claim, extra={})
        record = await loaded(store, thread)
        wanted = {"a": 2, "b": [1], "n": None, "c": "\u0000é", "same": 2}
        same((record.extra, record.version), (wanted, 4), "notes and version")


async def notes_alone_can_be_appended(make_store: StoreFactory) -> None:
    thread, unclaimed = fresh(), fresh()
    async with make_store() as store:
        await store.append(unclaimed, [], extra={"k": [1]})
        record = await loaded(store, unclaimed)
        same((record.extra, len(record.messages), record.version), ({"k": [1]}, 0, 0), "a thread of notes alone")
        claim = await store.claim_run(thread, "r", lease_seconds=LEASE_SECONDS)
        await store.append(thread, [], claim=claim, extra={"k": 1})
        await store.append(thread, [], claim=claim, extra={"k": 2, "l": 3})
        record = await loaded(store, thread)
        same((record.extra, record.version), ({"k": 2, "l": 3}, 0), "notes")


async def notes_of_a_refused_message_are_refused(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        with raises(UsageError, "append() of a message without an id"):
            await store.append(thread, [says("")], extra={"k": 1})
        same(await store.load(thread), None, "nothing of the refused call is stored")


async def threads_are_listed_oldest_first(make_store: StoreFactory) -> None:
    threads = [fresh() for _ in range(3)]
    async with make_store() as store:
        await store.append(threads[0], [])
        await store.save_extra(threads[1], {})
        await store.claim_run(threads[2], "r", lease_seconds=LEASE_SECONDS)
        listed = await store.list_threads()
        same([thread for thread in listed if thread in threads], threads, "threads")


async def a_deleted_thread_leaves_nothing(make_store: StoreFactory) -> None:
    other, thread = fresh(), fresh()
    async with make_store() as store:
        # The one to delete comes last: a database may give its number to the next.
        for each in (other, thread):
            await whole_run(store, each, "r", "a")
            await store.save_extra(each, {"k": 1})
            await store.save_requests(each, [asks("q")])
        await store.delete(thread)
        await store.delete(thread)
        same(await store.load(thread), None, "load() of a deleted thread")
        await whole_run(store, thread, "r", "b")
        record = await loaded(store, thread)
        has_only(record, "b")
        same(await ids_of(store, other), ["a"], "the other thread")


# --- forks -----------------------------------------------------------------------------------


async def a_fork_is_a_copy_with_a_life_of_its_own(make_store: StoreFactory) -> None:
    thread, copy = fresh(), fresh()
    async with make_store() as store:
        await store.append(thread, _every_kind_of_message())
        await store.save_extra(thread, {"k": [1]})
        await store.save_requests(thread, [asks("q")])
        await whole_run(store, thread, "goes on", "m", end=None)
        await store.fork(thread, copy)
        record, original = await loaded(store, copy), await loaded(store, thread)
        same(record.messages, original.messages, "messages")
        same((record.extra, record.parent_thread_id), ({"k": [1]}, thread), "the copy")
        same(len(record.requests), 0, "questions of the copy")
        same(record.version, 4, "version")
        await store.append(copy, [says("only in the copy")])
        await store.save_extra(copy, {"k": 2})
        await store.delete(copy)
        same(await loaded(store, thread), original, "the original")


async def a_fork_after_a_run_leaves_out_what_ended_later(make_store: StoreFactory) -> None:
    thread, copy = fresh(), fresh()
    async with make_store() as store:
        await store.append(thread, [says("before")])
        await whole_run(store, thread, "r1", "m1", end="aborted")
        await whole_run(store, thread, "waits", "m2", end="suspended")
        await whole_run(store, thread, "r2", "m3")
        await whole_run(store, thread, "waits", "m4")
        await store.append(thread, [says("after")])
        await whole_run(store, thread, "goes on", "m5", end=None)
        await store.fork(thread, copy, after_run_id="r2")
        same(await ids_of(store, copy), ["before", "m1", "m3", "after"], "messages")
        with raises(RunIdTaken, "a run of the copied past"):
            await store.claim_run(copy, "r1", lease_seconds=LEASE_SECONDS)
        await whole_run(store, copy, "r3", "m6")
        again = fresh()
        await store.fork(copy, again, after_run_id="r1")
        same(await ids_of(store, again), ["before", "m1", "after"], "messages of the fork of a fork")


async def a_fork_that_cannot_be_is_refused(make_store: StoreFactory) -> None:
    thread, other = fresh(), fresh()
    async with make_store() as store:
        with raises(ThreadNotFound, "fork() of an unknown thread"):
            await store.fork(thread, fresh())
        await store.append(other, [says("a")])
        await whole_run(store, thread, "waits", end="suspended")
        await whole_run(store, thread, "goes on", end=None)
        with raises(ThreadExists, "fork() to a thread that is there"):
            await store.fork(thread, other)
        for run_id in ("unknown", "waits", "goes on"):
            copy = fresh()
            with raises(RunNotEnded, f"fork() after the run {run_id!r}"):
                await store.fork(thread, copy, after_run_id=run_id)
            same(await store.load(copy), None, "the copy of a refused fork")
        same(await ids_of(store, other), ["a"], "the thread that was there")


CHECKS: tuple[Test, ...] = (
    what_was_stored_is_loaded_as_it_was,
    an_unknown_thread_is_none,
    messages_are_kept_in_the_order_of_their_appending,
    a_message_is_stored_once,
    a_message_without_an_id_is_refused,
    equal_ids_in_two_threads_are_two_messages,
    ids_that_look_alike_are_different,
    the_version_counts_messages,
    values_json_cannot_express_do_not_stop_a_run,
    nothing_live_is_taken_in_or_handed_out,
    extra_is_merged_key_by_key,
    notes_are_stored_with_messages,
    notes_alone_can_be_appended,
    notes_of_a_refused_message_are_refused,
    threads_are_listed_oldest_first,
    a_deleted_thread_leaves_nothing,
    a_fork_is_a_copy_with_a_life_of_its_own,
    a_fork_after_a_run_leaves_out_what_ended_later,
    a_fork_that_cannot_be_is_refused,
)
