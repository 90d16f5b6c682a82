"""``@tool``: what a typed function tells a model, what it is given, and what its answer becomes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from cubepi_anyio.concurrency import AbortSource
from cubepi_anyio.errors import ToolDefinitionError
from cubepi_anyio.testing import run_context
from cubepi_anyio.tools.context import RunContext, ToolContext
from cubepi_anyio.tools.define.decorator import tool
from cubepi_anyio.tools.define.definition import AgentTool, AgentToolResult
from cubepi_anyio.tools.define.validation import ArgumentsInvalid
from cubepi_anyio.types import Content, ImageContent, TextContent

if TYPE_CHECKING:
    from cubepi_anyio.concurrency import AbortSignal

IMAGE = ImageContent(source="aGk=", media_type="image/png")


class Filter(BaseModel):
    field: str
    values: list[str] = []


def properties(made: AgentTool) -> dict[str, Any]:
    return made.definition.parameters["properties"]


def call(made: AgentTool, **arguments: Any) -> AgentToolResult:
    """Run a tool made of a plain function as the library does, without the library."""
    return made.execute("call-1", made.validate(arguments))


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(function) if options else tool(function)
    return str(caught.value)


# --- the schema ------------------------------------------------------------------------------


def test_a_signature_becomes_the_schema() -> None:
    @tool
    def search(
        query: str,
        filters: list[Filter],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        order: Literal["newest", "best"] = "best",
        since: Optional[datetime.date] = None,  # noqa: UP045 - the old spelling is read too
    ) -> str:
        return ""

    assert search.definition.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string"},
            "filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            "order": {"type": "string", "enum": ["newest", "best"], "default": "best"},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        },
        "required": ["query", "filters"],
        "$defs": {
            "Filter": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["field"],
            }
        },
    }


def test_a_default_of_none_allows_null() -> None:
    @tool
    def look(depth: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return str(depth)

    assert properties(look)["depth"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert call(look, depth=None) == AgentToolResult("None")


def test_a_field_as_default_carries_its_constraints_and_its_default() -> None:
    @tool
    def look(depth: int = Field(3, ge=1, description="how deep"), word: str = Field(min_length=2)) -> str:
        return f"{depth} {word}"

    assert properties(look) == {
        "depth": {"type": "integer", "minimum": 1, "default": 3, "description": "how deep"},
        "word": {"type": "string", "minLength": 2},
    }
    assert look.definition.parameters["required"] == ["word"]
    assert call(look, word="ab") == AgentToolResult("3 ab")


def test_descriptions_come_from_the_nearest_place() -> None:
    @tool
    def look(
        a: Annotated[int, "from the annotation"],
        b: Annotated[int, "from the annotation", Field(description="from the field")],
        c: int,
        d: int = Field(description="from the default"),
    ) -> str:
        """Look.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
            d: from the docstring
        """
        return ""

    described = {name: schema["description"] for name, schema in properties(look).items()}
    assert described == {
        "a": "from the annotation",
        "b": "from the field",
        "c": "from the docstring",
        "d": "from the default",
    }


GOOGLE = """Find files.

    Follows no links.

    Args:
        root (str): where to start,
            as a path
        *depth: how deep: at most 3

    Returns:
        names
    """
NUMPY = """Find files.

    Follows no links.

    Parameters
    ----------
    root : str, optional
        where to start,
        as a path
    depth
        how deep: at most 3

    Returns
    -------
    str
        depth of what was found
    """
SPHINX = """Find files.

    Follows no links.

    :param str root: where to start,
        as a path
    :param depth: how deep: at most 3
    :type depth: int
    :returns: names
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_a_docstring_is_split_into_purpose_and_parameters(docstring: str) -> None:
    def find(root: str, depth: int) -> str:
        return ""

    find.__doc__ = docstring
    made = tool(find)
    assert made.definition.description == "Find files.\n\nFollows no links."
    assert properties(made)["root"]["description"] == "where to start, as a path"
    assert properties(made)["depth"]["description"] == "how deep: at most 3"


@pytest.mark.parametrize(
    "docstring",
    ["Find files.\n\n    Args:\n\n    Nothing is listed.", "Find files: quickly.\n\n    Returns:\n        names", ""],
)
def test_a_docstring_without_a_list_is_all_purpose(docstring: str) -> None:
    def find(root: str) -> str:
        return ""

    find.__doc__ = docstring
    assert tool(find).definition.description == inspect.cleandoc(docstring)


def test_several_numpy_parameters_may_share_a_text() -> None:
    @tool
    def move(x: int, y: int) -> str:
        """Move.

        Parameters
        ----------
        x, y : int
            pixels
        """
        return ""

    assert {schema["description"] for schema in properties(move).values()} == {"pixels"}


def test_names_that_pydantic_has_taken_work() -> None:
    @tool
    def odd(
        json: str, copy: int, schema: str, model_config: str, model_id: str, _hidden: int, json_: str = "other"
    ) -> dict[str, Any]:
        return dict(locals())

    sent = {"json": "j", "copy": 1, "schema": "s", "model_config": "m", "model_id": "i", "_hidden": 2}
    assert list(properties(odd)) == [*sent, "json_"]
    assert call(odd, **sent).details == {**sent, "json_": "other"}
    with pytest.raises(ArgumentsInvalid) as caught:
        odd.validate({**sent, "copy": "x", "_hidden": None})
    assert [line.split(":")[0] for line in caught.value.text.splitlines()] == ["copy", "_hidden"]


def test_an_alias_is_what_the_model_sees() -> None:
    @tool
    def look(kind: str = Field(alias="type"), schema: str = Field("x", alias="format")) -> str:
        return f"{kind} {schema}"

    assert list(properties(look)) == ["type", "format"]
    assert call(look, type="a") == AgentToolResult("a x")


def test_an_argument_the_function_does_not_have_is_refused() -> None:
    @tool
    def look(depth: int = 1) -> str:
        return ""

    with pytest.raises(ArgumentsInvalid, match=r"^deep: Unknown field \(known: depth\)$"):
        look.validate({"deep": 3})


def test_types_that_exist_where_the_function_is_defined_are_found() -> None:
    class Local(BaseModel):
        n: int

    @tool
    def plain(item: Local) -> str:
        return str(item.n)

    @tool(name="options")
    def with_options(item: list[Local]) -> str:
        return str(item[0].n)

    def define() -> AgentTool:
        @tool
        def inner(item: Local | None = None) -> str:
            return repr(Local)

        return inner

    assert call(plain, item={"n": 1}) == AgentToolResult("1")
    assert call(with_options, item=[{"n": 2}]) == AgentToolResult("2")
    assert list(properties(define())) == ["item"]


# --- options and kinds of function -----------------------------------------------------------


def test_the_options_are_those_of_a_tool() -> None:
    @tool(
        name="find",
        description="Find it.",
        label="Finder",
        execution_mode="sequential",
        timeout=3,
        cancellation="cooperative",
        grace=1,
        idempotent=False,
        strict=True,
    )
    def search(query: str) -> str:
        """Not this."""
        return query

    assert (search.name, search.description, search.label) == ("find", "Find it.", "Finder")
    assert (search.execution_mode, search.timeout, search.cancellation) == ("sequential", 3, "cooperative")
    assert (search.grace, search.idempotent, search.strict) == (1, False, True)


def test_the_function_itself_is_kept() -> None:
    def double(n: int) -> int:
        return 2 * n

    made = tool(double)
    assert made.function is double
    assert made.name == "double"


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, n: int) -> str:
        """Add to the count."""
        self.count += n
        return str(self.count)

    async def __call__(self, n: int) -> str:
        return str(self.count + n)


def test_bound_methods_partials_and_wrapped_functions_are_tools_too() -> None:
    counter = Counter()
    assert call(tool(counter.add), n=2) == AgentToolResult("2")
    assert tool(counter.add).description == "Add to the count."

    partly = tool(name="add_more")(functools.partial(counter.add, n=5))
    assert properties(partly)["n"] == {"type": "integer", "default": 5}
    assert call(partly) == AgentToolResult("7")

    @functools.wraps(counter.add)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return counter.add(*args, **kwargs)

    assert call(tool(wrapper), n=1) == AgentToolResult("8")
    assert tool(name="count")(counter).is_async


def test_a_plain_function_stays_plain_and_an_async_one_async() -> None:
    def plain() -> None: ...

    async def waiting() -> None: ...

    assert not tool(plain).is_async
    assert tool(waiting).is_async


# --- what is injected ------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_the_library_gives_is_hidden_from_the_model() -> None:
    got: dict[str, Any] = {}

    @tool
    async def search(
        query: str, tool_call_id: str, *, where: ToolContext | None = None, signal: AbortSignal, on_update: Any = None
    ) -> None:
        got.update(query=query, tool_call_id=tool_call_id, where=where, signal=signal, on_update=on_update)

    assert list(properties(search)) == ["query"]
    assert search.accepts == {"signal", "on_update", "context"}
    signal = AbortSource()

    async def on_update(x: object) -> None: ...

    context = run_context(tool_call_id="call-1", tool_name="search", on_update=on_update)
    params = search.validate({"query": "q"})
    await search.execute("call-1", params, signal=signal, on_update=on_update, context=context)
    assert got == {
        "query": "q",
        "tool_call_id": "call-1",
        "where": context,
        "signal": signal,
        "on_update": on_update,
    }


def test_a_parameter_called_context_is_the_models_unless_its_type_says_otherwise() -> None:
    @tool
    def explain(context: str, about: Annotated[ToolContext, "hidden"]) -> str:
        return context

    assert list(properties(explain)) == ["context"]
    assert explain.accepts == {"context"}


def test_a_context_may_say_what_the_deps_are() -> None:
    @tool
    def explain(about: str, run: RunContext[int]) -> str:
        return about * run.deps

    assert list(properties(explain)) == ["about"]
    assert explain.accepts == {"context"}


def test_what_a_tool_may_do_is_said_in_the_decorator() -> None:
    @tool(read_only=True, destructive=False, open_world=True, idempotent=True)
    def look(at: str) -> str:
        return at

    assert (look.read_only, look.destructive, look.open_world, look.idempotent) == (True, False, True, True)


def test_nothing_is_given_that_is_not_declared() -> None:
    @tool
    def now() -> str:
        return "now"

    assert now.accepts == frozenset()
    assert now.definition.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


# --- what is refused -------------------------------------------------------------------------


def test_a_function_no_model_could_call_is_refused_with_the_parameter_named() -> None:
    def unannotated(a: int, b): ...  # type: ignore[no-untyped-def]

    def positional(a: int, /): ...

    def variable(*rest: int): ...

    def keywords(**rest: int): ...

    def undefined(a: Nowhere): ...  # type: ignore[name-defined]  # noqa: F821

    def not_a_type(a: 5 + 5): ...  # type: ignore[valid-type]

    def unknown(a: int, b: AbortSource): ...

    def generating(a: int):
        yield a

    assert "'unannotated': parameter 'b' has no annotation" in refusal(unannotated)
    assert "'positional': parameter 'a' is positional-only" in refusal(positional)
    assert "'variable': parameter '*rest' takes any number of values" in refusal(variable)
    assert "'keywords': parameter '**rest' takes any name" in refusal(keywords)
    assert "'undefined': the annotation of parameter 'a' uses 'Nowhere', which is not defined" in refusal(undefined)
    assert "'not_a_type': " in refusal(not_a_type)
    assert "'unknown': parameter 'b' has a type no model can be shown" in refusal(unknown)
    assert "http" not in refusal(unknown)
    assert "'generating': its function is a generator" in refusal(generating)
    assert "decorate the bound one: tool(obj.method)" in refusal(Counter.add)


def test_a_name_or_another_value_in_place_of_the_function_is_refused() -> None:
    assert "options by name: @tool(name=...)" in refusal("search")
    assert "a name is 1 to 64 letters" in refusal(lambda: None)


# --- what is returned ------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: int
    y: int


def returning(value: Any) -> AgentToolResult:
    return call(tool(name="give")(lambda: value))


RESULT = AgentToolResult("given", is_error=True, terminate=True)


@pytest.mark.parametrize(
    ("value", "content", "details"),
    [
        ("text", [TextContent(text="text")], None),
        ("", [TextContent(text="(no output)")], None),
        (None, [TextContent(text="(no output)")], None),
        (IMAGE, [IMAGE], None),
        ([TextContent(text="a"), IMAGE, "b"], [TextContent(text="a"), IMAGE, TextContent(text="b")], None),
        ((IMAGE,), [IMAGE], None),
        (5, [TextContent(text="5")], 5),
        (False, [TextContent(text="false")], False),
        (1.5, [TextContent(text="1.5")], 1.5),
        ([], [TextContent(text="[]")], []),
        (["é", 1], [TextContent(text='["é",1]')], ["é", 1]),
        ({"on": datetime.date(2020, 1, 2)}, [TextContent(text='{"on":"2020-01-02"}')], {"on": "2020-01-02"}),
        (Point(1, 2), [TextContent(text='{"x":1,"y":2}')], {"x": 1, "y": 2}),
        (
            Filter(field="a", values=["b"]),
            [TextContent(text='{"field":"a","values":["b"]}')],
            {"field": "a", "values": ["b"]},
        ),
    ],
)
def test_what_is_returned_becomes_a_result(value: Any, content: list[Content], details: Any) -> None:
    assert returning(value) == AgentToolResult(content, details)


def test_a_result_is_passed_on_as_it_is() -> None:
    assert returning(RESULT) is RESULT


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "tool 'give' returned a value of type object"),
        (Point, "tool 'give' returned a value of type type"),
        ({1, 2}, "tool 'give' returned a value of type set"),
        ([IMAGE, 5], "tool 'give' returned a list of content with a value of type int in it"),
        ({"x": object()}, "tool 'give' returned a value of type dict that is no JSON"),
    ],
)
def test_anything_else_is_a_type_error_that_names_the_tool(value: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        returning(value)
    assert str(caught.value).startswith(said)


def test_a_coroutine_from_a_plain_function_is_closed_and_reported() -> None:
    async def later() -> str:
        return "late"

    with pytest.raises(TypeError, match="declare its function with async def"):
        call(tool(name="hidden")(lambda: later()))


@pytest.mark.anyio
async def test_an_async_function_is_awaited() -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert await double.execute("call-1", double.validate({"n": "4"})) == AgentToolResult("8", details=8)
