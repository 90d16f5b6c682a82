"""The JSON Schema that a model is shown for a tool's parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from ...types import JsonObject
from .json_schema import is_array, is_object, resolve_ref

__all__ = ("SchemaProblem", "first_sentence", "parameters_schema")


class SchemaProblem(ValueError):
    """Parameters that no model could be shown; the message says why."""


def parameters_schema(parameters: object) -> JsonObject:
    """Build the schema of a model class, or check and copy a schema given as such.

    The titles pydantic makes out of names are left out: they cost tokens and say nothing. A schema that is only a
    reference to one of its own definitions is replaced by that definition, because vendors want
    ``"type": "object"`` at the root. Raises ``SchemaProblem``.
    """
    if isinstance(parameters, type) and issubclass(parameters, BaseModel):
        schema = _model_schema(parameters)
    elif is_object(parameters):
        schema = _given_schema(parameters)
    else:
        raise SchemaProblem(f"parameters is a pydantic model class or a JSON Schema (a dict), not {parameters!r}")
    schema = _without_root_reference(schema)
    if schema.get("type") != "object":
        raise SchemaProblem(f"parameters describe an object, not {schema.get('type', 'anything')!r}")
    return schema


def first_sentence(message: str) -> str:
    """The first sentence of what pydantic says of a type; what follows is about pydantic's own settings."""
    return message.split(". ")[0].split("\n")[0].rstrip(".")


def _without_root_reference(schema: JsonObject) -> JsonObject:
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return schema
    try:
        target = resolve_ref(schema, ref)
    except LookupError:
        return schema
    rest = {word: value for word, value in schema.items() if word != "$ref"}
    return {**target, **rest} if is_object(target) and target is not schema else schema


# --- from a model class ----------------------------------------------------------------------


class _SchemaForModels(GenerateJsonSchema):
    """pydantic's schema without titles made out of field names, and silent where a default is no JSON."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Say nothing: a default that is no JSON is not shown to the model, and that is all."""


def _model_schema(model: type[BaseModel]) -> JsonObject:
    try:
        if not model.__pydantic_complete__:
            model.model_rebuild()
        schema = model.model_json_schema(schema_generator=_SchemaForModels)
    except PydanticUserError as error:
        raise SchemaProblem(f"parameters have no JSON Schema: {first_sentence(error.message)}") from error
    except PydanticUndefinedAnnotation as error:
        raise SchemaProblem(
            f"parameters use {error.name!r}, which is not defined yet; define it before the tool"
        ) from error
    _drop_class_title(schema, model.__name__)
    for name, definition in schema.get("$defs", {}).items():
        _drop_class_title(definition, name)
    return schema


def _drop_class_title(schema: JsonObject, class_name: str) -> None:
    # Definitions are keyed by the class name with brackets replaced, and by its module in front if two clash;
    # a title that the author chose differs from both.
    title = str(schema.get("title", ""))
    if title and class_name.endswith((title, re.sub(r"[^a-zA-Z0-9.\-_]", "_", title))):
        del schema["title"]


# --- from a JSON Schema ----------------------------------------------------------------------


def _given_schema(given: dict[Any, Any]) -> JsonObject:
    try:
        schema: JsonObject = json.loads(json.dumps(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaProblem(f"parameters are not JSON: {error}") from error
    if not schema or ("type" not in schema and "properties" in schema):
        schema = {"type": "object", **schema}
    for part in _subschemas(schema):
        required = part.get("required", [])
        if not is_array(required) or not all(isinstance(name, str) for name in required):
            raise SchemaProblem(f"'required' is a list of names, not {required!r}")
        ref = part.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            try:
                resolve_ref(schema, ref)
            except LookupError:
                raise SchemaProblem(f"the schema refers to {ref}, which it does not contain") from None
    return schema


def _subschemas(schema: JsonObject) -> Iterator[JsonObject]:
    """The schema and every schema in it; the values of ``enum``, ``const`` and ``default`` are no schemas."""
    todo: list[Any] = [schema]
    while todo:
        part = todo.pop()
        if not is_object(part):
            continue
        yield part
        for word in ("properties", "$defs", "definitions", "patternProperties"):
            named = part.get(word, {})
            if not is_object(named):
                raise SchemaProblem(f"{word!r} maps names to schemas, and is not {named!r}")
            todo += named.values()
        for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            listed = part.get(word, [])
            if not is_array(listed):
                raise SchemaProblem(f"{word!r} is a list of schemas, not {listed!r}")
            todo += listed
        todo += [part.get(word) for word in ("items", "additionalProperties", "not")]
