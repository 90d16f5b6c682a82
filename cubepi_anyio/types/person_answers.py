"""Whether an answer fits the question that was put to a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import ValidationError

from ..errors import InvalidAnswer
from .hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    PersonAnswer,
    PersonRequest,
    Question,
)

__all__ = ("check_answer",)


def check_answer(request: PersonRequest, answer: Any) -> PersonAnswer:
    """Return ``answer`` in the form its question wants, or raise ``InvalidAnswer`` with what is wrong with it.

    To confirm: ``True`` or ``False``. To approve: an ``ApproveAnswer``, or its JSON object. To ask: an object by
    question key; an option may be named by its value or its label and becomes its value, a question with
    ``multi_select`` wants a list. What was normalised once stays as it is.
    """
    match request.payload:
        case ConfirmRequest():
            if not isinstance(answer, bool):
                raise InvalidAnswer(request.id, f"it wants true or false, not {_type(answer)}")
            return answer
        case ApproveRequest():
            return _decision(request.id, answer)
        case AskRequest(questions=questions):
            return _answers(request.id, questions, answer)


def _decision(request_id: str, answer: Any) -> ApproveAnswer:
    if isinstance(answer, dict):
        try:
            answer = ApproveAnswer.model_validate(answer)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidAnswer(request_id, f"{where}: {first['msg']}" if where else first["msg"]) from None
    if not isinstance(answer, ApproveAnswer):
        raise InvalidAnswer(request_id, f"it wants an ApproveAnswer, not {_type(answer)}")
    if (answer.decision == "edit") is not (answer.edited_args is not None):
        raise InvalidAnswer(request_id, "edited_args belong to decision='edit', and to no other decision")
    return answer


# --- answers to questions --------------------------------------------------------------------


def _answers(request_id: str, questions: Sequence[Question], answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise InvalidAnswer(request_id, f"it wants an object by question key, not {_type(answer)}")
    given = cast("dict[str, Any]", answer)
    known = {question.key: question for question in questions}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise InvalidAnswer(request_id, f"there is no question {unknown[0]!r}; the questions are {', '.join(known)}")
    checked: dict[str, Any] = {}
    for key, question in known.items():
        value = given.get(key)
        is_blank = value is None or value == [] or (isinstance(value, str) and not value.strip())
        if not is_blank:
            checked[key] = _one_answer(request_id, question, value)
        elif question.required:
            raise InvalidAnswer(request_id, f"{key}: an answer is required")
    return checked


def _one_answer(request_id: str, question: Question, value: Any) -> str | list[str]:
    if not question.multi_select:
        return _choice(request_id, question, value)
    if not isinstance(value, list):
        raise InvalidAnswer(request_id, f"{question.key}: it wants a list of answers, not {_type(value)}")
    chosen = [_choice(request_id, question, item) for item in cast("list[Any]", value)]
    return list(dict.fromkeys(chosen))


def _choice(request_id: str, question: Question, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidAnswer(request_id, f"{question.key}: it wants a string, not {_type(value)}")
    offered = {option.value or option.label: option for option in question.options}
    if not offered or value in offered:
        return value
    for key, option in offered.items():
        if value == option.label:
            return key
    if any(option.allow_input for option in question.options):
        return value
    raise InvalidAnswer(request_id, f"{question.key}: {value!r} is none of the options {', '.join(offered)}")


def _type(value: object) -> str:
    return f"a value of type {type(value).__name__}"
