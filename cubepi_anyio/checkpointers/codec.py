"""Messages, questions and answers to stored JSON and back. Pure.

What is written can be read: a value that JSON cannot express is replaced by a plain one before it is stored, and a
message that could not be read again is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import StoreCorrupt, UsageError
from ..types.hitl import ApproveAnswer, PersonAnswer, PersonRequest
from ..types.messages import Message, message_adapter

__all__ = (
    "decode_answer",
    "decode_message",
    "decode_messages",
    "decode_request",
    "decode_value",
    "encode_answer",
    "encode_message",
    "encode_request",
    "encode_value",
)

_messages_adapter: TypeAdapter[list[Message]] = TypeAdapter(list[Message], config=ConfigDict(defer_build=True))


def encode_message(message: Message) -> bytes:
    """A message as JSON, in UTF-8.

    In ``details``, ``metadata`` and the like, what JSON cannot express becomes its closest plain value, or the name of
    its type; half a surrogate pair becomes U+FFFD. Raises ``UsageError`` for a message without an id, or one that could
    not be read again because its fields hold values of a wrong type.
    """
    if not message.id:
        raise UsageError(f"a {message.role} message without an id cannot be stored once; give it an id of its own")
    try:
        return message_adapter.dump_json(message, warnings="error")
    except PydanticSerializationError:
        pass
    data = to_json(_plain(message, ()))
    try:
        message_adapter.validate_json(data)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        raise UsageError(f"message {message.id!r} cannot be stored: {where} holds a value of a wrong type") from error
    return data


def decode_message(data: bytes | str, thread_id: str, row: str) -> Message:
    """The message of one row. Raises ``StoreCorrupt`` naming ``row`` if it cannot be read."""
    try:
        return message_adapter.validate_json(data)
    except ValidationError as error:
        raise StoreCorrupt(thread_id, row, _first_problem(error)) from error


def decode_messages(rows: Sequence[tuple[bytes | str, str]], thread_id: str) -> list[Message]:
    """The messages of ``rows`` (JSON, and what the row is called), read in one go. Raises ``StoreCorrupt``."""
    texts = [data if isinstance(data, bytes) else data.encode() for data, _ in rows]
    try:
        messages = _messages_adapter.validate_json(b"[" + b",".join(texts) + b"]")
    except ValidationError:
        messages = []
    # Read one by one where something is wrong, to find the row; a row of two messages would pass unseen above.
    if len(messages) != len(rows):
        return [decode_message(data, thread_id, row) for data, row in rows]
    return messages


def encode_request(request: PersonRequest) -> bytes:
    """A question as JSON."""
    try:
        return request.model_dump_json().encode()
    except PydanticSerializationError:
        return to_json(_plain(request, ()))


def decode_request(data: bytes | str, thread_id: str, row: str) -> PersonRequest:
    """The question of one row. Raises ``StoreCorrupt`` naming ``row`` if it cannot be read."""
    try:
        return PersonRequest.model_validate_json(data)
    except ValidationError as error:
        raise StoreCorrupt(thread_id, row, _first_problem(error)) from error


def encode_answer(answer: PersonAnswer) -> bytes:
    """An answer as JSON, with its kind: a dict that looks like a decision about a call stays a dict."""
    kind = "approve" if isinstance(answer, ApproveAnswer) else "confirm" if isinstance(answer, bool) else "ask"
    return to_json({"kind": kind, "answer": _plain(answer, ())})


def decode_answer(data: bytes | str, thread_id: str, row: str) -> PersonAnswer:
    """The answer of one row. Raises ``StoreCorrupt`` naming ``row`` if it cannot be read."""
    stored = decode_value(data, thread_id, row)
    match stored:
        case {"kind": "confirm", "answer": bool(answer)}:
            return answer
        case {"kind": "ask", "answer": dict()}:
            return stored["answer"]
        case {"kind": "approve", "answer": answer}:
            try:
                return ApproveAnswer.model_validate(answer)
            except ValidationError as error:
                raise StoreCorrupt(thread_id, row, _first_problem(error)) from error
        case _:
            raise StoreCorrupt(thread_id, row, "this is no answer of a person")


def encode_value(value: Any) -> bytes:
    """Any value as JSON; what JSON cannot express becomes a plain value, as in ``encode_message``."""
    return to_json(_plain(value, ()))


def decode_value(data: bytes | str, thread_id: str, row: str) -> Any:
    """The value of one row. Raises ``StoreCorrupt`` naming ``row`` if it is no JSON."""
    try:
        return from_json(data)
    except ValueError as error:
        raise StoreCorrupt(thread_id, row, str(error)) from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


# --- values JSON cannot express --------------------------------------------------------------


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """``value`` in JSON's own types. ``above`` are the ids of what contains it, so that circles end."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if id(value) in above or len(above) > _DEEPEST:
        return _type_name(value)
    return _plain_container(value, (*above, id(value)))


_DEEPEST = 100
"""Levels of nesting that every reader of JSON takes."""


def _plain_container(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name), above) for name in type(value).model_fields}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), above) for field in fields(value)}
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_text(key if isinstance(key, str) else str(key)): _plain(item, above) for key, item in items}
    if isinstance(value, list | tuple | Set):
        return [_plain(item, above) for item in cast("Sequence[Any]", value)]
    # Dates, UUIDs, paths, text in bytes and the like as pydantic writes them; of anything else the type's name.
    try:
        return json.loads(to_json(value))
    except (PydanticSerializationError, ValueError):
        return _type_name(value)


def _text(value: str) -> str:
    return str(value) if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _type_name(value: object) -> str:
    return f"<{type(value).__qualname__}>"
