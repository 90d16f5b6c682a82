"""Many questions wait in memory, each for its own answer."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import (
    AlreadyAnswered,
    InvalidAnswer,
    RequestTimedOut,
    RequestWithdrawn,
    UnknownRequest,
)
from cubepi_anyio.hitl import MemoryChannel
from cubepi_anyio.types.hitl import ApproveAnswer, ApproveRequest, AskRequest, ConfirmRequest, PersonRequest, Question

pytestmark = pytest.mark.anyio


async def asked(channel: MemoryChannel, number: int) -> list[PersonRequest]:
    """The questions of the channel, when everything else waits."""
    await anyio.wait_all_tasks_blocked()
    assert len(channel.pending) == number
    return channel.pending


async def one_asked(channel: MemoryChannel, ids: list[str]) -> str:
    """The id of the one question that waits, which is also put into ``ids``."""
    (request,) = await asked(channel, 1)
    ids.append(request.id)
    return request.id


async def test_many_questions_wait_and_are_answered_in_any_order() -> None:
    channel = MemoryChannel()
    heard: dict[str, Any] = {}

    async def ask(name: str) -> None:
        heard[name] = await channel.confirm(name, tool_call_id=name)

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "c"):
            tasks.start_soon(ask, name)
        by_call = {request.tool_call_id: request.id for request in await asked(channel, 3)}
        assert len(set(by_call.values())) == 3
        for name, said in (("c", True), ("a", False), ("b", True)):
            channel.answer(by_call[name], said)
            await anyio.wait_all_tasks_blocked()
            assert heard[name] is said
    assert heard == {"a": False, "b": True, "c": True}
    assert channel.pending == []


async def test_a_question_says_what_it_is_about() -> None:
    channel = MemoryChannel(default_timeout=5)
    args, details = {"path": ["a"]}, {"size": 1}
    before = time.time()
    async with anyio.create_task_group() as tasks:

        async def approve() -> None:
            await channel.approve("delete", args, tool_call_id="c1", run_id="r1", prompt="sure?", details=details)

        tasks.start_soon(approve)
        (request,) = await asked(channel, 1)
        args["path"].append("b")
        assert request.payload == ApproveRequest(
            tool_name="delete", args={"path": ["a"]}, prompt="sure?", details={"size": 1}
        )
        assert (request.tool_call_id, request.run_id, request.timeout_seconds) == ("c1", "r1", 5)
        assert before <= request.created_at <= time.time()
        channel.answer(request.id, {"decision": "approve"})


async def test_questions_of_each_kind_return_their_answers() -> None:
    channel = MemoryChannel()
    questions = [Question(key="who", prompt="Who?")]

    def answer(request: PersonRequest) -> None:
        match request.payload:
            case ConfirmRequest():
                channel.answer(request.id, True)
            case ApproveRequest():
                channel.answer(request.id, {"decision": "deny", "reason": "no"})
            case AskRequest():
                channel.answer(request.id, {"who": "me"})

    channel.listen(answer)
    assert await channel.confirm("sure?") is True
    assert await channel.approve("t", {}, tool_call_id="c") == ApproveAnswer(decision="deny", reason="no")
    assert await channel.ask(questions) == {"who": "me"}


async def test_an_answer_that_does_not_fit_leaves_the_question_standing() -> None:
    channel = MemoryChannel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.confirm, "sure?")
        (request,) = await asked(channel, 1)
        with pytest.raises(InvalidAnswer):
            channel.answer(request.id, "yes")
        assert channel.pending == [request]
        channel.answer(request.id, True)


async def test_the_first_answer_stands() -> None:
    channel = MemoryChannel()
    ids: list[str] = []
    said: list[bool] = []

    async def ask() -> None:
        said.append(await channel.confirm("sure?"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        request_id = await one_asked(channel, ids)
        channel.answer(request_id, True)
        with pytest.raises(AlreadyAnswered):
            channel.answer(request_id, False)
        with pytest.raises(AlreadyAnswered):
            channel.withdraw(request_id)
    with pytest.raises(AlreadyAnswered):
        channel.answer(ids[0], False)
    assert said == [True]


async def test_an_unknown_id_is_an_error() -> None:
    channel = MemoryChannel()
    with pytest.raises(UnknownRequest, match="'nobody'"):
        channel.answer("nobody", True)
    with pytest.raises(UnknownRequest):
        channel.withdraw("nobody")


async def test_a_withdrawn_question_raises_with_the_reason_and_cannot_be_answered_any_more() -> None:
    channel = MemoryChannel()
    ids: list[str] = []
    caught: list[RequestWithdrawn] = []

    async def ask() -> None:
        try:
            await channel.confirm("sure?")
        except RequestWithdrawn as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        request_id = await one_asked(channel, ids)
        channel.withdraw(request_id, "it is decided")
        with pytest.raises(UnknownRequest):
            channel.answer(request_id, True)
    assert [(error.request_id, error.reason) for error in caught] == [(ids[0], "it is decided")]


async def test_cancelling_whoever_asks_takes_the_question_back() -> None:
    channel = MemoryChannel()
    ids: list[str] = []
    closed: list[tuple[str, str]] = []
    channel.listen(lambda request: None, lambda request, ending: closed.append((request.id, ending)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.confirm, "sure?")
        await one_asked(channel, ids)
        tasks.cancel_scope.cancel()
    assert channel.pending == []
    assert closed == [(ids[0], "cancelled")]
    with pytest.raises(UnknownRequest):
        channel.answer(ids[0], True)


@pytest.mark.virtual_clock
async def test_each_question_has_its_own_deadline() -> None:
    channel = MemoryChannel(default_timeout=10)
    ended: dict[str, float] = {}

    async def ask(name: str, **options: Any) -> None:
        try:
            await channel.confirm(name, **options)
        except RequestTimedOut as error:
            ended[name] = error.seconds
        assert anyio.current_time() == pytest.approx(start + ended.get(name, 1000))

    start = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "default")
        tasks.start_soon(lambda: ask("own", timeout=3))
        tasks.start_soon(lambda: ask("for ever", timeout=None))
        await anyio.sleep(1000)
        (left,) = channel.pending
        assert left.payload == ConfirmRequest(prompt="for ever")
        channel.answer(left.id, True)
    assert ended == {"default": 10, "own": 3}


async def test_an_answer_in_the_moment_the_time_is_over_counts() -> None:
    channel = MemoryChannel()
    channel.listen(lambda request: channel.answer(request.id, True))
    assert await channel.confirm("sure?", timeout=0) is True


@pytest.mark.parametrize("timeout", [-1, True, float("nan")])
async def test_what_is_no_length_of_time_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="a timeout is a number of seconds"):
        await MemoryChannel().confirm("sure?", timeout=timeout)
    with pytest.raises(ValueError, match="a timeout is a number of seconds"):
        MemoryChannel(default_timeout=timeout)


@pytest.mark.parametrize("keys", [[], ["a", "a"]])
async def test_questions_need_keys_of_their_own(keys: list[str]) -> None:
    with pytest.raises(ValueError, match="each with a key of its own"):
        await MemoryChannel().ask([Question(key=key, prompt="?") for key in keys])


async def test_a_listener_hears_of_each_question_and_how_it_ended() -> None:
    channel = MemoryChannel()
    heard: list[str] = []
    unsubscribe = channel.listen(
        lambda request: heard.append("asked"), lambda request, ending: heard.append(str(ending))
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.confirm, "sure?")
        (request,) = await asked(channel, 1)
        channel.answer(request.id, True)
    with pytest.raises(TimeoutError):
        await channel.confirm("sure?", timeout=0)
    unsubscribe()
    unsubscribe()
    with pytest.raises(RequestTimedOut):
        await channel.confirm("sure?", timeout=0)
    assert heard == ["asked", "answered", "asked", "timed_out"]


async def test_what_a_listener_raises_is_raised_where_it_was_asked() -> None:
    channel = MemoryChannel()

    def broken(request: PersonRequest) -> None:
        raise ZeroDivisionError

    channel.listen(broken)
    with pytest.raises(ZeroDivisionError):
        await channel.confirm("sure?")
    assert channel.pending == []


async def test_a_listener_that_fails_at_the_end_of_a_question_does_not_change_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel = MemoryChannel()

    def broken(request: PersonRequest, ending: str) -> None:
        raise ZeroDivisionError

    channel.listen(lambda request: channel.answer(request.id, True), broken)
    assert await channel.confirm("sure?") is True
    assert "failed to hear" in caplog.text


async def test_questions_can_be_taken_one_after_the_other_by_a_user_interface() -> None:
    channel = MemoryChannel()
    said: list[str] = []

    async def ask(name: str) -> None:
        said.append(f"{name} {await channel.confirm(name)}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "early")
        await asked(channel, 1)
        async with channel.requests() as requests:
            first = await anext(requests)
            assert first.payload == ConfirmRequest(prompt="early")
            tasks.start_soon(ask, "late")
            second = await anext(requests)
            assert second.payload == ConfirmRequest(prompt="late")
            channel.answer(second.id, True)
            channel.answer(first.id, False)
        with pytest.raises(StopAsyncIteration):
            await anext(requests)
    assert sorted(said) == ["early False", "late True"]


async def test_a_question_that_is_over_is_not_handed_to_the_user_interface() -> None:
    channel = MemoryChannel()
    async with channel.requests() as requests:
        with pytest.raises(RequestTimedOut):
            await channel.confirm("over", timeout=0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.confirm, "stands")
            request = await anext(requests)
            assert request.payload == ConfirmRequest(prompt="stands")
            channel.answer(request.id, True)


async def test_a_reader_of_questions_ends_when_the_block_is_left_in_another_task() -> None:
    channel = MemoryChannel()
    ended = anyio.Event()

    async def read() -> None:
        async for _ in requests:
            raise AssertionError("nothing was asked")
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with channel.requests() as requests:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            await ended.wait()


def test_one_channel_serves_one_event_loop_after_the_other() -> None:
    channel = MemoryChannel()
    channel.listen(lambda request: channel.answer(request.id, True))
    for backend in ("asyncio", "trio", "asyncio"):
        if backend == "trio":
            pytest.importorskip("trio")
        assert anyio.run(channel.confirm, "sure?", backend=backend) is True


async def test_another_thread_answers_through_the_event_loop() -> None:
    channel = MemoryChannel()
    async with anyio.create_task_group() as tasks:

        async def answer() -> None:
            (request,) = await asked(channel, 1)
            await anyio.to_thread.run_sync(lambda: anyio.from_thread.run_sync(channel.answer, request.id, True))

        tasks.start_soon(answer)
        assert await channel.confirm("sure?") is True
