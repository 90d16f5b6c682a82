"""Each ending of a call is said three times alike: in its event, in its result's details, in what the model reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentTool, CallEnding, RunLimits, ToolResultMessage
from cubepi_anyio.tools import CallOutcome
from tests.support.agents import (
    Bench,
    NoParams,
    Word,
    assert_well_ended,
    bench,
    calling,
    saying,
    sleeping,
    tool_of,
)

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


@dataclass
class Case:
    """A tool, what is done to its call when it has begun, and what is said then."""

    make: Callable[[anyio.Event], AgentTool]
    details: dict[str, Any]
    text: str
    end: Callable[[Agent], object] | None = None
    is_error: bool = True


def _failing(began: anyio.Event) -> AgentTool:
    async def fail(tool_call_id: str, params: NoParams) -> str:
        raise LookupError("no such row")

    return tool_of("work", fail)


def _deaf(began: anyio.Event) -> AgentTool:
    token, ever = anyio.lowlevel.current_token(), threading.Event()

    def block(tool_call_id: str, params: NoParams) -> str:
        anyio.from_thread.run_sync(began.set, token=token)
        ever.wait(3)
        return "never heard"

    return tool_of("work", block)


def _late(began: anyio.Event) -> AgentTool:
    async def late(tool_call_id: str, params: NoParams) -> str:
        began.set()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.3)
        return "written"

    return tool_of("work", late)


CASES = {
    CallEnding.FINISHED: Case(lambda began: saying("work", "fine"), {}, "fine", is_error=False),
    CallEnding.FAILED: Case(_failing, {"error_type": "LookupError"}, "no such row"),
    CallEnding.TIMED_OUT: Case(
        lambda began: sleeping("work", timeout=0.05),
        {"timeout_seconds": 0.05},
        "The call timed out: it was cancelled after 0.05 seconds.",
    ),
    CallEnding.ABORTED: Case(
        lambda began: sleeping("work", began),
        {"reason": "wrong file"},
        "The call was cancelled by the user: wrong file",
        lambda agent: agent.abort_tool_call("c1", "wrong file"),
    ),
    CallEnding.CANCELLED: Case(
        lambda began: sleeping("work", began),
        {"reason": "the run was aborted (lunch)"},
        "The call was cancelled before it was complete: the run was aborted (lunch)",
        lambda agent: agent.abort("lunch"),
    ),
    CallEnding.REFUSED: Case(
        lambda began: saying("work", parameters=Word),
        {},
        "word: ",
    ),
    CallEnding.ABANDONED: Case(
        _deaf,
        {"reason": "by the user"},
        "The call was cancelled (by the user), but its function runs in a thread that does not look at its signal: "
        "it was abandoned, may still be running, and its outcome is unknown.",
        lambda agent: agent.abort_tool_call("c1"),
    ),
    CallEnding.IGNORED_CANCELLATION: Case(
        _late,
        {"seconds": pytest.approx(0.3, abs=1.0)},
        "written",
        lambda agent: agent.abort("lunch"),
        is_error=False,
    ),
}


async def _ended(case: Case) -> Bench:
    began = anyio.Event()
    limits = RunLimits(settle_timeout=0.05)
    made = bench(calling("work"), "done", tools=[case.make(began)], limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        if case.end is not None:
            await began.wait()
            case.end(made.agent)
    return made


@pytest.mark.parametrize("ending", CASES)
async def test_an_ending_is_said_alike_to_the_program_the_record_and_the_model(ending: CallEnding) -> None:
    case = CASES[ending]
    made = await _ended(case)
    [event] = [event for event in made.events if event.type == "tool_execution_end"]
    [kept] = made.results
    assert (event.ending, event.is_error, event.blocked_by_hook) == (ending, case.is_error, False)
    assert event.result.content == kept.content
    assert kept.is_error is case.is_error
    expected = {"ending": str(ending), **case.details} if ending is not CallEnding.FINISHED else None
    given = kept.details
    if ending is CallEnding.IGNORED_CANCELLATION:
        assert given.pop("details", None) is None
    assert (given or None) == expected
    assert kept.text.startswith(case.text)
    await assert_well_ended(made)
    [read] = [message for message in made.asked() if isinstance(message, ToolResultMessage)]
    assert read.content == kept.content


def test_every_ending_that_leaves_a_result_is_shown_above() -> None:
    assert set(CallEnding) - set(CASES) == {CallEnding.SUSPENDED, CallEnding.ANSWERED}


async def test_a_call_that_waited_for_its_turn_says_that_it_never_began() -> None:
    began = anyio.Event()
    tools = [sleeping("sleep", began), saying("say")]
    made = bench(calling("sleep", "say"), "never", tools=tools, tool_execution="sequential")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        made.agent.abort()
    assert made.texts == [
        "The call was cancelled before it was complete: the run was aborted",
        "The call was cancelled before it began: the run was aborted",
    ]
    await assert_well_ended(made)


async def test_which_limit_ended_a_call_is_in_its_text() -> None:
    made = bench(calling("sleep"), tools=[sleeping("sleep")], limits=RunLimits(run_timeout=0.05))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "run_timeout")
    assert made.texts == ["The call was cancelled before it was complete: the run reached its limit run_timeout"]


def test_the_exception_of_a_failed_call_is_kept_for_the_program() -> None:
    call = calling("work").tool_calls[0]
    error = LookupError("no such row")
    assert CallOutcome.failed(call, error).error is error
    assert CallOutcome.failed(call, LookupError()).message().text == "LookupError"
