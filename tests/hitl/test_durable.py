"""A durable channel keeps its questions in a journal and suspends the call that asks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from cubepi_anyio.checkpointers import StoredRequest
from cubepi_anyio.checkpointers.codec import decode_request, encode_request
from cubepi_anyio.errors import RequestTimedOut, UsageError
from cubepi_anyio.hitl import DurableChannel, is_overdue
from cubepi_anyio.tools.run.suspend import SuspendCall
from cubepi_anyio.types.hitl import ApproveAnswer, PersonAnswer, PersonRequest, Question

pytestmark = pytest.mark.anyio

YES = ApproveAnswer(decision="approve")


class Notebook:
    """A journal in memory; questions go through JSON as in a store."""

    def __init__(self) -> None:
        self.thread_id = "t"
        self.run_id: str | None = "r1"
        self.stored: dict[str, StoredRequest] = {}
        self.in_use: dict[str, list[StoredRequest]] = {}

    def questions_of(self, tool_call_id: str) -> list[StoredRequest]:
        return [one for one in self.stored.values() if one.request.tool_call_id == tool_call_id]

    async def save(self, request: PersonRequest) -> None:
        for one in [*self.in_use.pop(request.tool_call_id, []), StoredRequest(request)]:
            kept = decode_request(encode_request(one.request), self.thread_id, "a question")
            self.stored.setdefault(kept.id, StoredRequest(kept, one.answer, one.answered))

    async def take(self, request_id: str) -> StoredRequest | None:
        stored = self.stored.pop(request_id, None)
        if stored is not None:
            self.in_use.setdefault(stored.request.tool_call_id, []).append(stored)
        return stored

    async def clear(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            del self.stored[request_id]

    def answer(self, request_id: str, answer: PersonAnswer) -> None:
        self.stored[request_id] = StoredRequest(self.stored[request_id].request, answer, True)

    def next_run(self, run_id: str = "r2") -> DurableChannel:
        """Another process: the notes of this one are gone, and the channel is a new one."""
        self.in_use.clear()
        self.run_id = run_id
        return bound(self)


def bound(notebook: Notebook, **options: Any) -> DurableChannel:
    channel = DurableChannel(**options)
    channel.bind(notebook)
    return channel


async def suspended(ask: Callable[[], Awaitable[object]]) -> PersonRequest:
    """The question that suspends the call."""
    with pytest.raises(SuspendCall) as caught:
        await ask()
    return caught.value.request


async def test_a_question_is_stored_before_its_call_is_suspended() -> None:
    notebook = Notebook()
    request = await suspended(lambda: bound(notebook).confirm("sure?", tool_call_id="c1", timeout=5))
    assert notebook.questions_of("c1") == [StoredRequest(request)]
    assert (request.thread_id, request.run_id, request.timeout_seconds) == ("t", "r1", 5)


async def test_the_same_question_gets_its_answer_in_another_process() -> None:
    notebook = Notebook()
    channel = bound(notebook)
    questions = [Question(key="who", prompt="Who?")]
    for ask, answer in (
        (lambda c: c.confirm("sure?", tool_call_id="c1"), False),
        (lambda c: c.approve("t", {"n": 1}, tool_call_id="c2"), YES),
        (lambda c: c.ask(questions, tool_call_id="c3"), {"who": "me"}),
    ):
        request = await suspended(lambda ask=ask, channel=channel: ask(channel))
        notebook.answer(request.id, answer)
        channel = notebook.next_run()
        assert await ask(channel) == answer
        assert notebook.stored == {}


async def test_a_question_without_an_answer_suspends_again_and_stays_the_same() -> None:
    notebook = Notebook()
    first = await suspended(lambda: bound(notebook).confirm("sure?", tool_call_id="c1"))
    again = await suspended(lambda: notebook.next_run().confirm("sure?", tool_call_id="c1"))
    assert (again.id, again.created_at) == (first.id, first.created_at)
    assert list(notebook.stored) == [first.id]


async def test_questions_of_different_calls_have_different_ids_and_answers() -> None:
    notebook = Notebook()
    channel = bound(notebook)
    one = await suspended(lambda: channel.approve("t", {}, tool_call_id="c1"))
    two = await suspended(lambda: channel.approve("t", {}, tool_call_id="c2"))
    assert one.id != two.id
    notebook.answer(two.id, YES)
    channel = notebook.next_run()
    assert await channel.approve("t", {}, tool_call_id="c2") == YES
    assert (await suspended(lambda: channel.approve("t", {}, tool_call_id="c1"))).id == one.id


@pytest.mark.parametrize(
    ("name", "args"),
    [("t", {"n": 2}), ("t", {"n": True}), ("t", {"n": "1"}), ("t", {}), ("other", {"n": 1})],
)
async def test_what_was_approved_is_what_runs(name: str, args: dict[str, Any]) -> None:
    notebook = Notebook()
    first = await suspended(lambda: bound(notebook).approve("t", {"n": 1}, tool_call_id="c1"))
    notebook.answer(first.id, YES)
    second = await suspended(lambda: notebook.next_run().approve(name, args, tool_call_id="c1"))
    assert second.id != first.id
    assert list(notebook.stored) == [second.id]


async def test_the_order_of_arguments_and_what_the_person_is_told_do_not_make_another_question() -> None:
    notebook = Notebook()
    first = await suspended(lambda: bound(notebook).approve("t", {"a": 1, "b": 2}, tool_call_id="c1", prompt="now?"))
    notebook.answer(first.id, YES)
    channel = notebook.next_run()
    assert await channel.approve("t", {"b": 2, "a": 1}, tool_call_id="c1", prompt="and now?") == YES


async def test_a_call_that_asks_twice_is_answered_twice_and_goes_on() -> None:
    notebook = Notebook()

    async def body(channel: DurableChannel) -> list[object]:
        return [
            await channel.approve("t", {}, tool_call_id="c1"),
            await channel.confirm("sure?", tool_call_id="c1"),
            await channel.confirm("sure?", tool_call_id="c1"),
        ]

    answers: list[PersonAnswer] = [YES, True, False]
    asked: list[str] = []
    channel = bound(notebook)
    for number, answer in enumerate(answers, 1):
        request = await suspended(lambda channel=channel: body(channel))
        asked.append(request.id)
        assert len(notebook.stored) == number
        notebook.answer(request.id, answer)
        channel = notebook.next_run(f"r{number + 1}")
    assert await body(channel) == answers
    assert len(set(asked)) == 3
    assert notebook.stored == {}


async def test_a_question_whose_time_is_over_times_out_when_its_call_goes_on() -> None:
    notebook = Notebook()
    request = await suspended(lambda: bound(notebook).confirm("sure?", tool_call_id="c1", timeout=0))
    assert is_overdue(request)
    with pytest.raises(RequestTimedOut) as caught:
        await notebook.next_run().confirm("sure?", tool_call_id="c1", timeout=0)
    assert (caught.value.request_id, caught.value.seconds) == (request.id, 0)
    assert notebook.stored == {}


async def test_an_answer_that_was_stored_counts_whatever_the_time() -> None:
    notebook = Notebook()
    request = await suspended(lambda: bound(notebook).confirm("sure?", tool_call_id="c1", timeout=0))
    notebook.answer(request.id, True)
    assert await notebook.next_run().confirm("sure?", tool_call_id="c1", timeout=0) is True


async def test_the_time_of_a_question_runs_from_when_it_was_first_asked() -> None:
    notebook = Notebook()
    first = await suspended(lambda: bound(notebook, default_timeout=60).confirm("sure?", tool_call_id="c1"))
    late = first.model_copy(update={"created_at": time.time() - 61})
    assert (is_overdue(first), is_overdue(late)) == (False, True)
    notebook.stored[first.id] = StoredRequest(late)
    with pytest.raises(RequestTimedOut, match="within 60 seconds"):
        await notebook.next_run().confirm("sure?", tool_call_id="c1")


async def test_a_channel_without_an_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="give the agent checkpointer=, thread_id= and channel="):
        await DurableChannel().confirm("sure?", tool_call_id="c1")
    notebook = Notebook()
    notebook.run_id = None
    with pytest.raises(UsageError, match="within a run of its agent"):
        await bound(notebook).confirm("sure?", tool_call_id="c1")


async def test_a_question_without_a_call_is_refused() -> None:
    with pytest.raises(UsageError, match="pass tool_call_id="):
        await bound(Notebook()).confirm("sure?")


async def test_a_question_from_the_run_of_another_agent_is_refused() -> None:
    notebook = Notebook()
    with pytest.raises(UsageError, match="asks for its own agent only"):
        await bound(notebook).confirm("sure?", tool_call_id="c1", run_id="somebody else's")
    assert notebook.stored == {}


def test_a_channel_belongs_to_one_agent() -> None:
    notebook = Notebook()
    channel = bound(notebook)
    channel.bind(notebook)
    with pytest.raises(UsageError, match="belongs to one agent"):
        channel.bind(Notebook())
