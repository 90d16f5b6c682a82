"""A policy decides about each call before its tool runs, and a person where the policy says so."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import AgentTool, faux_assistant_message, faux_tool_call
from cubepi_anyio.errors import RequestTimedOut, RequestWithdrawn, UsageError
from cubepi_anyio.hitl import (
    ApprovalPolicy,
    Approve,
    AskPerson,
    ConfirmToolCall,
    Deny,
    Edit,
    MemoryChannel,
    PolicyDecision,
    ask_user_tool,
)
from cubepi_anyio.hooks import BeforeToolCallContext, Middleware
from cubepi_anyio.testing.people import ScriptedChannel
from cubepi_anyio.tools.hooks import BeforeToolCallResult
from cubepi_anyio.types.hitl import ApproveAnswer, ApproveRequest, PersonRequest
from tests.support.agents import Bench, Word, assert_well_ended, bench, calling, saying, tool_of

pytestmark = pytest.mark.anyio

YES = ApproveAnswer(decision="approve")


def noting(ran: list[str], name: str = "write") -> AgentTool:
    """A tool that takes a word and notes it."""

    async def execute(tool_call_id: str, params: Word) -> str:
        ran.append(params.word)
        return f"wrote {params.word}"

    return tool_of(name, execute, parameters=Word)


def one_call(middleware: Middleware, ran: list[str], **arguments: Any) -> Bench:
    """An agent whose model calls ``write`` once, by default with the word ``draft``."""
    answer = faux_assistant_message([faux_tool_call("write", arguments or {"word": "draft"}, id="c1")])
    return bench(answer, "done", tools=[noting(ran)], middleware=[middleware])


def deciding(decision: PolicyDecision, channel: ScriptedChannel | None = None) -> ApprovalPolicy:
    return ApprovalPolicy(channel or ScriptedChannel([]), lambda call: decision)


async def test_what_a_policy_decides_needs_no_person() -> None:
    for decision, text, words in (
        (Approve(), "wrote draft", ["draft"]),
        (Deny("not today"), "not today", []),
        (Deny(), "This call is not allowed.", []),
        (Edit({"word": "final"}), "wrote final", ["final"]),
    ):
        ran: list[str] = []
        made = one_call(deciding(decision), ran)
        assert (await made.agent.prompt("go")).outcome == "completed"
        assert (made.texts, ran) == ([text], words)
        assert made.results[0].is_error is isinstance(decision, Deny)
        await assert_well_ended(made)


async def test_a_policy_may_be_async_and_sees_the_call() -> None:
    seen: list[Any] = []

    async def policy(call: BeforeToolCallContext) -> PolicyDecision:
        await anyio.lowlevel.checkpoint()
        seen.append((call.tool_call.name, call.tool_call.id, call.args))
        return Deny("no")

    made = one_call(ApprovalPolicy(ScriptedChannel([]), policy), [])
    await made.agent.prompt("go")
    assert seen == [("write", "c1", Word(word="draft"))]
    assert made.texts == ["no"]


@pytest.mark.parametrize(
    ("answer", "text", "words"),
    [
        (YES, "wrote draft", ["draft"]),
        (ApproveAnswer(decision="deny", reason="too early"), "The user refused this call: too early", []),
        (ApproveAnswer(decision="deny"), "The user refused this call.", []),
        (ApproveAnswer(decision="edit", edited_args={"word": "final"}), "wrote final", ["final"]),
        (RequestTimedOut("q", 30), "The call was not approved. Nobody answered within 30 seconds.", []),
        (RequestWithdrawn("q", "gone"), "The call was not approved. The question was withdrawn: gone", []),
    ],
)
async def test_a_person_decides(answer: Any, text: str, words: list[str]) -> None:
    ran: list[str] = []
    channel = ScriptedChannel([answer])
    made = one_call(deciding(AskPerson("really?", {"why": "a test"}), channel), ran)
    assert (await made.agent.prompt("go")).outcome == "completed"
    assert (made.texts, ran) == ([text], words)
    (request,) = channel.requests
    assert request.payload == ApproveRequest(
        tool_name="write", args={"word": "draft"}, prompt="really?", details={"why": "a test"}
    )
    assert (request.tool_call_id, request.run_id) == ("c1", made.results[0].run_id)
    await assert_well_ended(made)


async def test_edited_arguments_are_validated_like_those_of_the_model() -> None:
    ran: list[str] = []
    channel = ScriptedChannel([ApproveAnswer(decision="edit", edited_args={"wird": "final"})])
    made = one_call(deciding(AskPerson(), channel), ran)
    await made.agent.prompt("go")
    assert ran == []
    assert made.texts == ["word: Field required"]


async def test_arguments_that_do_not_fit_are_nobodys_question() -> None:
    channel = ScriptedChannel([])
    made = one_call(deciding(AskPerson(), channel), [], wird="draft")
    await made.agent.prompt("go")
    assert channel.requests == []
    assert made.results[0].is_error


async def test_the_timeout_of_a_question_comes_before_that_of_the_policy_and_of_the_channel() -> None:
    for asked, policy, seconds in (
        (AskPerson(timeout=1), {"timeout": 2}, 1),
        (AskPerson(), {"timeout": 2}, 2),
        (AskPerson(timeout=None), {"timeout": 2}, None),
        (AskPerson(), {}, 3),
    ):
        channel = ScriptedChannel([YES])
        channel.default_timeout = 3
        made = one_call(ApprovalPolicy(channel, lambda call, asked=asked: asked, **policy), [])
        await made.agent.prompt("go")
        assert channel.requests[0].timeout_seconds == seconds


async def test_a_policy_that_decides_nothing_is_a_bug_that_is_raised() -> None:
    ran: list[str] = []
    made = one_call(ApprovalPolicy(ScriptedChannel([]), lambda call: True), ran)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"a policy returns Approve\(\), .* not bool"):
        await made.agent.prompt("go")
    assert ran == []
    await assert_well_ended(made)


async def test_only_the_call_that_is_asked_about_waits() -> None:
    channel = MemoryChannel()
    made = bench(
        calling("gated", "free", "gated"),
        "done",
        tools=[saying("gated"), saying("free")],
        middleware=[ConfirmToolCall(channel, "gated")],
    )

    async def answer() -> None:
        await anyio.wait_all_tasks_blocked()
        assert [f"c{n}" for n in (1, 3)] == sorted(request.tool_call_id for request in channel.pending)
        assert [label for label in made.labels if "execution_end" in label] == ["tool_execution_end:c2:finished"]
        ids = {request.tool_call_id: request.id for request in channel.pending}
        channel.answer(ids["c3"], YES)
        await anyio.wait_all_tasks_blocked()
        assert made.labels[-1] == "tool_execution_end:c3:finished"
        channel.answer(ids["c1"], ApproveAnswer(decision="deny", reason="no"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        assert (await made.agent.prompt("go")).outcome == "completed"
    assert made.texts == ["The user refused this call: no", "free", "gated"]
    await assert_well_ended(made)


async def test_aborting_a_run_takes_its_questions_back() -> None:
    channel = MemoryChannel()
    made = bench(
        calling("gated", "free"),
        tools=[saying("gated"), saying("free")],
        middleware=[ConfirmToolCall(channel, "gated")],
    )
    channel.listen(lambda request: made.agent.abort("enough"))
    result = await made.agent.prompt("go")
    assert (result.outcome, channel.pending) == ("aborted", [])
    assert made.results[0].is_error
    assert "before it began" in made.texts[0]
    await assert_well_ended(made)


async def test_cancelling_a_run_takes_its_questions_back_and_leaves() -> None:
    channel = MemoryChannel()
    made = bench(calling("gated"), tools=[saying("gated")], middleware=[ConfirmToolCall(channel)])
    with anyio.CancelScope() as scope:
        channel.listen(lambda request: scope.cancel())
        await made.agent.prompt("go")
    assert scope.cancelled_caught
    assert channel.pending == []
    await assert_well_ended(made)


async def test_aborting_one_call_takes_back_its_question_alone() -> None:
    channel = MemoryChannel()
    made = bench(calling("gated", "gated"), "done", tools=[saying("gated")], middleware=[ConfirmToolCall(channel)])

    async def decide() -> None:
        await anyio.wait_all_tasks_blocked()
        assert made.agent.abort_tool_call("c1", "not this")
        await anyio.wait_all_tasks_blocked()
        (left,) = channel.pending
        assert left.tool_call_id == "c2"
        channel.answer(left.id, YES)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decide)
        assert (await made.agent.prompt("go")).outcome == "completed"
    assert made.texts == ["The call was cancelled by the user: not this", "gated"]


@pytest.mark.parametrize(
    ("tools", "asked"),
    [
        (None, ["a", "b"]),
        ("a", ["a"]),
        (["b"], ["b"]),
        ({"ask_user"}, ["ask_user"]),
        (lambda call: call.tool_call.name == "b", ["b"]),
    ],
)
async def test_which_calls_a_person_confirms(tools: Any, asked: list[str]) -> None:
    def answer(request: PersonRequest) -> Any:
        return YES if isinstance(request.payload, ApproveRequest) else {"question_1": "yes"}

    channel = ScriptedChannel(answer)
    calls = [
        faux_tool_call("a", {}, id="c1"),
        faux_tool_call("b", {}, id="c2"),
        faux_tool_call("ask_user", {"questions": [{"prompt": "Well?"}]}, id="c3"),
    ]
    made = bench(
        faux_assistant_message(calls),
        "done",
        tools=[saying("a"), saying("b"), ask_user_tool(channel)],
        middleware=[ConfirmToolCall(channel, tools)],
    )
    assert (await made.agent.prompt("go")).outcome == "completed"
    assert [r.payload.tool_name for r in channel.requests if isinstance(r.payload, ApproveRequest)] == asked
    assert made.texts == ["a", "b", "Well?\nyes"]


async def test_a_confirmation_says_what_the_application_wants_it_to_say() -> None:
    channel = ScriptedChannel([YES])

    def details(call: BeforeToolCallContext) -> dict[str, Any]:
        return {"length": len(call.args.word)}

    async def picks(call: BeforeToolCallContext) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    made = one_call(ConfirmToolCall(channel, picks, prompt="Write?", details=details, timeout=7), [])
    await made.agent.prompt("go")
    (request,) = channel.requests
    assert request.payload == ApproveRequest(
        tool_name="write", args={"word": "draft"}, prompt="Write?", details={"length": 5}
    )
    assert request.timeout_seconds == 7


async def test_a_person_is_shown_what_the_middleware_before_made_of_the_arguments() -> None:
    class Shout(Middleware):
        async def before_tool_call(self, call: BeforeToolCallContext, **_: Any) -> BeforeToolCallResult:
            return BeforeToolCallResult(edited_args={"word": call.args.word.upper()})

    ran: list[str] = []
    channel = ScriptedChannel([YES])
    answer = faux_assistant_message([faux_tool_call("write", {"word": "draft"}, id="c1")])
    made = bench(answer, "done", tools=[noting(ran)], middleware=[Shout(), ConfirmToolCall(channel)])
    await made.agent.prompt("go")
    assert isinstance(channel.requests[0].payload, ApproveRequest)
    assert channel.requests[0].payload.args == {"word": "DRAFT"}
    assert ran == ["DRAFT"]


async def test_a_script_that_is_too_short_ends_the_run_with_an_error() -> None:
    made = one_call(ConfirmToolCall(ScriptedChannel([])), [])
    with pytest.raises(UsageError, match="question 1"):
        await made.agent.prompt("go")


async def test_a_tool_may_ask_in_the_middle_of_its_work() -> None:
    channel = MemoryChannel()
    channel.listen(lambda request: channel.answer(request.id, True))

    async def execute(tool_call_id: str, params: Word) -> str:
        sure = await channel.confirm(f"{params.word}?", tool_call_id=tool_call_id)
        return f"{params.word}: {sure}"

    answer = faux_assistant_message([faux_tool_call("careful", {"word": "draft"}, id="c1")])
    made = bench(answer, "done", tools=[tool_of("careful", execute, parameters=Word)])
    await made.agent.prompt("go")
    assert made.texts == ["draft: True"]
