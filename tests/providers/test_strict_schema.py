"""JSON Schema as OpenAI takes it."""

from __future__ import annotations

import copy
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from cubepi_anyio import ToolDefinition
from cubepi_anyio.errors import ToolDefinitionError
from cubepi_anyio.providers.strict_schema import parameters_of, plain_parameters, strict_parameters, without_added_nulls

STRING = {"type": "string"}
OPTIONAL_STRING = {"type": ["string", "null"]}


def an_object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def closed(**properties: Any) -> dict[str, Any]:
    return {**an_object(**properties), "additionalProperties": False}


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


# --- plain -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object"}),
        ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}),
    ],
)
def test_parameters_are_an_object_even_if_they_do_not_say_so(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert plain_parameters("t", schema) == sent


def test_unions_with_a_discriminator_become_any_of_wherever_they_stand() -> None:
    schema = Pets.model_json_schema()
    assert "discriminator" in schema["properties"]["pets"]["items"]
    sent = plain_parameters("t", schema)
    assert sent["properties"]["pets"]["items"] == {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    assert sent["$defs"].keys() == {"Cat", "Dog"}


def test_parameters_named_like_keywords_are_left_alone() -> None:
    schema = an_object(oneOf=STRING, discriminator={"type": "string", "default": {"oneOf": 1}}, default=STRING)
    assert plain_parameters("t", schema) == schema
    assert strict_parameters("t", schema)["properties"] == {
        "oneOf": STRING,
        "discriminator": STRING,
        "default": STRING,
    }


def test_a_root_that_is_a_reference_is_replaced_by_what_it_refers_to() -> None:
    schema = {"$ref": "#/$defs/Tree", "$defs": {"Tree": an_object(child={"$ref": "#/$defs/Tree"})}}
    sent = plain_parameters("t", schema)
    assert sent == {**an_object(child={"$ref": "#/$defs/Tree"}), "$defs": schema["$defs"]}


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"anyOf": [an_object()]}, {"oneOf": [an_object()]}, {"type": "object", "allOf": []}]
)
def test_parameters_that_no_mode_takes_are_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError, match=r"'t'.*one object"):
        plain_parameters("t", schema)


# --- strict ----------------------------------------------------------------------------------


def test_no_parameters_can_be_strict() -> None:
    assert strict_parameters("t", {}) == closed()
    assert strict_parameters("t", {"type": "object"}) == closed()


def test_each_object_is_closed_and_all_it_has_is_required() -> None:
    schema = an_object(a=STRING, inner=an_object(b={"type": "integer"}), many={"type": "array", "items": an_object()})
    assert strict_parameters("t", schema) == closed(
        a=STRING, inner=closed(b={"type": "integer"}), many={"type": "array", "items": closed()}
    )


@pytest.mark.parametrize(
    ("optional", "sent"),
    [
        ({"type": "string", "default": "x"}, OPTIONAL_STRING),
        ({"type": ["string", "null"]}, OPTIONAL_STRING),
        ({"anyOf": [STRING, {"type": "null"}], "default": None}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"anyOf": [STRING, {"type": "integer"}]}, {"anyOf": [STRING, {"type": "integer"}, {"type": "null"}]}),
        ({"enum": ["a"], "type": "string"}, {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]}),
        ({"$ref": "#/$defs/D", "description": "d"}, {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]}),
        (an_object(b=STRING), {**closed(b=STRING), "type": ["object", "null"]}),
    ],
)
def test_what_is_optional_becomes_nullable_and_loses_its_default(optional: Any, sent: Any) -> None:
    schema = an_object(["a"], a=STRING, o=optional)
    assert strict_parameters("t", schema) == closed(a=STRING, o=sent)


def test_a_required_field_is_not_made_nullable() -> None:
    assert strict_parameters("t", an_object(a=STRING))["properties"]["a"] == STRING


def test_constraints_that_strict_mode_does_not_know_are_left_to_validation() -> None:
    field = {"type": "string", "minLength": 1, "pattern": "a", "format": "color", "examples": ["a"], "title": "A"}
    assert strict_parameters("t", an_object(a=field))["properties"]["a"] == {
        "type": "string",
        "pattern": "a",
        "title": "A",
    }
    assert strict_parameters("t", an_object(a={"type": "string", "format": "date"}))["properties"]["a"] == {
        "type": "string",
        "format": "date",
    }


def test_recursion_and_discriminated_unions_can_be_strict() -> None:
    tree = strict_parameters("t", Tree.model_json_schema())
    assert tree["$defs"]["Tree"]["required"] == ["name", "children"]
    assert tree["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert tree["type"] == "object"
    pets = strict_parameters("t", Pets.model_json_schema())
    assert pets["$defs"]["Cat"]["properties"]["lives"]["type"] == ["integer", "null"]
    assert pets["properties"]["pets"]["items"] == {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}


def test_a_single_all_of_is_unwrapped() -> None:
    schema = an_object(a={"allOf": [{"$ref": "#/$defs/D"}], "description": "x"})
    assert strict_parameters("t", schema)["properties"]["a"] == {"$ref": "#/$defs/D"}


@pytest.mark.parametrize(
    ("schema", "whose"),
    [
        (an_object(headers={"type": "object", "additionalProperties": STRING}), "'headers' is a dictionary"),
        (an_object(headers={"type": "object"}), "'headers' is a dictionary"),
        (an_object(a=an_object(b={**an_object(), "additionalProperties": True})), "'a.b' is a dictionary"),
        (an_object(a={"type": "array", "items": {}}), r"'a\[\]' takes anything"),
        (an_object(a={"type": "array"}), r"'a\[\]' takes anything"),
        (an_object(a={}), "'a' takes anything"),
        (an_object(a={"type": ["object", "null"]}), "'a' may be a dictionary"),
        (an_object(a={"type": "array", "prefixItems": [STRING]}), "'a' is a list with"),
        (an_object(a={"allOf": [STRING, STRING]}), "'a' combines"),
        (an_object(a={"anyOf": [STRING, {"type": "object"}]}), "'a' is a dictionary"),
        ({**an_object(a=STRING), "additionalProperties": True}, "the tool is a dictionary"),
        ({**an_object(a=STRING), "patternProperties": {}}, "the tool names its fields by patterns"),
        ({**an_object(), "$defs": {"D": an_object(x={})}}, "'D.x' takes anything"),
    ],
)
def test_what_cannot_be_strict_is_an_error_that_names_the_parameter(schema: dict[str, Any], whose: str) -> None:
    with pytest.raises(ToolDefinitionError, match=whose):
        strict_parameters("t", schema)
    assert plain_parameters("t", schema)["type"] == "object"


def test_schemas_are_not_changed() -> None:
    for model in (Pets, Tree):
        schema = model.model_json_schema()
        before = copy.deepcopy(schema)
        strict_parameters("t", schema)
        plain_parameters("t", schema)
        assert schema == before


# --- the way back ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ({"name": "a", "children": None}, {"name": "a"}),
        ({"name": None}, {"name": None}),
        (
            {"name": "a", "children": [{"name": "b", "children": None}]},
            {"name": "a", "children": [{"name": "b"}]},
        ),
    ],
)
def test_nulls_that_stand_for_what_was_left_out_are_left_out(arguments: Any, meant: Any) -> None:
    before = copy.deepcopy(arguments)
    assert without_added_nulls(Tree.model_json_schema(), arguments) == meant
    assert arguments == before


def test_a_null_that_means_null_stays() -> None:
    nullable = {"anyOf": [STRING, {"type": "null"}]}
    schema = an_object(["a"], a=STRING, n=nullable, o=STRING)
    assert without_added_nulls(schema, {"a": "x", "n": None, "o": None, "new": None}) == {
        "a": "x",
        "n": None,
        "new": None,
    }


def test_nulls_are_found_in_the_alternatives_of_unions() -> None:
    arguments = {"pets": [{"kind": "cat", "lives": None}, {"kind": "dog"}]}
    meant = without_added_nulls(Pets.model_json_schema(), arguments)
    assert meant == {"pets": [{"kind": "cat"}, {"kind": "dog"}]}
    assert Pets.model_validate(meant).pets[0] == Cat(kind="cat", lives=9)
    optional = an_object([], inner={"anyOf": [an_object([], b=STRING), {"type": "null"}]})
    assert without_added_nulls(optional, {"inner": {"b": None}}) == {"inner": {}}
    assert without_added_nulls(optional, {"inner": None}) == {"inner": None}


def test_what_a_reference_that_leads_nowhere_describes_is_kept() -> None:
    schema = an_object([], a={"$ref": "#/$defs/Missing"}, b={"$ref": "#/$defs/B"})
    schema["$defs"] = {"B": {"$ref": "#/$defs/B"}}
    assert without_added_nulls(schema, {"a": {"x": None}, "b": 1}) == {"a": {"x": None}, "b": 1}


def test_a_tool_that_asks_for_strictness_gets_it_and_one_that_refuses_it_does_not() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    asking = ToolDefinition(name="t", parameters=schema, strict=True)
    refusing = ToolDefinition(name="t", parameters=schema, strict=False)
    assert parameters_of(asking, "never") == (strict_parameters("t", schema), True)
    assert parameters_of(refusing, "always") == (plain_parameters("t", schema), False)
