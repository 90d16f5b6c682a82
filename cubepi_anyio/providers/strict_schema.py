"""JSON Schema as OpenAI takes it, strict where that can hold, and its arguments without what strictness adds. Pure.

The rules are those of "Structured model outputs, supported schemas" and "Function calling, strict mode" in OpenAI's API
guide. Strict mode makes the model keep to the schema, and allows only some schemas: each object is closed, each of its
properties is required, and nothing depends on anything else. What is optional is made nullable instead, so an
optional parameter may come as ``null``; ``without_added_nulls`` leaves it out again, and local validation, which knows
the whole schema, applies its default. ``oneOf`` is not taken in either mode: it becomes ``anyOf`` without its
discriminator, which local validation still uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from ..errors import ToolDefinitionError
from ..types.json import JsonObject, JsonValue
from ..types.model import ResponseSchema
from ..types.tool import ToolDefinition

__all__ = (
    "StrictTools",
    "parameters_of",
    "plain_parameters",
    "response_format",
    "strict_parameters",
    "strict_schemas",
    "without_added_nulls",
)

StrictTools = Literal["never", "possible", "always"]
"""Which tools are strict: none, those whose schema allows it, or all, where one that does not is an error."""

_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_KEPT_WHEN_STRICT = frozenset(
    (
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items"),
        *("maxItems", "maximum", "minItems", "minimum", "multipleOf", "exclusiveMaximum", "exclusiveMinimum"),
        *("pattern", "properties", "required", "title", "type"),
    )
)
_TOO_MUCH = {
    "allOf": "combines schemas (allOf)",
    "dependentRequired": "makes fields depend on each other (dependentRequired)",
    "dependentSchemas": "makes fields depend on each other (dependentSchemas)",
    "if": "has conditions (if)",
    "not": "excludes values (not)",
    "patternProperties": "names its fields by patterns (patternProperties)",
    "prefixItems": "is a list with a schema for each place (prefixItems)",
    "contains": "asks for certain items (contains)",
}
"""What strict mode cannot say; without it, the schema would allow values that are wrong."""


# --- tools and answers -----------------------------------------------------------------------


def parameters_of(tool: ToolDefinition, strict_tools: StrictTools) -> tuple[JsonObject, bool]:
    """The parameters of a tool as they go out, and whether they are strict.

    Raises ``ToolDefinitionError`` if they must be strict and cannot, or cannot be sent at all.
    """
    if tool.strict is not None:
        strict_tools = "always" if tool.strict else "never"
    if strict_tools != "never":
        try:
            return strict_parameters(tool.name, tool.parameters), True
        except ToolDefinitionError:
            if strict_tools == "always":
                raise
    return plain_parameters(tool.name, tool.parameters), False


def strict_schemas(tools: Sequence[ToolDefinition], strict_tools: StrictTools) -> dict[str, JsonObject]:
    """The schemas of the tools that go out as strict ones, by name; none if one of the tools cannot be sent."""
    if strict_tools == "never" and not any(tool.strict for tool in tools):
        return {}
    with suppress(ToolDefinitionError):  # making the payload says it
        return {tool.name: tool.parameters for tool in tools if parameters_of(tool, strict_tools)[1]}
    return {}


def response_format(wanted: ResponseSchema) -> JsonObject:
    """Name, schema and strictness of an answer: strict where its schema allows that, which is what makes it hold."""
    as_tool = ToolDefinition(name=wanted.name, parameters=wanted.json_schema)
    schema, strict = parameters_of(as_tool, "possible")
    described = {"description": wanted.description} if wanted.description else {}
    return {"name": wanted.name, **described, "schema": schema, "strict": strict}


# --- schemas ---------------------------------------------------------------------------------


def plain_parameters(tool_name: str, schema: JsonObject) -> JsonObject:
    """``schema`` as the parameters of a function that is not strict. Nothing of ``schema`` is changed.

    Raises ``ToolDefinitionError`` if it is not an object at its root, which no mode takes.
    """
    if not schema:
        return {"type": "object", "properties": {}}
    root = cast("JsonObject", _without_one_of(_root(schema)))
    if root.get("type", "object") != "object" or root.keys() & {"anyOf", "allOf", "not", "enum"}:
        raise ToolDefinitionError(
            tool_name, "OpenAI takes parameters that are one object; put the alternatives into a field of it"
        )
    return {"type": "object", **root}


def strict_parameters(tool_name: str, schema: JsonObject) -> JsonObject:
    """``schema`` as the parameters of a strict function. Nothing of ``schema`` is changed.

    Constraints that strict mode does not know are left to local validation. Raises ``ToolDefinitionError`` that names
    the parameter for which strictness cannot hold.
    """
    root = plain_parameters(tool_name, schema)
    root.setdefault("properties", {})
    return _Strict(tool_name).object(root, "")


def _root(schema: JsonObject) -> JsonObject:
    """``schema`` with the definition it refers to, where it is only a reference: the root has to say its type."""
    target = _target(schema, schema)
    return schema if target is schema else {**target, "$defs": schema.get("$defs", {})}


def _target(schema: JsonObject, root: JsonObject) -> JsonObject:
    """The schema that ``schema`` refers to, or itself where it does not refer to a definition of ``root``."""
    reference, seen = schema.get("$ref"), 0
    while isinstance(reference, str) and seen < 16:
        name = reference.removeprefix("#/$defs/")
        found: JsonValue = root if reference == "#" else root.get("$defs", {}).get(name)
        if not isinstance(found, dict):
            break
        schema = cast("JsonObject", found)
        reference, seen = schema.get("$ref"), seen + 1
    return schema


def _without_one_of(schema: JsonValue) -> JsonValue:
    """``schema`` with each ``oneOf`` as ``anyOf``; names of properties are not taken for keywords."""
    if isinstance(schema, list):
        return [_without_one_of(item) for item in cast("list[JsonValue]", schema)]
    if not isinstance(schema, dict):
        return schema
    changed: JsonObject = {}
    for word, value in cast("JsonObject", schema).items():
        if word in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            fields = cast("JsonObject", value)
            changed[word] = {name: _without_one_of(field) for name, field in fields.items()}
        elif word == "oneOf":
            changed["anyOf"] = _without_one_of(value)
        elif word in ("default", "const", "enum", "examples"):
            changed[word] = value
        elif word != "discriminator":
            changed[word] = _without_one_of(value)
    return changed


class _Strict:
    """Makes the schema of one tool strict."""

    def __init__(self, tool_name: str) -> None:
        self._tool_name = tool_name

    def _cannot(self, path: str, what: str) -> ToolDefinitionError:
        whose = f"the parameter {path!r}" if path else "the tool"
        return ToolDefinitionError(
            self._tool_name,
            f"{whose} {what}, which strict mode cannot express; name its fields, or do without strict mode",
        )

    def schema(self, schema: JsonObject, path: str) -> JsonObject:
        """Make one schema strict; ``path`` says whose it is."""
        if "$ref" in schema:
            return {"$ref": schema["$ref"]}  # nothing may stand beside a reference
        alone: list[JsonObject] = schema.get("allOf") or []
        if len(alone) == 1:
            schema = {**{word: value for word, value in schema.items() if word != "allOf"}, **alone[0]}
            return self.schema(schema, path)
        for word, what in _TOO_MUCH.items():
            if word in schema:
                raise self._cannot(path, what)
        if "properties" in schema or schema.get("type") == "object":
            return self.object(schema, path)
        return self._value(schema, path)

    def _value(self, schema: JsonObject, path: str) -> JsonObject:
        kept = _kept(schema)
        if not kept.keys() & {"type", "anyOf", "enum", "const"}:
            raise self._cannot(path, "takes anything")
        kind = kept.get("type")
        if isinstance(kind, list) and "object" in kind:
            raise self._cannot(path, "may be a dictionary with any keys")
        if kind == "array" or (isinstance(kind, list) and "array" in kind):
            kept["items"] = self.schema(kept.get("items") or {}, f"{path}[]")
        if "anyOf" in kept:
            kept["anyOf"] = [self.schema(choice, path) for choice in kept["anyOf"]]
        return kept

    def object(self, schema: JsonObject, path: str) -> JsonObject:
        """Close an object and require all it has; what was optional becomes nullable."""
        if schema.get("additionalProperties") or "properties" not in schema:
            raise self._cannot(path, "is a dictionary with any keys")
        for word, what in _TOO_MUCH.items():
            if word in schema:
                raise self._cannot(path, what)
        kept = _kept(schema)
        fields: JsonObject = kept["properties"]
        required: list[str] = kept.get("required") or []
        kept["properties"] = {
            name: self._field(field, f"{path}.{name}" if path else name, optional=name not in required)
            for name, field in fields.items()
        }
        if "$defs" in kept:
            kept["$defs"] = {name: self.schema(schema, name) for name, schema in kept["$defs"].items()}
        return {**kept, "type": kept.get("type", "object"), "required": [*fields], "additionalProperties": False}

    def _field(self, schema: JsonObject, path: str, *, optional: bool) -> JsonObject:
        strict = self.schema(schema, path)
        return _nullable(strict) if optional else strict


def _kept(schema: JsonObject) -> JsonObject:
    """The words of a schema that strict mode knows."""
    kept = {word: value for word, value in schema.items() if word in _KEPT_WHEN_STRICT}
    if kept.get("format", "uuid") not in _FORMATS:
        del kept["format"]
    return kept


def _nullable(schema: JsonObject) -> JsonObject:
    if _takes_null(schema):
        return schema
    if isinstance(schema.get("type"), str) and not schema.keys() & {"enum", "const"}:
        return {**schema, "type": [schema["type"], "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _takes_null(schema: JsonObject) -> bool:
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    choices: list[JsonObject] = schema.get("anyOf") or schema.get("oneOf") or []
    return any(_takes_null(choice) for choice in choices)


# --- arguments -------------------------------------------------------------------------------


def without_added_nulls(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """``arguments`` without the nulls that stand for optional fields left out.

    ``schema`` is the tool's own, not the strict one. A field that may be null anyway keeps its null. Linear in the
    arguments; nothing of them is changed.
    """
    return cast("JsonObject", _restored(schema, arguments, schema))


def _restored(schema: JsonObject, value: JsonValue, root: JsonObject) -> JsonValue:
    schema = _chosen(_target(schema, root), value, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_restored(schema["items"], item, root) for item in cast("list[JsonValue]", value)]
    if not (isinstance(value, dict) and isinstance(schema.get("properties"), dict)):
        return cast("JsonValue", value)
    fields: JsonObject = schema["properties"]
    required: list[Any] = schema.get("required") or []
    return {
        name: _restored(fields.get(name, {}), given, root)
        for name, given in cast("JsonObject", value).items()
        if given is not None or name in required or name not in fields or _takes_null(_target(fields[name], root))
    }


def _chosen(schema: JsonObject, value: JsonValue, root: JsonObject) -> JsonObject:
    """The one alternative of ``schema`` that ``value`` can belong to; ``schema`` itself where that is not clear."""
    choices: list[JsonObject] = schema.get("anyOf") or schema.get("oneOf") or []
    targets = [_target(choice, root) for choice in choices]
    if isinstance(value, dict):
        keys = cast("JsonObject", value).keys()
        fitting = [target for target in targets if keys <= (target.get("properties") or {}).keys()]
    else:
        fitting = [target for target in targets if "items" in target]
    return fitting[0] if len(fitting) == 1 else schema
