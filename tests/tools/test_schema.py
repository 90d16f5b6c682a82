"""The JSON Schema a model is shown."""

from __future__ import annotations

import enum
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field

from cubepi_anyio.tools.define.schema import SchemaProblem, parameters_schema

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Box(BaseModel, Generic[T]):
    content: T


class Paint(BaseModel):
    title: str = Field(description="a field that happens to be called title")
    colour: Colour
    box: Box[int]


class Node(BaseModel):
    """A tree."""

    value: int
    children: list[Node] = []


def test_titles_made_of_names_are_left_out_and_a_field_called_title_stays() -> None:
    assert parameters_schema(Paint) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "a field that happens to be called title"},
            "colour": {"$ref": "#/$defs/Colour"},
            "box": {"$ref": "#/$defs/Box_int_"},
        },
        "required": ["title", "colour", "box"],
        "$defs": {
            "Colour": {"enum": ["red", "blue"], "type": "string"},
            "Box_int_": {"type": "object", "properties": {"content": {"type": "integer"}}, "required": ["content"]},
        },
    }


def test_titles_an_author_chose_are_kept() -> None:
    class Chosen(BaseModel):
        model_config = ConfigDict(title="What to paint")
        n: int = Field(title="How many")

    schema = parameters_schema(Chosen)
    assert schema["title"] == "What to paint"
    assert schema["properties"]["n"]["title"] == "How many"


def test_a_recursive_model_is_an_object_at_its_root() -> None:
    schema = parameters_schema(Node)
    node = {
        "description": "A tree.",
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
        },
        "required": ["value"],
    }
    assert schema == {**node, "$defs": {"Node": node}}


def test_a_default_that_is_no_json_is_not_shown() -> None:
    class Defaulted(BaseModel):
        x: Any = object()

    assert parameters_schema(Defaulted)["properties"] == {"x": {}}


def test_a_given_schema_is_copied() -> None:
    given: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ("x", "y")}}}
    schema = parameters_schema(given)
    given["properties"]["b"] = {}
    assert schema == {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, {"type": "object"}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
            {"type": "object", "$defs": {"A": {"type": "object"}}},
        ),
    ],
)
def test_the_type_object_is_supplied_where_it_is_meant(given: dict[str, Any], shown: dict[str, Any]) -> None:
    assert parameters_schema(given) == shown


def test_a_reference_that_stands_among_values_is_no_reference() -> None:
    given = {"type": "object", "properties": {"a": {"const": {"$ref": "#/nowhere"}}}}
    assert parameters_schema(given) == given


def test_a_broken_part_deep_inside_is_found() -> None:
    given = {"type": "object", "properties": {"a": {"items": {"anyOf": [{"$ref": "#/$defs/B"}]}}}}
    with pytest.raises(SchemaProblem, match=r"refers to #/\$defs/B"):
        parameters_schema(given)
