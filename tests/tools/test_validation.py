"""Arguments that fit, arguments that can be mended, and what a model is told of the others."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cubepi_anyio.tools.define.definition import AgentTool
from cubepi_anyio.tools.define.validation import MAX_TEXT_BYTES, ArgumentsInvalid


def tool_for(parameters: Any) -> AgentTool:
    return AgentTool("probe", "Probe.", parameters, lambda tool_call_id, params: None)


def validated(parameters: Any, arguments: dict[str, Any]) -> Any:
    params = tool_for(parameters).validate(arguments)
    return params.model_dump() if isinstance(params, BaseModel) else params


def told(parameters: Any, arguments: dict[str, Any]) -> list[str]:
    with pytest.raises(ArgumentsInvalid) as caught:
        tool_for(parameters).validate(arguments)
    assert str(caught.value) == caught.value.text
    return caught.value.text.splitlines()


class Inner(BaseModel):
    ids: list[int]


@dataclass
class Record:
    n: int


class Pair(NamedTuple):
    left: int
    right: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queries: list[str] = []
    limit: int = Field(10, ge=1, le=100)
    flag: bool = False
    text: str = ""
    either: str | list[str] = ""
    number_or_list: int | list[int] = 0
    inner: Inner | None = None
    pets: list[Pet] = []
    colour: Colour = Colour.RED
    table: dict[str, Inner] = {}


# --- fits ------------------------------------------------------------------------------------


def test_arguments_that_fit_become_the_model() -> None:
    params = tool_for(Query).validate({"queries": ["a"], "limit": 5})
    assert isinstance(params, Query)
    assert (params.queries, params.limit) == (["a"], 5)


def test_what_fits_as_a_string_stays_a_string_also_where_something_else_is_mended() -> None:
    arguments = {"text": "[1]", "either": '["a"]', "queries": '["a"]'}
    dumped = validated(Query, arguments)
    assert (dumped["text"], dumped["either"], dumped["queries"]) == ("[1]", '["a"]', ["a"])


# --- mended ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "sent", "read"),
    [
        ("queries", '["a", "b"]', ["a", "b"]),
        ("limit", "5", 5),
        ("flag", "false", False),
        ("number_or_list", "[1, 2]", [1, 2]),
        ("number_or_list", "7", 7),
        ("inner", '{"ids": [1]}', {"ids": [1]}),
        ("inner", {"ids": "[1, 2]"}, {"ids": [1, 2]}),
        ("inner", '{"ids": "[1, 2]"}', {"ids": [1, 2]}),
        ("pets", '[{"kind": "cat", "lives": 9}]', [{"kind": "cat", "lives": 9}]),
        ("pets", ['{"kind": "cat", "lives": 9}'], [{"kind": "cat", "lives": 9}]),
        ("table", {"ids": {"ids": "[3]"}}, {"ids": {"ids": [3]}}),
    ],
)
def test_a_value_in_a_string_is_read_where_its_type_is_wanted(field: str, sent: Any, read: Any) -> None:
    assert validated(Query, {field: sent})[field] == read


def test_every_container_type_takes_a_string_that_spells_it() -> None:
    class All(BaseModel):
        a: tuple[int, ...]
        b: set[int]
        c: frozenset[int]
        d: Sequence[int]
        e: Record
        f: Pair
        g: dict[str, int]

    sent = dict.fromkeys("abcdf", "[1, 2]") | {"e": '{"n": 1}', "g": '{"x": 1}'}
    read = tool_for(All).validate(sent)
    assert isinstance(read, All)
    assert (read.a, read.b, read.c, read.d) == ((1, 2), {1, 2}, frozenset({1, 2}), [1, 2])
    assert (read.e, read.f, read.g) == (Record(1), Pair(1, 2), {"x": 1})


def test_the_arguments_are_left_as_they_were() -> None:
    arguments = {"inner": {"ids": "[1]"}, "queries": '["a"]'}
    kept = json.loads(json.dumps(arguments))
    validated(Query, arguments)
    assert arguments == kept


@pytest.mark.parametrize(
    "sent", [json.dumps('["a"]'), '"a"', "null", "5", '{"a": 1}', '["a"', "", "NaN", "[" * 100_000]
)
def test_a_string_that_does_not_spell_an_array_is_not_decoded(sent: str) -> None:
    (line,) = told(Query, {"queries": sent})
    assert line.startswith("queries: Input should be a valid array (got ")


def test_a_strict_model_reads_json_but_coerces_nothing() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: datetime.date
        n: int
        colour: Colour

    sent = {"day": "2020-02-29", "n": 1, "colour": "blue"}
    assert validated(Strict, sent) == {"day": datetime.date(2020, 2, 29), "n": 1, "colour": Colour.BLUE}
    assert told(Strict, sent | {"n": "1"}) == ['n: Input should be a valid integer (got "1")']


# --- what the model is told ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"limit": 500}, "limit: Input should be less than or equal to 100 (got 500)"),
        ({"inner": {}}, "inner.ids: Field required"),
        ({"inner": 5}, "inner: Input should be an object (got 5)"),
        ({"inner": {"ids": [1, None]}}, "inner.ids.1: Input should be a valid integer (got null)"),
        ({"colour": "green"}, "colour: Input should be 'red' or 'blue' (got \"green\")"),
        ({"table": {"x": {"ids": {}}}}, "table.x.ids: Input should be a valid array (got an object)"),
        ({"pets": [{"kind": "cat"}]}, "pets.0.lives: Field required"),
        ({"pets": [{}]}, "pets.0: Unable to extract tag using discriminator 'kind' (expected: cat, dog)"),
        (
            {"pets": [{"kind": "cow"}]},
            "pets.0: Input tag 'cow' found using 'kind' does not match any of the expected tags: 'cat', 'dog'",
        ),
        (
            {"number_or_list": "x"},
            (
                "number_or_list: Input should be a valid integer, unable to parse string as an integer; or "
                'Input should be a valid array (got "x")'
            ),
        ),
        (
            {"quries": []},
            (
                "quries: Unknown field (known: queries, limit, flag, text, either, number_or_list, inner, "
                "pets, colour, table)"
            ),
        ),
    ],
)
def test_a_line_names_the_field_and_what_is_wrong(arguments: dict[str, Any], line: str) -> None:
    assert told(Query, arguments) == [line]


def test_each_field_has_a_line_of_its_own() -> None:
    lines = told(Query, {"limit": 0, "flag": "perhaps", "inner": {"ids": ["x"]}})
    assert [line.split(":")[0] for line in lines] == ["limit", "flag", "inner.ids.0"]


def test_a_key_that_is_called_like_a_union_member_does_not_hide_the_path() -> None:
    class Tricky(BaseModel):
        pet: Pet
        cat: int = 0

    assert told(Tricky, {"pet": {"kind": "cat", "cat": {"lives": 1}}}) == ["pet.lives: Field required"]
    assert told(Tricky, {"pet": {"kind": "cat", "cat": 1, "lives": "x"}})[0].startswith("pet.lives: ")


def test_what_a_validator_of_the_tool_says_is_passed_on_in_one_line() -> None:
    class Checked(BaseModel):
        a: int
        b: int

        @field_validator("a")
        @classmethod
        def a_is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even,\n  and is not")
            return value

        @model_validator(mode="after")
        def a_is_smaller(self) -> Checked:
            if self.a >= self.b:
                raise AssertionError("a must be smaller than b")
            return self

    assert told(Checked, {"a": 1, "b": 2}) == ["a: must be even, and is not (got 1)"]
    assert told(Checked, {"a": 4, "b": 2}) == ["a must be smaller than b"]


def test_no_text_names_a_class_or_an_address() -> None:
    every = dict.fromkeys(Query.model_fields, object)
    text = "\n".join(told(Query, dict.fromkeys(every, 1.5) | {"pets": [1], "table": {"x": 1}, "more": 1}))
    for word in ("http", "Query", "Inner", "Cat", "Dog", "Colour", "pydantic"):
        assert word not in text


def test_the_text_is_short_however_much_is_wrong() -> None:
    lines = told(Query, {"queries": [{"n": n} for n in range(5000)], "text": "x"})
    text = "\n".join(lines)
    assert len(text.encode()) <= MAX_TEXT_BYTES + 20
    assert lines[0] == "queries.0: Input should be a valid string (got an object)"
    assert lines[-1] == f"and {5000 - (len(lines) - 1)} more"


def test_a_long_value_is_shown_by_its_beginning() -> None:
    (line,) = told(Query, {"limit": "é" * 5000})
    assert line.startswith('limit: Input should be a valid integer, unable to parse string as an integer (got "éé')
    assert len(line) < 200


def test_a_path_is_found_in_a_deep_value_that_a_validator_rewrote() -> None:
    class Deep(BaseModel):
        child: Deep | None = None
        n: int = 0

        @model_validator(mode="before")
        @classmethod
        def rewritten(cls, data: Any) -> Any:
            return {**data, "n": data.get("n", "x")} if isinstance(data, dict) else data

    value: dict[str, Any] = {"n": 1}
    for _ in range(40):
        value = {"child": {**value}, "n": 1}
    value["child"]["child"].pop("n")
    lines = told(Deep, value)
    assert lines == ['child.child: Input should be a valid integer, unable to parse string as an integer (got "x")']


def test_arguments_that_are_no_json_are_read_as_they_are() -> None:
    class Timed(BaseModel):
        at: datetime.date
        n: int

    day = datetime.date(2020, 1, 1)
    assert validated(Timed, {"at": day, "n": "3"}) == {"at": day, "n": 3}
    (line,) = told(Timed, {"at": day, "n": "x"})
    assert line == 'n: Input should be a valid integer, unable to parse string as an integer (got "x")'


# --- JSON Schemas ----------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "queries": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 3},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "flag": {"type": "boolean"},
        "text": {"type": "string", "pattern": "^[^x]*$", "maxLength": 5},
        "maybe": {"type": ["string", "null"]},
        "old": {"type": "string", "nullable": True},
        "either": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        "mode": {"enum": ["fast", "slow", 1]},
        "version": {"const": 1},
        "pet": {
            "oneOf": [
                {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]},
                {"properties": {"kind": {"const": "dog"}, "name": {"type": "string"}}, "required": ["kind", "name"]},
            ],
            "type": "object",
        },
        "node": {"$ref": "#/$defs/node"},
        "both": {"allOf": [{"minimum": 2}, {"maximum": 4}]},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "minItems": 2},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
        "never": False,
        "anything": True,
        "exotic": {"type": "date", "format": "date", "patternProperties": {"a": {}}, "additionalProperties": False},
    },
    "required": ["queries"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["value"],
        }
    },
}


def by_schema(**fields: Any) -> dict[str, Any]:
    return validated(SCHEMA, {"queries": [], **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 100, "ratio": 0.5, "flag": True, "text": "abc"},
        {"limit": 5.0},
        {"maybe": None},
        {"old": None},
        {"mode": 1, "version": 1, "both": 3},
        {"pet": {"kind": "cat", "lives": 9}},
        {"node": {"value": 1, "next": {"value": 2}}},
        {"pair": ["a", 1, 2], "map": {"x": 1}, "anything": [None]},
        {"exotic": {"b": 1}},
        {"either": "[1]", "text": "[1]"},
    ],
)
def test_a_dict_that_fits_its_schema_is_returned_as_an_equal_copy(fields: dict[str, Any]) -> None:
    arguments = {"queries": ["a"], **fields}
    params = tool_for(SCHEMA).validate(arguments)
    assert params == arguments
    assert isinstance(params, dict)
    params["queries"].append("b")
    assert arguments["queries"] == ["a"]


@pytest.mark.parametrize(
    ("field", "sent", "read"),
    [
        ("queries", '["a"]', ["a"]),
        ("limit", "5", 5),
        ("ratio", "0.5", 0.5),
        ("flag", "false", False),
        ("pet", '{"kind": "dog", "name": "Rex"}', {"kind": "dog", "name": "Rex"}),
        ("node", '{"value": "1", "next": {"value": "2"}}', {"value": 1, "next": {"value": 2}}),
    ],
)
def test_a_string_that_spells_the_wanted_type_is_read_by_schema_too(field: str, sent: str, read: Any) -> None:
    assert by_schema(**{field: sent})[field] == read


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("queries", "[1", 'queries: Input should be an array (got "[1")'),
        ("queries", [""], 'queries.0: Input should have at least 1 characters (got "")'),
        ("queries", ["a"] * 4, "queries: Input should have at most 3 items (got an array)"),
        ("limit", 0, "limit: Input should be greater than or equal to 1 (got 0)"),
        ("limit", 101, "limit: Input should be less than or equal to 100 (got 101)"),
        ("limit", 1.5, "limit: Input should be an integer (got 1.5)"),
        ("limit", True, "limit: Input should be an integer (got true)"),
        ("ratio", 0, "ratio: Input should be greater than 0 (got 0)"),
        ("ratio", 1, "ratio: Input should be less than 1 (got 1)"),
        ("ratio", "NaN", 'ratio: Input should be a number (got "NaN")'),
        ("flag", "perhaps", 'flag: Input should be a boolean (got "perhaps")'),
        ("text", "x", 'text: Input should match the pattern ^[^x]*$ (got "x")'),
        ("text", "abcdef", 'text: Input should have at most 5 characters (got "abcdef")'),
        ("maybe", 5, "maybe: Input should be a string or null (got 5)"),
        ("either", 5, "either: Input should be a string; or Input should be an array (got 5)"),
        ("mode", "medium", 'mode: Input should be one of "fast", "slow", 1 (got "medium")'),
        ("mode", True, 'mode: Input should be one of "fast", "slow", 1 (got true)'),
        ("version", True, "version: Input should be exactly 1 (got true)"),
        ("both", 1, "both: Input should be greater than or equal to 2 (got 1)"),
        ("both", 5, "both: Input should be less than or equal to 4 (got 5)"),
        ("pet", {"kind": "cat"}, "pet.lives: Field required"),
        (
            "pet",
            {"kind": "cow"},
            'pet.kind: Input should be exactly "cat"; or Input should be exactly "dog" (got "cow")',
        ),
        ("pet", {}, 'pet.kind: Field required ("cat"); or Field required ("dog")'),
        ("pet", 4, "pet: Input should be an object (got 4)"),
        ("node", {"value": 1, "next": {}}, "node.next.value: Field required"),
        ("pair", [1, 2], "pair.0: Input should be a string (got 1)"),
        ("pair", ["a", "b"], 'pair.1: Input should be an integer (got "b")'),
        ("map", {"x": None}, "map.x: Input should be an integer (got null)"),
        ("map", {}, "map: Input should have at least 1 fields (got an object)"),
        ("never", 1, "never: Nothing is allowed here (got 1)"),
    ],
)
def test_a_line_says_what_a_schema_refuses(field: str, value: Any, line: str) -> None:
    assert told(SCHEMA, {"queries": [], field: value}) == [line]


def test_missing_and_unknown_fields_are_named() -> None:
    lines = told(SCHEMA, {"query": "x"})
    assert lines[0] == "queries: Field required"
    assert lines[1].startswith("query: Unknown field (known: queries, limit, ratio")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
        },
        {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
    ],
)
def test_a_schema_that_refers_to_itself_ends(schema: dict[str, Any]) -> None:
    assert validated(schema, {"a": {"a": {}}}) == {"a": {"a": {}}}


def test_branches_that_all_recurse_are_asked_once_at_each_place() -> None:
    branch = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"anyOf": [branch, branch, branch, {"type": "null"}]}},
    }
    value: Any = 5
    for _ in range(50):
        value = {"next": value}
    (line,) = told(schema, {"n": value})
    assert line.startswith("n.next.next.")


def test_a_value_nested_deeper_than_can_be_followed_is_refused_in_words() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}},
    }
    shallow = json.loads('{"n":' * 50 + "{}" + "}" * 50)
    assert validated(schema, shallow) == shallow
    assert "nested" in told(schema, json.loads('{"n":' * 100 + "{}" + "}" * 100))[0]
    assert told(schema, json.loads('{"n":' * 900 + "{}" + "}" * 900)) == ["The arguments are nested too deeply"]


def test_references_that_cannot_be_followed_here_and_odd_patterns_are_left_to_the_tool() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "https://example.org/schema"},
            "b": {"type": "string", "pattern": r"\p{L}("},
            "c": {"items": [{"type": "string"}]},
        },
    }
    arguments = {"a": 1, "b": "x", "c": [1]}
    assert validated(schema, arguments) == arguments


def test_pointers_may_be_escaped() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y%20z"}, "b": {"$ref": "#/$defs/list/anyOf/1"}},
        "$defs": {"x/y z": {"type": "integer"}, "list": {"anyOf": [{}, {"type": "boolean"}]}},
    }
    assert told(schema, {"a": "x", "b": "y"}) == [
        'a: Input should be an integer (got "x")',
        'b: Input should be a boolean (got "y")',
    ]
