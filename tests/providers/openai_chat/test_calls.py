"""Calls of tools, put together from whatever deltas vendors send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import MalformedResponse
from cubepi_anyio.types import ToolCall

from .reading import DONE, calls, chunk, end, entry, read, text

A = ToolCall(id="1", name="a", arguments={"x": 1})
B = ToolCall(id="2", name="b", arguments={"y": "z"})


def said(*pieces: bytes) -> list[ToolCall]:
    """The calls of an answer of these chunks; every one has begun and ended."""
    answer = read(b"".join(pieces) + end("tool_calls"))
    assert answer.error is None
    assert answer.types.count("toolcall_start") == answer.types.count("toolcall_end")
    return answer.message.tool_calls


@pytest.mark.parametrize(
    "pieces",
    [
        # as OpenAI sends them
        [
            calls(entry("", name="a", id="1", index=0, type="function")),
            calls(entry('{"x"', index=0)),
            calls(entry(": 1}", index=0)),
            calls(entry("", name="b", id="2", index=1)),
            calls(entry('{"y": "z"}', index=1)),
        ],
        # whole, in one chunk, in one chunk each, and without an index
        [calls(entry('{"x": 1}', name="a", id="1", index=0), entry('{"y": "z"}', name="b", id="2", index=1))],
        [calls(entry('{"x": 1}', name="a", id="1")), calls(entry('{"y": "z"}', name="b", id="2"))],
        [calls(entry('{"x": 1}', name="a", id="1"), entry('{"y": "z"}', name="b", id="2"))],
        # all with the same index
        [calls(entry('{"x": 1}', name="a", id="1", index=0)), calls(entry('{"y": "z"}', name="b", id="2", index=0))],
        # with gaps
        [calls(entry('{"x": 1}', name="a", id="1", index=3)), calls(entry('{"y": "z"}', name="b", id="2", index=7))],
        # interleaved, by index and by id
        [
            calls(entry('{"x"', name="a", id="1", index=0), entry('{"y"', name="b", id="2", index=1)),
            calls(entry(": 1", index=0), entry(': "z"', index=1)),
            calls(entry("}", index=0), entry("}", index=1)),
        ],
        [
            calls(entry('{"x"', name="a", id="1"), entry('{"y"', name="b", id="2")),
            calls(entry(": 1}", id="1"), entry(': "z"}', id="2")),
        ],
        # ids and names repeated, emptied, or null
        [
            calls(entry('{"x"', name="a", id="1", index=0)),
            calls(entry(": 1", name="a", id="1", index=0)),
            calls(entry("}", name="", id="", index=0)),
            calls(entry("", name=None, id=None, index=0)),
            calls(entry('{"y": "z"}', name="b", id="2", index=1)),
        ],
        # without index and id, continued by what follows
        [
            calls(entry('{"x"', name="a", id="1")),
            calls(entry(": 1}")),
            calls(entry('{"y": ', name="b", id="2")),
            calls(entry('"z"}')),
        ],
        # id and name late
        [
            calls(entry('{"x"', index=0), entry('{"y"', index=1)),
            calls(entry(id="1", index=0), entry(id="2", index=1)),
            calls(entry(name="a", index=0), entry(name="b", index=1)),
            calls(entry(": 1}", index=0), entry(': "z"}', index=1)),
        ],
        [
            calls(entry('{"x": 1}', name="a")),
            calls({"id": "1"}),
            calls(entry('{"y": "z"}', name="b")),
            calls({"id": "2"}),
        ],
        # as objects
        [calls(entry({"x": 1}, name="a", id="1", index=0)), calls(entry({"y": "z"}, name="b", id="2", index=1))],
        # with text between
        [
            calls(entry('{"x"', name="a", id="1", index=0)),
            text("meanwhile"),
            calls(entry(": 1}", index=0)),
            calls(entry('{"y": "z"}', name="b", id="2", index=1)),
        ],
    ],
)
def test_calls_are_put_together_however_they_come(pieces: list[bytes]) -> None:
    assert said(*pieces) == [A, B]


@pytest.mark.parametrize("arguments", ["", None, "{}", "null", " ", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert said(calls(entry(arguments, name="a", id="1", index=0))) == [ToolCall(id="1", name="a")]
    assert said(calls({"index": 0, "id": "1", "function": {"name": "a", "arguments": arguments}})) == [
        ToolCall(id="1", name="a")
    ]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [('{"x": 1', '{"x": 1'), ("[1]", "[1]"), ([1], "[1]"), (3, "3"), ("nonsense", "nonsense"), ('{"x": NaN}', None)],
)
def test_arguments_that_are_no_object_are_kept_as_text_and_not_repaired(arguments: Any, kept: str | None) -> None:
    [call] = said(calls(entry(arguments, name="a", id="1", index=0)))
    assert (call.arguments, call.invalid_arguments) == ({}, kept or arguments)


def test_calls_without_ids_are_given_different_ones() -> None:
    whole = entry("{}", name="a", id="", type="function")
    first, second, third = said(calls(whole, whole), calls({**whole, "id": None}))
    assert len({first.id, second.id, third.id}) == 3
    assert all(call.id.startswith("call_") for call in (first, second, third))
    assert [call.name for call in (first, second, third)] == ["a", "a", "a"]


def test_calls_without_ids_at_one_index_are_told_apart_by_their_whole_arguments() -> None:
    pieces = [entry('{"n": 1}', name="roll", index=0, id=""), entry('{"n": 2}', name="roll", index=0, id="")]
    assert [call.arguments for call in said(*(calls(piece) for piece in pieces))] == [{"n": 1}, {"n": 2}]
    other = entry('{"n": 3}', name="other", index=0)
    assert [call.name for call in said(calls(pieces[0]), calls(other))] == ["roll", "other"]


def test_a_name_repeated_without_an_id_goes_on_with_its_call() -> None:
    pieces = [entry(piece, name="a", index=0) for piece in ('{"x": ', '{"y"', ": 1}", "}")]
    [call] = said(*(calls(piece) for piece in pieces))
    assert call.arguments == {"x": {"y": 1}}
    [call] = said(*(calls({"function": piece["function"]}) for piece in pieces))
    assert call.arguments == {"x": {"y": 1}}


def test_a_name_may_come_in_pieces_before_the_arguments() -> None:
    [call] = said(
        calls(entry(name="get_", id="1", index=0)),
        calls(entry(name="weather", index=0)),
        calls(entry("{}", index=0)),
    )
    assert call.name == "get_weather"


def test_two_calls_with_one_id_can_both_be_answered() -> None:
    first, second = said(calls(entry("{}", name="a", id="1", index=0), entry("{}", name="b", id="1", index=1)))
    assert (first.id, second.id[:5]) == ("1", "call_")


def test_what_the_vendor_says_of_a_call_besides_is_kept() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    [call] = said(calls(entry("{}", name="a", id="1", index=0, type="function", **extra)))
    assert call.vendor == extra


def test_what_the_vendor_says_of_a_call_may_come_alone() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    first, second = said(
        calls(entry('{"x"', name="a", id="1", index=0), entry("{}", name="b", id="2", index=1)),
        calls({"index": 0, **extra}),
        calls(extra),
        calls(entry(": 1}", index=0)),
    )
    assert (first.vendor, second.vendor) == (extra, extra)
    assert read(calls(extra) + end()).types == ["start", "done"]


def test_an_entry_that_says_nothing_is_no_call() -> None:
    empty = [{"index": 0}, {"index": 0, "function": None}, entry("", name="", id="", index=1)]
    answer = read(text("x") + calls(*empty) + end())
    assert answer.types == ["start", "text_start", "text_delta", "text_end", "done"]


def test_the_form_before_there_were_tools_is_a_call() -> None:
    [call] = said(
        chunk({"function_call": {"name": "a", "arguments": '{"x"'}}),
        chunk({"function_call": {"arguments": ": 1}"}}),
    )
    assert (call.name, call.arguments) == ("a", {"x": 1})


def test_a_call_that_is_never_named_is_malformed() -> None:
    answer = read(calls(entry("{}", id="1", index=0)) + end("tool_calls"))
    assert type(answer.error) is MalformedResponse
    assert "done" not in answer.types


def test_a_call_that_is_complete_ends_when_the_next_begins_and_survives_a_cut() -> None:
    wire = calls(entry('{"x": 1}', name="a", id="1", index=0)) + calls(entry('{"y"', name="b", id="2", index=1))
    answer = read(wire)
    first = ["toolcall_start", "toolcall_delta", "toolcall_end"]
    assert answer.types == ["start", *first, "toolcall_start", "toolcall_delta"]
    assert answer.broken.tool_calls == [A]


def test_a_complete_call_takes_white_space_and_nothing_else() -> None:
    wire = calls(entry('{"x": 1}', name="a", id="1", index=0), entry('{"y": "z"}', name="b", id="2", index=1))
    assert said(wire, calls(entry(" \n", index=0))) == [A, B]
    assert type(read(wire + calls(entry("}", index=0)) + end()).error) is MalformedResponse


def test_a_call_cut_by_the_token_limit_is_not_repaired() -> None:
    answer = read(calls(entry('{"path": "a", "content": "abc', name="write", id="1", index=0)) + end("length"))
    assert answer.stop_reason == "length"
    assert answer.message.tool_calls[0].invalid_arguments == '{"path": "a", "content": "abc'


def test_text_before_a_call_ends_where_the_call_begins() -> None:
    answer = read(text("I'll look.") + calls(entry("{}", name="a", id="1", index=0)) + DONE)
    assert answer.types[:5] == ["start", "text_start", "text_delta", "text_end", "toolcall_start"]


@given(st.data())
def test_any_interleaving_of_numbered_calls_gives_the_same_calls(data: st.DataObject) -> None:
    texts = ['{"x": 1}', '{"y": [1, {"z": "}{"}]}', "{}"]
    queues = [[entry(piece, index=number) for piece in list(raw)] for number, raw in enumerate(texts)]
    for number, queue in enumerate(queues):
        queue[0] = {**queue[0], "id": str(number), "function": {**queue[0]["function"], "name": f"t{number}"}}
    entries: list[dict[str, Any]] = [queue.pop(0) for queue in queues]
    while any(queues):
        entries.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    answer = read(b"".join(calls(each) for each in entries) + end("tool_calls"))
    assert [call.arguments for call in answer.message.tool_calls] == [{"x": 1}, {"y": [1, {"z": "}{"}]}, {}]


# --- strict tools ----------------------------------------------------------------------------


def test_nulls_that_strictness_put_in_the_place_of_defaults_are_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "unit": {"type": "string", "default": "C"}},
        "required": ["x"],
    }
    wire = calls(entry('{"x": 1, "unit": null}', name="a", id="1", index=0)) + end("tool_calls")
    assert read(wire, strict={"a": schema}).message.tool_calls == [A]
    alone = calls(entry('{"unit": null}', name="a", id="1", index=0)) + end("tool_calls")
    assert read(alone, strict={"a": schema}).message.tool_calls == [ToolCall(id="1", name="a", arguments={})]
    assert read(wire).message.tool_calls[0].arguments == {"x": 1, "unit": None}
