"""A person whose answers are known beforehand."""

from __future__ import annotations

import pytest

from cubepi_anyio.errors import InvalidAnswer, RequestTimedOut, UsageError
from cubepi_anyio.testing.people import ScriptedChannel
from cubepi_anyio.types.hitl import ApproveAnswer, ConfirmRequest, PersonRequest

pytestmark = pytest.mark.anyio


async def test_answers_come_in_order_and_questions_are_kept() -> None:
    channel = ScriptedChannel([True, ApproveAnswer(decision="approve"), RequestTimedOut("q", 1)])
    assert await channel.confirm("a") is True
    assert (await channel.approve("t", {}, tool_call_id="c")).decision == "approve"
    with pytest.raises(RequestTimedOut):
        await channel.confirm("b")
    assert [request.payload.kind for request in channel.requests] == ["confirm", "approve", "confirm"]


async def test_a_function_answers_by_the_question() -> None:
    def decide(request: PersonRequest) -> bool:
        assert isinstance(request.payload, ConfirmRequest)
        return request.payload.prompt == "yes?"

    channel = ScriptedChannel(decide)
    assert [await channel.confirm(prompt) for prompt in ("yes?", "no?", "yes?")] == [True, False, True]


async def test_a_question_too_many_and_an_answer_that_does_not_fit_are_errors() -> None:
    channel = ScriptedChannel([{"k": "v"}])
    with pytest.raises(InvalidAnswer, match="true or false"):
        await channel.confirm("a")
    with pytest.raises(UsageError, match=r"question 2 \(confirm\) finds no answer"):
        await channel.confirm("b")
