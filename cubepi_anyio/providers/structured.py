"""Ask a model for an object of a given shape, and get it validated.

Two ways lead there: a tool the model is made to call, which every vendor with tools has, and the vendor's own JSON
Schema for the text of an answer. What does not validate is shown to the model, which is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from ..errors import ProviderError, StructuredOutputError
from ..types.content import TextContent, ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from ..types.model import ResponseSchema
from ..types.tool import ToolDefinition
from .model_call import ModelCall, StreamingModel, StreamOptions

__all__ = ("StructuredMethod", "generate_structured")

_OutputT = TypeVar("_OutputT", bound=BaseModel)

StructuredMethod = Literal["auto", "tool", "json_schema"]
"""``tool`` makes the model call a tool, ``json_schema`` has the vendor hold the text to a schema; ``auto`` takes the
second where the provider says that it can (``takes_response_schema``), and the first elsewhere."""

_MAX_PROBLEM_LINES = 20
_MAX_READINGS = 4


async def generate_structured(
    model: StreamingModel,
    output: type[_OutputT],
    messages: str | Sequence[Message],
    *,
    system_prompt: str = "",
    method: StructuredMethod = "auto",
    max_retries: int = 1,
    name: str = "structured_output",
    description: str = "",
    options: StreamOptions | None = None,
) -> _OutputT:
    """Ask ``model`` for an instance of ``output``; ``messages`` is a conversation, or what a user says.

    An answer that is no such object is shown to the model with what is wrong, and it is asked again, ``max_retries``
    times at most. ``name`` and ``description`` are what the model sees; by default the description is the docstring of
    ``output``. ``options.response_schema`` is not used.

    Raises ``StructuredOutputError`` if the last answer does not fit either, or was refused or cut; the error of the
    model if it fails (``ProviderError``); ``ValueError`` for a negative ``max_retries``. A checkpoint; cancelling it
    closes the connection, and nothing else is left of it.
    """
    if max_retries < 0:
        raise ValueError(f"max_retries is 0 or more, not {max_retries}")
    schema = _schema_of(output)
    description = description or schema.get("description", "")
    wanted = ResponseSchema(name=name, json_schema=schema, description=description)
    conversation: list[Message] = _conversation(messages)
    native = method == "json_schema" or (method == "auto" and bool(getattr(model, "takes_response_schema", False)))
    asking = _Asking(model, output, wanted, system_prompt, options if options is not None else StreamOptions(), native)
    for _ in range(max_retries):
        answer = await asking.ask(conversation)
        found = asking.read(answer)
        if not isinstance(found, _Problem):
            return found
        conversation += [answer, *asking.objection(answer, found)]
    answer = await asking.ask(conversation)
    found = asking.read(answer)
    if isinstance(found, _Problem):
        raise asking.error(found)
    return found


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an answer is not the object."""

    text: str
    given: str = ""


@dataclass(frozen=True, slots=True)
class _Asking(Generic[_OutputT]):
    """One request for an object, and how its answers are read."""

    model: StreamingModel
    output: type[_OutputT]
    wanted: ResponseSchema
    system_prompt: str
    options: StreamOptions
    native: bool

    async def ask(self, conversation: Sequence[Message]) -> AssistantMessage:
        """The whole answer; raises the error of a model that fails, and for an answer that can be of no use."""
        wanted = self.wanted
        call = ModelCall(
            messages=list(conversation),
            system_prompt=self.system_prompt,
            options=replace(self.options, response_schema=wanted if self.native else None),
        )
        if not self.native:
            description = wanted.description or "Give the answer by calling this."
            tool = ToolDefinition(name=wanted.name, description=description, parameters=wanted.json_schema)
            call = replace(call, tools=[tool], tool_choice=wanted.name)
        async with await call.ask(self.model) as stream:
            answer = await stream.result()
        if stream.error is not None:
            raise stream.error
        self._refuse_useless(answer)
        return answer

    def _refuse_useless(self, answer: AssistantMessage) -> None:
        match answer.stop_reason:
            case "error" | "aborted":
                spec = self.model.spec
                reason = answer.error_message or "the model gave no reason"
                raise ProviderError(reason, provider=spec.provider, model=spec.id)
            case "length":
                raise self.error(_Problem("it was cut because it grew too long; raise max_output_tokens", answer.text))
            case "refusal":
                raise self.error(_Problem(f"the model refused: {answer.text}", answer.text))
            case _:
                pass

    def read(self, answer: AssistantMessage) -> _OutputT | _Problem:
        """The object in an answer, or what is wrong with it."""
        if self.native:
            return self._read_text(answer.text)
        call = next((call for call in answer.tool_calls if call.name == self.wanted.name), None)
        if call is None:
            return _Problem(f"the tool {self.wanted.name} was not called", answer.text)
        if call.invalid_arguments is not None:
            return _Problem("the arguments are no JSON object", call.invalid_arguments)
        return _validated(self.output, call.arguments)

    def _read_text(self, text: str) -> _OutputT | _Problem:
        try:
            value: Any = from_json(text)
        except ValueError as error:
            return _Problem(f"it is no JSON: {error}", text)
        return _validated(self.output, value)

    def objection(self, answer: AssistantMessage, problem: _Problem) -> list[Message]:
        """What is said to the model about an answer that does not fit; every call of it is answered."""
        if not self.native and answer.tool_calls:
            text = f"{problem.text}\nCall {self.wanted.name} once more, with all of its fields."
            return [_error_result(call, text) for call in answer.tool_calls]
        way_out = "Give the whole object again, as JSON alone." if self.native else f"Call {self.wanted.name}."
        text = f"That answer cannot be used: {problem.text}\n{way_out}"
        return [UserMessage(content=[TextContent(text=text)])]

    def error(self, problem: _Problem) -> StructuredOutputError:
        """The error of an answer that does not fit."""
        spec = self.model.spec
        return StructuredOutputError(
            f"the answer is no {self.output.__name__}: {problem.text}",
            problem=problem.text,
            answer=problem.given,
            provider=spec.provider,
            model=spec.id,
        )


def _error_result(call: ToolCall, text: str) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call.id, tool_name=call.name, content=[TextContent(text=text)], is_error=True)


def _conversation(messages: str | Sequence[Message]) -> list[Message]:
    if isinstance(messages, str):
        return [UserMessage(content=[TextContent(text=messages)])]
    return list(messages)


def _schema_of(output: type[BaseModel]) -> JsonObject:
    """The JSON Schema of a class; a recursive one refers to itself, and vendors want an object at the root."""
    schema = output.model_json_schema()
    reference = schema.pop("$ref", None)
    if isinstance(reference, str):
        schema = {**schema["$defs"][reference.rpartition("/")[2]], **schema}
    return schema


# --- validation ------------------------------------------------------------------------------


def _validated(output: type[_OutputT], value: Any) -> _OutputT | _Problem:
    """``value`` as an ``output``, by pydantic's rules for JSON.

    A strict schema has no optional fields, so a model says ``null`` where it means to leave one out. Such nulls are
    taken away where they do not validate, and the field's default stands in.
    """
    text = to_json(value, inf_nan_mode="strings").decode()
    given, problem = from_json(text), ""
    for _ in range(_MAX_READINGS):
        try:
            return output.model_validate_json(to_json(given, inf_nan_mode="strings"))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
        problem = _lines(faults)
        nulls = [fault["loc"] for fault in faults if fault["input"] is None and fault["type"] != "missing"]
        if not sum(_left_out(given, loc) for loc in nulls):
            break
    return _Problem(problem, text)


def _left_out(value: Any, loc: Sequence[int | str]) -> bool:
    """Take the field at ``loc`` out of ``value`` if it is null. Parts that name members of a union are skipped."""
    owner: Any = None
    key: Any = None
    for part in loc:
        if isinstance(value, dict) and part in value:
            owner, key = cast("JsonObject", value), part
            value = owner[part]
        elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(cast("list[Any]", value)):
            owner, value = None, cast("list[Any]", value)[part]
    if owner is None or value is not None:
        return False
    del owner[key]
    return True


def _lines(faults: Sequence[ErrorDetails]) -> str:
    """A line for each field: where, and what is wrong. No class names, no links."""
    lines = [f"{_path(fault['loc'])}: {_without_class(fault['msg'])}" for fault in faults]
    more = [f"and {len(lines) - _MAX_PROBLEM_LINES} more"] if len(lines) > _MAX_PROBLEM_LINES else []
    return "\n".join([*lines[:_MAX_PROBLEM_LINES], *more])


def _path(loc: Sequence[int | str]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return path.removeprefix(".") or "the answer"


def _without_class(message: str) -> str:
    return re.sub(r" or instance of \w+|^Value error, ", "", message)
