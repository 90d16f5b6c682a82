"""What makes a tool, and which tools are refused when they are constructed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel

from cubepi_anyio.errors import DuplicateToolName, ToolDefinitionError
from cubepi_anyio.testing import RunByHand, run_context
from cubepi_anyio.tools.define.definition import AgentTool, AgentToolResult, check_unique_names
from cubepi_anyio.types import ImageContent, TextContent, Usage


class SearchParams(BaseModel):
    query: str = Field(..., description="what to look for")
    limit: int = Field(10, ge=1, le=100)


async def search(
    tool_call_id: str, params: SearchParams, *, signal: object = None, on_update: object = None
) -> AgentToolResult:
    """Search the knowledge base."""
    return AgentToolResult(content=[TextContent(text=params.query)])


def plain(tool_call_id: str, params: object) -> AgentToolResult:
    return AgentToolResult("done")


def make(**changes: Any) -> AgentTool:
    fields: dict[str, Any] = {"name": "search", "description": "Search.", "parameters": SearchParams, "execute": search}
    return AgentTool(**(fields | changes))


def refusal(**changes: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        make(**changes)
    return str(caught.value)


# --- what is read from execute ---------------------------------------------------------------


def test_a_tool_made_by_keyword_has_the_given_fields_and_the_defaults() -> None:
    tool = make(execution_mode="sequential")
    assert (tool.name, tool.label, tool.execution_mode, tool.timeout) == ("search", "", "sequential", None)
    assert (tool.cancellation, tool.grace, tool.idempotent, tool.strict) == ("immediate", 5.0, None, None)


class Caller:
    """Looks things up."""

    async def __call__(self, tool_call_id: str, params: object, *, context: object) -> str:
        """Look up."""
        return "found"

    def method(self, tool_call_id: str, params: object, signal: object) -> str:
        return "found"


async def greedy(tool_call_id: str, params: object, **injected: object) -> str:
    return "done"


async def with_extra(tool_call_id: str, params: object, signal: object = None, *, depth: int) -> str:
    return "done"


@pytest.mark.parametrize(
    ("execute", "accepts", "is_async"),
    [
        (search, {"signal", "on_update"}, True),
        (plain, set[str](), False),
        (lambda tool_call_id, params: None, set[str](), False),
        (greedy, {"signal", "on_update", "ctx", "context"}, True),
        (Caller(), {"context"}, True),
        (Caller().method, {"signal"}, False),
        (partial(with_extra, depth=2), {"signal"}, True),
        (partial(partial(Caller()), "id"), None, True),
        (lambda *args: None, set[str](), False),
    ],
)
def test_what_execute_declares_is_what_it_is_given(
    execute: Callable[..., Any], accepts: set[str] | None, is_async: bool
) -> None:
    if accepts is None:
        assert "1 positional argument(s)" in refusal(execute=execute)
        return
    tool = make(execute=execute)
    assert tool.accepts == accepts
    assert tool.is_async is is_async


def test_a_tool_is_hashable_and_equal_to_itself_only() -> None:
    tool, twin = make(), make()
    assert tool == tool
    assert tool != twin
    assert len({tool, twin}) == 2


def test_a_changed_copy_is_read_anew() -> None:
    changed = dataclasses.replace(make(), name="other", execute=plain, description="Other.")
    assert (changed.definition.name, changed.definition.description) == ("other", "Other.")
    assert (changed.accepts, changed.is_async) == (frozenset(), False)


@pytest.mark.parametrize(
    ("execute", "description"),
    [
        (search, "Search the knowledge base."),
        (partial(search), "Search the knowledge base."),
        (Caller(), "Look up."),
        (plain, ""),
    ],
)
def test_without_a_description_the_docstring_speaks(execute: Callable[..., Any], description: str) -> None:
    tool = make(description="", execute=execute)
    assert tool.description == description
    assert tool.definition.description == description


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "naïve", "a.b", 5, None])
def test_a_name_that_vendors_refuse_is_refused(name: object) -> None:
    message = refusal(name=name)
    assert message.startswith(f"tool {str(name)!r}: a name is 1 to 64 letters")


@pytest.mark.parametrize("name", ["a", "x" * 64, "read_file-2", "9"])
def test_a_name_that_vendors_take_is_taken(name: str) -> None:
    assert make(name=name).definition.name == name


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("execution_mode", "serial", "execution_mode is 'parallel', 'sequential' or None, not 'serial'"),
        ("cancellation", "never", "cancellation is 'immediate' or 'cooperative', not 'never'"),
        ("timeout", 0, "timeout is a positive number of seconds, or None, not 0"),
        ("timeout", -1.5, "timeout is a positive number of seconds, or None, not -1.5"),
        ("timeout", True, "timeout is a positive number of seconds, or None, not True"),
        ("timeout", math.nan, "timeout is a positive number of seconds, or None, not nan"),
        ("timeout", "5", "timeout is a positive number of seconds, or None, not '5'"),
        ("grace", 0, "grace is a positive number of seconds, not 0"),
        ("grace", None, "grace is a positive number of seconds, not None"),
    ],
)
def test_an_impossible_setting_is_refused(field: str, value: object, said: str) -> None:
    assert refusal(**{field: value}) == f"tool 'search': {said}"


async def generator(tool_call_id: str, params: object) -> AsyncIterator[str]:
    yield "one"


@pytest.mark.parametrize(
    ("execute", "said"),
    [
        (None, "a tool needs a function to run, not NoneType"),
        (lambda tool_call_id: None, "execute takes 1 positional argument(s)"),
        (lambda tool_call_id, *, params: None, "execute takes 1 positional argument(s)"),
        (lambda tool_call_id, params, extra: None, "execute requires extra"),
        (lambda tool_call_id, params, *, extra, other: None, "execute requires extra, other"),
        (lambda tool_call_id, params, signal, /: None, "execute requires signal"),
        (generator, "its function is a generator"),
        (int, "its function has no readable signature"),
    ],
)
def test_a_function_that_cannot_be_called_as_a_tool_is_refused(execute: Any, said: str) -> None:
    assert refusal(execute=execute).startswith(f"tool 'search': {said}")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (None, "parameters is a pydantic model class or a JSON Schema (a dict), not None"),
        (int, "parameters is a pydantic model class or a JSON Schema (a dict), not <class 'int'>"),
        (RootModel[list[int]], "parameters describe an object, not 'array'"),
        ({"type": "array"}, "parameters describe an object, not 'array'"),
        ({"anyOf": [{"type": "object"}]}, "parameters describe an object, not 'anything'"),
        ({"$ref": "#"}, "parameters describe an object, not 'anything'"),
        ({"type": "object", "required": "query"}, "'required' is a list of names, not 'query'"),
        ({"type": "object", "properties": []}, "'properties' maps names to schemas, and is not []"),
        ({"type": "object", "anyOf": {}}, "'anyOf' is a list of schemas, not {}"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}}, "the schema refers to #/$defs/A, which it does not contain"),
        ({"type": "object", "default": {1}}, "parameters are not JSON: Object of type set is not JSON serializable"),
    ],
)
def test_parameters_no_model_could_be_shown_are_refused(parameters: object, said: str) -> None:
    assert refusal(parameters=parameters) == f"tool 'search': {said}"


class Unfinished(BaseModel):
    later: NotYetDefined  # type: ignore[name-defined]  # noqa: F821


class Uncallable(BaseModel):
    action: Callable[[int], int]


def test_a_model_that_uses_an_undefined_type_is_refused() -> None:
    said = "parameters use 'NotYetDefined', which is not defined yet; define it before the tool"
    assert refusal(parameters=Unfinished) == f"tool 'search': {said}"


def test_a_model_without_a_json_schema_is_refused_without_links() -> None:
    message = refusal(parameters=Uncallable)
    assert message.startswith("tool 'search': parameters have no JSON Schema")
    assert "http" not in message


def test_two_tools_of_one_name_are_refused() -> None:
    check_unique_names([make(), make(name="other")])
    with pytest.raises(DuplicateToolName, match="'search'"):
        check_unique_names([make(), make(name="other"), make()])


# --- results and context ---------------------------------------------------------------------


def test_a_result_takes_its_fields_by_position_and_by_name() -> None:
    block = TextContent(text="hi")
    result = AgentToolResult([block], {"n": 1}, True, True)
    assert (result.content, result.details, result.is_error, result.terminate) == ([block], {"n": 1}, True, True)
    assert result == AgentToolResult(content=[block], details={"n": 1}, is_error=True, terminate=True)


def test_an_empty_result_has_no_content() -> None:
    result = AgentToolResult()
    assert (result.content, result.details, result.is_error, result.terminate) == ([], None, False, False)


def test_a_string_and_a_single_block_become_a_list() -> None:
    image = ImageContent(source="aGk=", media_type="image/png")
    assert AgentToolResult("done").content == [TextContent(text="done")]
    assert AgentToolResult(content=image).content == [image]


def test_the_list_given_to_a_result_is_copied() -> None:
    blocks = [TextContent(text="one")]
    result = AgentToolResult(content=[*blocks])
    blocks.append(TextContent(text="two"))
    assert len(result.content) == 1
    assert dataclasses.replace(result, is_error=True).content == [TextContent(text="one")]


@pytest.mark.parametrize("content", [5, None, ["text"], [{"type": "text", "text": "x"}]])
def test_content_of_another_kind_is_a_type_error(content: Any) -> None:
    with pytest.raises(TypeError, match="text, image or document blocks"):
        AgentToolResult(content)


@pytest.mark.anyio
async def test_the_context_of_a_call_reports_its_progress() -> None:
    seen: list[object] = []

    async def on_update(x: object) -> None:
        seen.append(x)

    run = RunByHand(id="run-1")
    context = run_context(run, tool_call_id="call-1", tool_name="search", on_update=on_update)
    await context.update({"page": 1})
    assert seen == [{"page": 1}]
    assert (context.tool_call_id, context.tool_name, context.run_id, list(context.messages)) == (
        "call-1",
        "search",
        "run-1",
        [],
    )
    assert context.signal is run.signal


def test_a_context_outside_of_a_call_has_no_progress_to_report() -> None:
    context = run_context()
    assert (context.tool_call_id, context.tool_name, context.on_update) == (None, None, None)
    with pytest.raises(TypeError, match="belongs to none"):
        context.update("half")


@pytest.mark.anyio
async def test_what_is_done_through_a_context_by_hand_can_be_looked_at() -> None:
    run = RunByHand()
    context = run_context(run)
    context.notes["key"] = "value"
    context.add_usage(Usage(input_tokens=2), by="judge")
    context.add_usage(Usage(output_tokens=3), by="judge")
    await context.emit("event")
    assert (run.notes, run.emitted) == ({"key": "value"}, ["event"])
    assert run.usage == run.usage_by["judge"] == Usage(input_tokens=2, output_tokens=3)


@pytest.mark.parametrize("name", ["read_only", "destructive", "open_world", "idempotent"])
def test_what_a_tool_may_do_is_unknown_unless_said(name: str) -> None:
    def nothing(tool_call_id: str, params: SearchParams) -> str:
        return ""

    plain = AgentTool("a", "b", SearchParams, nothing)
    assert getattr(plain, name) is None
    assert getattr(dataclasses.replace(plain, **{name: True}), name) is True
    with pytest.raises(ToolDefinitionError, match=f"{name} is True, False, or None"):
        dataclasses.replace(plain, **{name: "yes"})


def test_a_tool_that_only_reads_destroys_nothing() -> None:
    def nothing(tool_call_id: str, params: SearchParams) -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match="read_only"):
        AgentTool("a", "b", SearchParams, nothing, read_only=True, destructive=True)
