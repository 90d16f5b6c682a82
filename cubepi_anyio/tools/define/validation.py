"""Checks the arguments a model sent, mends what is plainly meant, and says to the model what is wrong.

Arguments that fit are never touched. Those that do not are looked at once more: a string where an array or an
object is wanted is decoded as JSON; for JSON Schemas a string that reads as a number or truth value is taken as
one (pydantic does that by itself). Nothing is decoded twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from ...types import JsonObject
from .json_schema import NOTHING, Fault, Path, is_array, is_object, parts_at, schema_faults, shown, unknown_field

__all__ = (
    "MAX_TEXT_BYTES",
    "ArgumentsInvalid",
    "validator_for",
)

MAX_TEXT_BYTES = 2000
"""The most a model is told of one call's arguments."""

_MAX_LINE_CHARS = 400
_MAX_READINGS = 4  # what was decoded may hold strings to decode; deeper than three levels nobody writes by accident
_MAX_DEPTH = 400  # levels of arguments; less than what any Python can copy one inside the other


class ArgumentsInvalid(ValueError):
    """The arguments of a call do not fit the tool. ``text`` is for the model: a line for each field."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)


def validator_for(parameters: type[BaseModel] | JsonObject, schema: JsonObject) -> Callable[[JsonObject], Any]:
    """Make the function from arguments to the parameters a tool gets; it raises ``ArgumentsInvalid``.

    ``schema`` is the JSON Schema of ``parameters``. Arguments that fit a model class cost one call into pydantic.
    Where ``parameters`` is a schema, the tool gets a copy: changing it does not change the transcript.
    """
    if isinstance(parameters, dict):
        return lambda arguments: _read(lambda given: (given, schema_faults(schema, given)), _copied(arguments))

    def validate(arguments: JsonObject) -> BaseModel:
        try:
            return parameters.model_validate(arguments)
        except ValidationError:
            return _read(partial(_read_by_model, parameters, schema), _copied(arguments))

    return validate


def _read(read: Callable[[JsonObject], tuple[Any, list[Fault]]], arguments: JsonObject) -> Any:
    """Read the arguments, mending them in place between readings, until they fit or nothing is left to mend."""
    faults: list[Fault] = []
    for _ in range(_MAX_READINGS):
        parameters, faults = read(arguments)
        if not faults:
            return parameters
        if not _mend(arguments, faults):
            break
    raise ArgumentsInvalid(_text(faults))


def _read_by_model(
    model: type[BaseModel], schema: JsonObject, arguments: JsonObject
) -> tuple[BaseModel | None, list[Fault]]:
    """Read by pydantic's rules for JSON: a strict model takes a date from a string, and errors speak of arrays."""
    try:
        text = json.dumps(arguments)
    except (TypeError, ValueError):  # a hook put something into the arguments that is no JSON
        text = None
    try:
        return model.model_validate(arguments) if text is None else model.model_validate_json(text), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [_pydantic_fault(dict(one), schema, arguments) for one in found]


def _copied(arguments: JsonObject) -> JsonObject:
    try:
        return _copy(arguments, _MAX_DEPTH)
    except RecursionError:
        raise ArgumentsInvalid("The arguments are nested too deeply") from None


def _copy(value: Any, depth: int) -> Any:
    """A copy of a JSON value; several times as fast as ``copy.deepcopy``, which is made for any object.

    Raises ``RecursionError`` where more than ``depth`` values are nested: what Python itself bears differs by release.
    """
    if not depth:
        raise RecursionError
    if is_object(value):
        return {key: _copy(item, depth - 1) for key, item in value.items()}
    return [_copy(item, depth - 1) for item in value] if is_array(value) else value


# --- mending ---------------------------------------------------------------------------------


def _mend(arguments: JsonObject, faults: Iterable[Fault]) -> bool:
    """Put what a string spells in place of the string, where that is wanted; say whether anything changed."""
    mends = {fault.path: value for fault in faults for value in _spelled(fault)}
    for path, value in mends.items():
        container: Any = arguments
        for part in path[:-1]:
            container = container[part]
        container[path[-1]] = value
    return bool(mends)


def _spelled(fault: Fault) -> list[Any]:
    """The value that the string at a fault spells, as a list of one; empty if it is not of a wanted type."""
    if not fault.path or not fault.wanted or not isinstance(fault.value, str):
        return []
    try:
        value = json.loads(fault.value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return []
    # Null and strings are never what a string was meant to spell.
    fits = value is not None and not isinstance(value, str) and not schema_faults({"type": [*fault.wanted]}, value)
    return [value] if fits else []


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# --- what pydantic found ---------------------------------------------------------------------

_ARRAY, _OBJECT = frozenset({"array"}), frozenset({"object"})
_WANTED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), _ARRAY),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), _OBJECT),
    "named_tuple_type": _ARRAY | _OBJECT,
}
_SENTENCES = {
    "extra_forbidden": "Unknown field",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "dataclass_type": "Input should be an object",
    "dataclass_exact_type": "Input should be an object",
    "is_instance_of": "Input is of the wrong type",
    "is_subclass_of": "Input is of the wrong type",
}


def _pydantic_fault(found: dict[str, Any], schema: JsonObject, arguments: JsonObject) -> Fault:
    kind: str = found["type"]
    location: Path = found["loc"]
    value: Any = found["input"]
    if kind.startswith("missing"):  # the input of a missing field is what should contain it
        return Fault((*_data_path(arguments, location[:-1], value), location[-1]), found["msg"])
    path = _data_path(arguments, location, value)
    text: str = found["msg"]
    if kind == "extra_forbidden":
        names = [name for part in parts_at(schema, path[:-1]) for name in part.get("properties", {})]
        return Fault(path, unknown_field(dict.fromkeys(names)))
    if kind == "union_tag_not_found":
        tags = [tag for part in parts_at(schema, path) for tag in part.get("discriminator", {}).get("mapping", {})]
        return Fault(path, f"{text} (expected: {', '.join(dict.fromkeys(tags))})" if tags else text)
    if kind == "union_tag_invalid":
        return Fault(path, text)
    if kind in ("value_error", "assertion_error"):
        # What the tool's own validator said, without pydantic's prefix.
        text = str(found.get("ctx", {}).get("error", "")) or text
    return Fault(path, _SENTENCES.get(kind) or text, value, _WANTED.get(kind, frozenset()))


def _data_path(data: Any, location: Path, value: Any) -> Path:
    """The part of pydantic's location that leads to ``value``: names of union members stand in it too.

    A member's name may happen to be a key as well, so both readings are tried, each at most once.
    """
    refused: set[tuple[int, int]] = set()

    def search(data: Any, at: int) -> Path | None:
        if at == len(location):
            return () if type(data) is type(value) and data == value else None
        if (at, id(data)) in refused:
            return None
        key = location[at]
        if _has(data, key) and (found := search(data[key], at + 1)) is not None:
            return (key, *found)
        found = search(data, at + 1)
        if found is None:
            refused.add((at, id(data)))
        return found

    found = search(data, 0)
    if found is not None:
        return found
    path: list[str | int] = []  # nothing leads to the value: every name that is a key counts as one
    for part in location:
        if _has(data, part):
            data = data[part]
            path.append(part)
    return tuple(path)


def _has(data: Any, key: str | int) -> bool:
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and 0 <= key < len(cast("list[Any]", data))


# --- the text --------------------------------------------------------------------------------


def _text(faults: Iterable[Fault]) -> str:
    """A line for each place, at most ``MAX_TEXT_BYTES`` in all; what does not fit is counted."""
    by_path: dict[Path, list[Fault]] = {}
    for fault in faults:
        by_path.setdefault(fault.path, []).append(fault)
    lines: list[str] = []
    room_bytes = MAX_TEXT_BYTES
    for path, found in by_path.items():
        line = _line(path, found)
        room_bytes -= len(line.encode(errors="replace")) + 1
        if room_bytes < 0:
            return "\n".join([*lines, f"and {len(by_path) - len(lines)} more"])
        lines.append(line)
    return "\n".join(lines)


def _line(path: Path, faults: list[Fault]) -> str:
    # Several faults at one place are those of a union's members: each says what would do.
    wrong = "; or ".join(dict.fromkeys(fault.text for fault in faults))
    got = "" if faults[0].value is NOTHING or not path else f" (got {shown(faults[0].value)})"
    where = ".".join(map(str, path))
    line = " ".join(f"{where}: {wrong}".split() if where else wrong.split())
    room_chars = _MAX_LINE_CHARS - len(got)
    return (line if len(line) <= room_chars else line[: room_chars - 1] + "…") + got
