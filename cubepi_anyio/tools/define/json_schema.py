"""Checks JSON values against a JSON Schema, as far as the common keywords go.

Checked: ``type`` (also lists, and ``nullable``), ``enum``, ``const``, ``required``, ``properties``,
``additionalProperties``, ``items``, ``anyOf``, ``oneOf`` (read as ``anyOf``), ``allOf``, ``$ref`` into the same
schema, the bounds of numbers, and the lengths and pattern of strings, arrays and objects. Every other keyword
(``format``, ``not``, ``if``, ``patternProperties``, ``uniqueItems``, references to other documents, ...) is left
to the tool. Recursive schemas are allowed: what is asked of one place in the value is asked once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import unquote

__all__ = (
    "MAX_DEPTH",
    "NOTHING",
    "Fault",
    "Path",
    "is_array",
    "is_object",
    "parts_at",
    "resolve_ref",
    "schema_faults",
    "shown",
    "unknown_field",
)

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

MAX_DEPTH = 64
"""How deep a value is followed; what lies deeper is refused, because the interpreter's stack ends not far below."""

_SHOWN_CHARS = 60


NOTHING: Any = object()
"""Stands for the value of a field that is missing, or whose value would tell nothing."""


class Fault(NamedTuple):
    """One thing that is wrong: where, what, and the value that stands there."""

    path: Path
    text: str
    value: Any = NOTHING
    wanted: frozenset[str] = frozenset()
    """The JSON types that would fit there, where the type is what is wrong."""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def shown(value: Any) -> str:
    """A value as a model is shown it: short JSON; arrays and objects by their kind only."""
    if is_object(value):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def resolve_ref(root: Any, ref: str) -> Any:
    """Follow ``#/...`` from the root of a schema. Raises ``LookupError`` if nothing is there."""
    target = root
    for part in ref.removeprefix("#").split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if is_array(target) and key.isdigit():
            target = target[int(key)]
        elif is_object(target):
            target = target[key]
        else:
            raise LookupError(key)
    return target


def parts_at(root: Any, path: Path) -> list[dict[str, Any]]:
    """Every part of a schema that speaks of the value at ``path``, references followed, each part once."""
    parts = _alternatives(root, [root])
    for key in path:
        parts = _alternatives(root, [inner for part in parts for inner in _inner(part, key)])
    return parts


def _alternatives(root: Any, schemas: list[Any]) -> list[dict[str, Any]]:
    """The schemas, what they refer to, and what they combine."""
    found: dict[int, dict[str, Any]] = {}
    todo = list(schemas)
    while todo:
        schema = todo.pop()
        if not is_object(schema) or id(schema) in found:
            continue
        found[id(schema)] = schema
        todo += [inner for word in ("anyOf", "oneOf", "allOf") for inner in _list(schema.get(word))]
        todo.append(_target(root, schema))
    return list(found.values())


def _target(root: Any, schema: dict[str, Any]) -> Any:
    ref = schema.get("$ref")
    try:
        return resolve_ref(root, ref) if isinstance(ref, str) and ref.startswith("#") else None
    except LookupError:
        return None


def _inner(part: dict[str, Any], key: str | int) -> list[Any]:
    if isinstance(key, int):
        first = _list(part.get("prefixItems"))
        return [first[key] if key < len(first) else part.get("items")]
    return [_dict(part.get("properties")).get(key, part.get("additionalProperties"))]


def schema_faults(schema: Any, value: Any) -> list[Fault]:
    """Everything in ``value`` that ``schema`` refuses; empty if it fits. Bounded for every schema and value."""
    try:
        return _Check(schema).faults(schema, value, ())
    except RecursionError:
        return [Fault((), "Input is nested too deeply for its schema")]


class _Check:
    """One check of one value: the root that references start from, and what they have been asked so far."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._asked: dict[tuple[int, Path], list[Fault]] = {}

    def faults(self, schema: Any, value: Any, path: Path) -> list[Fault]:
        if schema is False:
            return [Fault(path, "Nothing is allowed here", value)]
        if not is_object(schema):
            return []
        if len(path) > MAX_DEPTH:
            return [Fault(path, f"Input is nested deeper than {MAX_DEPTH} levels", value)]
        wrong = _type_faults(schema, value, path)
        if wrong:
            return wrong
        # Each fault once: branches of a recursive schema that refuse the same would double them at every level.
        combined = {(fault.path, fault.text): fault for fault in self._combined(schema, value, path)}
        found = [*_value_faults(schema, value, path), *combined.values()]
        if is_object(value):
            found += self._object(schema, value, path)
        elif is_array(value):
            found += self._array(schema, value, path)
        return found

    def _combined(self, schema: dict[str, Any], value: Any, path: Path) -> Iterator[Fault]:
        if "$ref" in schema:
            yield from self._referred(schema, value, path)
        for part in _list(schema.get("allOf")):
            yield from self.faults(part, value, path)
        for word in ("anyOf", "oneOf"):
            if branches := _list(schema.get(word)):
                yield from self._any(branches, value, path)

    def _referred(self, schema: dict[str, Any], value: Any, path: Path) -> list[Fault]:
        target = _target(self._root, schema)
        key = (id(target), path)
        if key not in self._asked:
            # A reference that leads back to itself at the same place asks nothing more of the value.
            self._asked[key] = []
            self._asked[key] = self.faults(target, value, path)
        return self._asked[key]

    def _any(self, branches: list[Any], value: Any, path: Path) -> list[Fault]:
        """The faults of the branches that come nearest, if none fits."""
        tried: list[list[Fault]] = []
        for branch in branches:
            found = self.faults(branch, value, path)
            if not found:
                return []
            tried.append(found)
        return [fault for found in _nearest(tried, path) for fault in found]

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: Path) -> Iterator[Fault]:
        properties = _dict(schema.get("properties"))
        for name in _list(schema.get("required")):
            if name not in value:
                yield Fault((*path, str(name)), _required(properties.get(name)))
        for name, part in properties.items():
            if name in value:
                yield from self.faults(part, value[name], (*path, name))
        if "patternProperties" in schema or "additionalProperties" not in schema:
            return
        for name in value.keys() - properties.keys():
            if schema["additionalProperties"] is False:
                yield Fault((*path, name), unknown_field(properties))
            else:
                yield from self.faults(schema["additionalProperties"], value[name], (*path, name))

    def _array(self, schema: dict[str, Any], value: list[Any], path: Path) -> Iterator[Fault]:
        first = _list(schema.get("prefixItems"))
        for index, (part, item) in enumerate(zip(first, value, strict=False)):
            yield from self.faults(part, item, (*path, index))
        rest = schema.get("items")
        if is_array(rest):  # before draft 2020-12: one schema for each place
            return
        for index in range(len(first), len(value)):
            yield from self.faults(rest, value[index], (*path, index))


def _list(found: Any) -> list[Any]:
    return found if is_array(found) else []


def _dict(found: Any) -> dict[str, Any]:
    return found if is_object(found) else {}


def _nearest(tried: list[list[Fault]], path: Path) -> list[list[Fault]]:
    """Leave out the branches of another type and, among objects, those for another tag.

    A tag is a field with fixed values, such as ``"kind": {"const": "cat"}``. If no branch has the tag that was
    sent, only the tags are reported: what else each branch asks is no help.
    """
    same_type = [found for found in tried if not any(f.path == path and f.wanted for f in found)] or tried
    tags = [[f for f in found if len(f.path) == len(path) + 1 and f.text.startswith(_FIXED)] for found in same_type]
    same_tag = [found for found, wrong in zip(same_type, tags, strict=True) if not wrong]
    return same_tag or tags


def unknown_field(known: Iterable[str]) -> str:
    """What is said of a field that is not allowed."""
    names = ", ".join(known)
    return f"Unknown field (known: {names})" if names else "Unknown field"


def _required(schema: Any) -> str:
    """What is said of a missing field: the values it may have, where they are fixed."""
    part = _dict(schema)
    values = [part["const"]] if "const" in part else _list(part.get("enum"))
    return f"{_REQUIRED_ONE_OF}{' or '.join(map(shown, values))})" if values else "Field required"


# --- what one value must be ------------------------------------------------------------------

_EXACTLY, _ONE_OF, _REQUIRED_ONE_OF = "Input should be exactly ", "Input should be one of ", "Field required ("
_FIXED = (_EXACTLY, _ONE_OF, _REQUIRED_ONE_OF)
"""How the faults of a field with fixed values begin."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("an integer", lambda value: _is_number(value) and value == value // 1),
    "number": ("a number", _is_number),
    "boolean": ("a boolean", lambda value: isinstance(value, bool)),
    "array": ("an array", lambda value: is_array(value)),
    "object": ("an object", lambda value: is_object(value)),
    "null": ("null", lambda value: value is None),
}


def _type_faults(schema: dict[str, Any], value: Any, path: Path) -> list[Fault]:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else _list(types)
    known = [name for name in names if name in _TYPES]
    # A type this file does not know may fit anything.
    if len(known) < len(names) or not known or any(_TYPES[name][1](value) for name in known):
        return []
    if value is None and schema.get("nullable") is True:
        return []
    wanted = " or ".join(_TYPES[name][0] for name in known)
    return [Fault(path, f"Input should be {wanted}", value, frozenset(known))]


def _value_faults(schema: dict[str, Any], value: Any, path: Path) -> Iterator[Fault]:
    if "const" in schema and not _same(schema["const"], value):
        yield Fault(path, _EXACTLY + shown(schema["const"]), value)
    choices = _list(schema.get("enum"))
    if choices and not any(_same(choice, value) for choice in choices):
        yield Fault(path, _ONE_OF + ", ".join(map(shown, choices)), value)
    if _is_number(value):
        yield from _bounds(_NUMBER_BOUNDS, schema, value, value, path)
    elif isinstance(value, str):
        yield from _bounds(_STRING_BOUNDS, schema, len(value), value, path)
        yield from _pattern_faults(schema, value, path)
    elif is_array(value):
        yield from _bounds(_ARRAY_BOUNDS, schema, len(value), value, path)
    elif is_object(value):
        yield from _bounds(_OBJECT_BOUNDS, schema, len(value), value, path)


def _same(left: Any, right: Any) -> bool:
    # JSON's true and 1 differ, Python's do not.
    return left == right and isinstance(left, bool) == isinstance(right, bool)


_Bound = tuple[str, Callable[[Any, Any], bool], str]
_NUMBER_BOUNDS: tuple[_Bound, ...] = (
    ("minimum", lambda size, bound: size >= bound, "Input should be greater than or equal to {}"),
    ("maximum", lambda size, bound: size <= bound, "Input should be less than or equal to {}"),
    ("exclusiveMinimum", lambda size, bound: size > bound, "Input should be greater than {}"),
    ("exclusiveMaximum", lambda size, bound: size < bound, "Input should be less than {}"),
)


def _lengths(of: str, unit: str) -> tuple[_Bound, ...]:
    return (
        (f"min{of}", lambda size, bound: size >= bound, f"Input should have at least {{}} {unit}"),
        (f"max{of}", lambda size, bound: size <= bound, f"Input should have at most {{}} {unit}"),
    )


_STRING_BOUNDS = _lengths("Length", "characters")
_ARRAY_BOUNDS = _lengths("Items", "items")
_OBJECT_BOUNDS = _lengths("Properties", "fields")


def _bounds(bounds: Iterable[_Bound], schema: dict[str, Any], size: Any, value: Any, path: Path) -> Iterator[Fault]:
    for word, holds, text in bounds:
        bound = schema.get(word)
        if _is_number(bound) and not holds(size, bound):
            yield Fault(path, text.format(bound), value)


def _pattern_faults(schema: dict[str, Any], value: str, path: Path) -> Iterator[Fault]:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    try:
        fits = re.search(pattern, value) is not None
    except re.error:  # JavaScript's syntax has more than Python's; such a pattern is left to the tool
        return
    if not fits:
        yield Fault(path, f"Input should match the pattern {pattern}", value)
