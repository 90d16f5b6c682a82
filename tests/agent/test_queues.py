"""Messages that steer a run or follow it: heard in their order, never lost, and taken back until they are said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentToolResult, EmptyPrompt, FauxResponse, Message, UserMessage
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    label,
    saying,
    sleeping,
    tool_of,
)

pytestmark = pytest.mark.anyio


def said(made: Bench, call: int = -1) -> list[str]:
    """What the user had said at a call of the model."""
    return [message.text for message in made.asked(call) if message.role == "user"]


def once_on(name: str, action: Callable[[], Any]) -> Callable[[Any], None]:
    done: list[bool] = []

    def listen(event: Any) -> None:
        if label(event) == name and not done:
            done.append(True)
            action()

    return listen


async def test_what_steers_before_the_run_is_heard_before_the_prompt() -> None:
    made = bench("ok")
    made.agent.steer("first")
    made.agent.steer("second")
    await made.agent.prompt("then")
    assert said(made) == ["first", "second", "then"]
    assert made.agent.queued_messages == []
    await assert_well_ended(made)


@pytest.mark.parametrize("name", ["tool_execution_start:c1", "tool_execution_end:c1:finished", "turn_start"])
async def test_what_steers_during_a_turn_is_heard_after_its_results(name: str) -> None:
    made = bench(calling("say"), "done", tools=[saying("say")])
    made.agent.subscribe(once_on(name, lambda: made.agent.steer("hurry")))
    result = await made.agent.prompt("hi")
    assert [message.role for message in made.asked()] == ["user", "assistant", "tool_result", "user"]
    assert said(made) == ["hi", "hurry"]
    assert result.text == "done"
    await assert_well_ended(made)


@pytest.mark.parametrize("name", ["message_update:text_start", "message_end:assistant", "turn_end"])
async def test_what_steers_during_the_last_turn_is_heard_in_another_one(name: str) -> None:
    made = bench("first answer", "second answer")
    made.agent.subscribe(once_on(name, lambda: made.agent.steer("one more thing")))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, made.provider.call_count) == ("completed", "second answer", 2)
    assert made.roles == ["user", "assistant", "user", "assistant"]
    assert balance_faults(made.events) == []


async def test_a_message_that_steers_is_announced_inside_the_turn_that_hears_it() -> None:
    made = bench(calling("say"), "done", tools=[saying("say")])
    made.agent.subscribe(once_on("tool_execution_start:c1", lambda: made.agent.steer("hurry")))
    await made.agent.prompt("hi")
    second = made.labels.index("turn_start", 2)
    assert made.labels[second + 1 : second + 3] == ["message_start:user", "message_end:user"]


async def test_what_steers_while_the_model_answers_does_not_stop_its_calls() -> None:
    made = bench(calling("say", text="look"), "done", tools=[saying("say")])
    made.agent.subscribe(once_on("message_update:text_start", lambda: made.agent.steer("wait")))
    await made.agent.prompt("hi")
    assert made.texts == ["say"]


async def test_steering_is_heard_one_for_each_turn_or_all_at_once() -> None:
    for mode, expected in (
        ("one-at-a-time", [["hi"], ["hi", "a"], ["hi", "a", "b"]]),
        ("all", [["hi"], ["hi", "a", "b"]]),
    ):
        made = bench("1", "2", "3", steering_mode=mode)

        def steer(made: Bench = made) -> None:
            made.agent.steer("a")
            made.agent.steer("b")

        made.agent.subscribe(once_on("message_end:assistant", steer))
        await made.agent.prompt("hi")
        assert [said(made, call) for call in range(made.provider.call_count)] == expected


async def test_follow_ups_are_heard_when_the_run_would_end() -> None:
    for mode, expected in (
        ("one-at-a-time", [["hi"], ["hi"], ["hi", "a"], ["hi", "a", "b"]]),
        ("all", [["hi"], ["hi"], ["hi", "a", "b"]]),
    ):
        made = bench(calling("say"), "1", "2", "3", tools=[saying("say")], follow_up_mode=mode)
        made.agent.follow_up("a")
        made.agent.follow_up("b")
        result = await made.agent.prompt("hi")
        assert [said(made, call) for call in range(made.provider.call_count)] == expected
        assert len([name for name in made.labels if name.startswith("agent_end")]) == 1
        assert len(result.messages) == len(made.agent.state.messages)


async def test_steering_goes_before_follow_ups() -> None:
    made = bench("1", "2", "3")
    made.agent.follow_up("later")
    made.agent.subscribe(once_on("message_end:assistant", lambda: made.agent.steer("now")))
    await made.agent.prompt("hi")
    assert said(made) == ["hi", "now", "later"]


async def test_a_terminating_batch_still_hears_what_is_queued() -> None:

    async def stop(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("stopped", terminate=True)

    made = bench(calling("stop"), "after all", tools=[tool_of("stop", stop)])
    made.agent.follow_up("but wait")
    result = await made.agent.prompt("hi")
    assert (result.text, said(made)) == ("after all", ["hi", "but wait"])


async def test_a_message_is_taken_back_until_it_is_said() -> None:
    made = bench("ok")
    kept, taken, follow = made.agent.steer("keep"), made.agent.steer("take"), made.agent.follow_up("no")
    assert len({kept, taken, follow}) == 3
    assert made.agent.retract(taken) is True
    assert made.agent.retract(follow) is True
    assert made.agent.retract(taken) is False
    assert made.agent.retract("nothing") is False
    await made.agent.prompt("hi")
    assert said(made) == ["keep", "hi"]
    assert made.agent.retract(kept) is False


async def test_messages_with_content_of_their_own_are_queued_as_they_are() -> None:
    made = bench("ok")
    message = UserMessage(id="mine", content=[{"type": "text", "text": "look"}], metadata={"by": "me"})  # type: ignore[list-item]
    made.agent.steer(message)
    await made.agent.prompt("hi")
    [first, *_] = made.agent.state.messages
    assert (first.id, first.metadata) == ("mine", {"by": "me"})


@pytest.mark.parametrize("empty", ["", "  \n", UserMessage()])
async def test_an_empty_message_is_not_queued(empty: str | Message) -> None:
    made = bench("ok")
    with pytest.raises(EmptyPrompt):
        made.agent.steer(empty)
    with pytest.raises(EmptyPrompt):
        made.agent.follow_up(empty)
    assert made.agent.queued_messages == []


@pytest.mark.parametrize("state", ["waiting", "streaming", "tools"])
async def test_what_was_queued_one_tick_before_the_end_is_heard_by_the_next_run(state: str) -> None:
    began = anyio.Event()
    if state == "tools":
        made, reached = bench(calling("sleep"), tools=[sleeping("sleep", began)]), began.wait
    else:
        stalled = FauxResponse("one two", stall_before_start=state == "waiting", stall_after_deltas=1)
        made = bench(stalled)
        reached = made.provider.wait_stalled
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await reached()
            made.agent.steer("left over")
            made.agent.follow_up("and after")
            made.agent.abort()
    assert [m.text for m in made.agent.queued_messages if m.role == "user"] == ["left over", "and after"]
    made.provider.set_responses(["one", "two"])
    result = await made.agent.prompt("next")
    assert result.outcome == "completed"
    assert said(made) == ["hi", "left over", "next", "and after"]
    assert made.agent.queued_messages == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_message_that_was_taken_when_a_listener_raised_is_in_the_transcript(is_async: bool) -> None:
    made = bench("ok")
    made.agent.steer("a")
    made.agent.steer("b")

    def bug(event: Any) -> None:
        if event.type == "turn_start":
            raise ZeroDivisionError

    async def async_bug(event: Any) -> None:
        bug(event)

    unsubscribe = made.agent.subscribe(async_bug if is_async else bug)
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    unsubscribe()
    assert [message.text for message in made.agent.state.messages if message.role == "user"] == ["a", "b", "hi"]
    assert balance_faults(made.events) == []
    await assert_well_ended(made)


async def test_a_failed_run_leaves_its_queue_alone() -> None:
    made = bench(ValueError("no"), "ok")
    made.agent.follow_up("later")
    assert (await made.agent.prompt("hi")).outcome == "error"
    assert len(made.agent.queued_messages) == 1
    result = await made.agent.resume()
    assert (result.outcome, said(made)) == ("completed", ["hi", "later"])


async def test_reset_forgets_what_is_queued() -> None:
    made = bench("one", "two")
    await made.agent.prompt("hi")
    made.agent.steer("a")
    made.agent.follow_up("b")
    made.agent.reset()
    assert (made.agent.queued_messages, made.agent.state.messages) == ([], [])
    await made.agent.prompt("anew")
    assert said(made) == ["anew"]
