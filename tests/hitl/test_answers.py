"""What answers a question, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio.errors import InvalidAnswer, RequestTimedOut, RequestWithdrawn, UnknownRequest
from cubepi_anyio.hitl import check_answer
from cubepi_anyio.hitl.answers import why_unanswered
from cubepi_anyio.types.hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    Option,
    PersonRequest,
    Question,
    RequestPayload,
)

COLOURS = [Option(label="Red", value="r"), Option(label="Blue", value="b")]
FREE = [*COLOURS, Option(label="Another", allow_input=True)]


def request(payload: RequestPayload) -> PersonRequest:
    return PersonRequest(id="q", payload=payload)


def asking(**question: Any) -> PersonRequest:
    return request(AskRequest(questions=[Question(key="k", prompt="?", **question)]))


CONFIRM = request(ConfirmRequest(prompt="sure?"))
APPROVE = request(ApproveRequest(tool_name="t"))


@pytest.mark.parametrize(
    ("question", "given", "taken"),
    [
        (CONFIRM, True, True),
        (CONFIRM, False, False),
        (APPROVE, ApproveAnswer(decision="approve"), ApproveAnswer(decision="approve")),
        (APPROVE, {"decision": "deny", "reason": "no"}, ApproveAnswer(decision="deny", reason="no")),
        (APPROVE, {"decision": "edit", "edited_args": {}}, ApproveAnswer(decision="edit", edited_args={})),
        (asking(), {"k": "text"}, {"k": "text"}),
        (asking(options=COLOURS), {"k": "r"}, {"k": "r"}),
        (asking(options=COLOURS), {"k": "Blue"}, {"k": "b"}),
        (asking(options=FREE), {"k": "green"}, {"k": "green"}),
        (asking(options=COLOURS, multi_select=True), {"k": ["Red", "b", "r"]}, {"k": ["r", "b"]}),
        (asking(required=False), {}, {}),
        (asking(required=False), {"k": None}, {}),
        (asking(required=False, multi_select=True), {"k": []}, {}),
    ],
)
def test_an_answer_that_fits_is_taken_in_the_form_the_question_wants(
    question: PersonRequest, given: Any, taken: Any
) -> None:
    checked = check_answer(question, given)
    assert checked == taken
    assert type(checked) is type(taken)
    assert check_answer(question, checked) == taken


@pytest.mark.parametrize(
    ("question", "given", "problem"),
    [
        (CONFIRM, 1, "it wants true or false, not a value of type int"),
        (CONFIRM, {}, "it wants true or false, not a value of type dict"),
        (APPROVE, True, "it wants an ApproveAnswer, not a value of type bool"),
        (APPROVE, {"decision": "deny", "why": "no"}, "why: Extra inputs are not permitted"),
        (APPROVE, {"decision": "edit"}, "edited_args belong to decision='edit', and to no other decision"),
        (
            APPROVE,
            ApproveAnswer(decision="approve", edited_args={}),
            "edited_args belong to decision='edit', and to no other decision",
        ),
        (asking(), "text", "it wants an object by question key, not a value of type str"),
        (asking(), {}, "k: an answer is required"),
        (asking(), {"k": "  "}, "k: an answer is required"),
        (asking(), {"k": "x", "other": "y"}, "there is no question 'other'; the questions are k"),
        (asking(), {"k": 3}, "k: it wants a string, not a value of type int"),
        (asking(options=COLOURS), {"k": "green"}, "k: 'green' is none of the options r, b"),
        (
            asking(options=COLOURS, multi_select=True),
            {"k": "r"},
            "k: it wants a list of answers, not a value of type str",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_the_reason(
    question: PersonRequest, given: Any, problem: str
) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        check_answer(question, given)
    assert (caught.value.request_id, caught.value.problem) == ("q", problem)


def test_the_model_reads_why_nobody_answered() -> None:
    assert why_unanswered(RequestTimedOut("q", 30)) == "Nobody answered within 30 seconds."
    assert why_unanswered(RequestWithdrawn("q")) == "The question was withdrawn."
    assert why_unanswered(RequestWithdrawn("q", "too late")) == "The question was withdrawn: too late"
    assert why_unanswered(UnknownRequest("q")).startswith("Nobody could answer: ")
