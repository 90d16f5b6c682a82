"""The notes of a stored thread are stored with its messages, under the claim of the run that made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cubepi_anyio import AbortSignal, AgentTool, AssistantMessage, Message
from cubepi_anyio.agent.thread import StoredThread
from cubepi_anyio.checkpointers.base import RunClaim
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.errors import ClaimLost, StoreUnavailable
from cubepi_anyio.hooks.middleware import AfterToolCallContext, AgentContext, Middleware
from cubepi_anyio.types import JsonObject
from tests.support.agents import Bench, NoParams, assert_well_ended, bench, calling, saying, tool_of

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(20)]


class Watched(MemoryCheckpointer):
    """Notes which messages and which notes came in one append."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[tuple[list[str], JsonObject | None]] = []
        self.failures: list[Exception] = []
        """What the next appends raise."""

    async def append(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        claim: RunClaim | None = None,
        extra: JsonObject | None = None,
    ) -> None:
        if self.failures:
            raise self.failures.pop(0)
        await super().append(thread_id, messages, claim=claim, extra=extra)
        self.appends.append(([message.role for message in messages], extra))

    async def save_extra(self, thread_id: str, extra: JsonObject) -> None:
        raise AssertionError("a run stores its notes under its claim")

    async def notes(self) -> JsonObject:
        record = await self.load("t")
        assert record is not None
        return record.extra

    def bench(self, *answers: Any, tools: Sequence[AgentTool] = (), middleware: Sequence[Middleware] = ()) -> Bench:
        return bench(*answers, tools=tools, checkpointer=self, thread_id="t", middleware=middleware)


class Counting(Middleware):
    """Counts the calls that have ended."""

    async def after_tool_call(self, call: AfterToolCallContext, *, signal: AbortSignal) -> None:
        call.ctx.extra["calls"] = [*call.ctx.extra.get("calls", []), call.tool_call.name]


class AtTheEnd(Middleware):
    """Does something to the notes when nothing more is to be said."""

    def __init__(self, change: Callable[[JsonObject], object]) -> None:
        self._change = change

    async def on_run_end(self, *, ctx: AgentContext, signal: AbortSignal) -> None:
        self._change(ctx.extra)


async def test_notes_are_stored_with_the_message_they_were_made_before() -> None:
    async with Watched() as store:
        tools = [saying("one"), saying("two")]
        made = store.bench(calling("one"), calling("two"), "done", tools=tools, middleware=[Counting()])
        await made.agent.prompt("hi")
        assert store.appends == [
            (["user"], None),
            (["assistant"], None),
            (["tool_result"], {"calls": ["one"]}),
            (["assistant"], None),
            (["tool_result"], {"calls": ["one", "two"]}),
            (["assistant"], None),
        ]
    await assert_well_ended(made)


async def test_notes_made_after_the_last_message_are_stored_when_the_run_ends() -> None:
    async with Watched() as store:
        made = store.bench("done", middleware=[AtTheEnd(lambda notes: notes.update(end=[1]))])
        await made.agent.prompt("hi")
        assert store.appends[-1] == ([], {"end": [1]})
        assert made.agent.state.extra == await store.notes() == {"end": [1]}
    await assert_well_ended(made)


async def test_only_what_changed_is_stored_also_where_a_value_was_changed_in_place() -> None:
    async with Watched() as store:
        await MemoryCheckpointer.save_extra(store, "t", {"kept": 1, "list": [1]})
        made = store.bench("one", "two", middleware=[AtTheEnd(lambda notes: notes["list"].append(2))])
        await made.agent.prompt("hi")
        assert store.appends[-1] == ([], {"list": [1, 2]})
        await made.agent.prompt("again")
        assert store.appends[-1] == ([], {"list": [1, 2, 2]})
        assert await store.notes() == {"kept": 1, "list": [1, 2, 2]}


async def test_a_note_that_was_deleted_is_stored_as_null_once() -> None:
    async with Watched() as store:
        await MemoryCheckpointer.save_extra(store, "t", {"gone": 1, "kept": 2})
        made = store.bench("one", "two", middleware=[AtTheEnd(lambda notes: notes.pop("gone", None))])
        await made.agent.prompt("hi")
        assert await store.notes() == {"gone": None, "kept": 2}
        await made.agent.prompt("again")
        assert [extra for _, extra in store.appends if extra] == [{"gone": None}]


async def test_notes_whose_append_failed_are_stored_when_the_run_has_settled() -> None:
    async with Watched() as store:
        made = store.bench(calling("one"), "never", tools=[_breaking(store)], middleware=[Counting()])
        with pytest.raises(StoreUnavailable):
            await made.agent.prompt("hi")
        assert await store.notes() == {"calls": ["one"]}
    await assert_well_ended(made)


def _breaking(store: Watched) -> AgentTool:
    async def execute(tool_call_id: str, params: NoParams) -> str:
        store.failures.append(StoreUnavailable("no disk"))
        return "one"

    return tool_of("one", execute)


async def test_the_last_notes_of_a_run_that_lost_its_claim_are_refused_as_its_messages_are() -> None:
    async with Watched() as store:

        def take_over(notes: JsonObject) -> None:
            if "whose" not in notes:
                notes["whose"] = "the first one's"
                # What the holder is told, as often as it asks, when another has taken the thread over.
                store.failures.extend(ClaimLost("t") for _ in range(9))

        made = store.bench("done", "again", middleware=[AtTheEnd(take_over)])
        with pytest.raises(ClaimLost):
            await made.agent.prompt("hi")
        assert await store.notes() == {}
        store.failures.clear()
        await MemoryCheckpointer.save_extra(store, "t", {"whose": "the other one's"})
        await made.agent.load()
        assert made.agent.state.extra == {"whose": "the other one's"}
    await assert_well_ended(made)


async def test_what_a_lost_claim_refused_is_forgotten_by_the_next_run_also_if_nobody_else_wrote() -> None:
    async with MemoryCheckpointer() as store:
        thread, transcript = StoredThread(store, "t", lease_seconds=0), list[Message]()
        await thread.open("r1", transcript)
        other = await store.claim_run("t", "r2", lease_seconds=0)
        transcript.append(AssistantMessage(id="a"))
        thread.extra["k"] = 1
        with pytest.raises(ClaimLost):
            await thread.append(transcript)
        await thread.close("error")
        await store.release_claim(other, "completed")
        await thread.open("r3", transcript)
        assert (transcript, thread.extra) == ([], {})
        await thread.close("completed")


async def test_an_append_of_nothing_asks_nothing_of_the_store() -> None:
    async with Watched() as store:
        thread = StoredThread(store, "t")
        await thread.open("r", [])
        assert not thread.notes_changed
        await thread.append(())
        assert store.appends == []
        thread.extra["k"] = [1]
        assert thread.notes_changed
        await thread.append(())
        assert not thread.notes_changed
        thread.extra["k"].append(2)
        assert thread.notes_changed
        await thread.close("completed")
        assert store.appends == [([], {"k": [1]}), ([], {"k": [1, 2]})]
