"""What is written can be read: odd values become plain ones, and what could not be read again is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from cubepi_anyio.checkpointers.codec import (
    decode_answer,
    decode_message,
    decode_messages,
    encode_answer,
    encode_message,
    encode_value,
)
from cubepi_anyio.errors import StoreCorrupt, UsageError
from cubepi_anyio.types import AssistantMessage, TextContent, ToolResultMessage, UserMessage
from cubepi_anyio.types.hitl import ApproveAnswer, PersonAnswer


class Model(BaseModel):
    x: Any


@dataclass
class Record:
    x: Any


class Number(int):
    pass


def kept(details: Any) -> Any:
    """What comes back of the details of a result."""
    message = ToolResultMessage(id="r", tool_call_id="c", tool_name="t", details=details)
    loaded = decode_message(encode_message(message), "t", "row")
    assert isinstance(loaded, ToolResultMessage)
    return loaded.details


def circle() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("given_details", "wanted"),
    [
        ({"a": [1, 2.5, None, True, "é\0"]}, {"a": [1, 2.5, None, True, "é\0"]}),
        (2**200, 2**200),
        ((1, {2}), [1, [2]]),
        ([math.nan, math.inf], [None, None]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        (b"text", "text"),
        (Model(x=Record(x=(1,))), {"x": {"x": [1]}}),
        ([b"\xff", object()], ["<bytes>", "<object>"]),
        ({1: object(), "\ud83d": Number(3)}, {"1": "<object>", "\ufffd": 3}),
        ("\ud83d\ude00 and \ude00", "\U0001f600 and \ufffd"),
        (circle(), [1, "<list>"]),
    ],
)
def test_details_come_back_as_json_can_express_them(given_details: Any, wanted: Any) -> None:
    assert kept(given_details) == wanted


def test_nesting_without_an_end_in_sight_is_cut() -> None:
    deep: Any = object()
    for _ in range(5000):
        deep = [deep]
    shallow, depth = kept(deep), 0
    while isinstance(shallow, list):
        shallow, depth = shallow[0], depth + 1
    assert (shallow, depth > 50) == ("<list>", True)


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.builds(Record, inner)
    ),
    max_leaves=10,
)


@given(_json)
def test_whatever_a_tool_returns_can_be_stored_and_what_was_stored_stays(value: Any) -> None:
    once = kept(value)
    assert kept(once) == once


def test_a_message_with_values_of_wrong_types_is_refused() -> None:
    message = AssistantMessage(id="a")
    message.content = ["just text"]  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"'a' cannot be stored: assistant\.content\.0"):
        encode_message(message)


def test_a_message_of_a_class_of_ones_own_is_stored_as_what_it_is_based_on() -> None:
    class Own(UserMessage):
        more: int = 1

    loaded = decode_message(encode_message(Own(id="u", content=[TextContent(text="hi")])), "t", "row")
    assert loaded == UserMessage(id="u", content=[TextContent(text="hi")])


def test_reading_many_rows_names_the_one_that_is_wrong() -> None:
    rows: list[tuple[bytes | str, str]] = [(encode_message(UserMessage(id=str(n))), f"row {n}") for n in range(5)]
    assert [message.id for message in decode_messages(rows, "t")] == list("01234")
    assert decode_messages([], "t") == []
    for broken in (b"", b"null", b"{}", b'{"role":"user"},{"role":"user"}'):
        with pytest.raises(StoreCorrupt, match=r"row 2") as caught:
            decode_messages([*rows[:2], (broken, "row 2"), *rows[3:]], "t")
        assert (caught.value.thread_id, caught.value.row) == ("t", "row 2")


@pytest.mark.parametrize(
    "answer",
    [True, False, {}, {"decision": "approve"}, {"kind": "x"}, ApproveAnswer(decision="deny", reason="no")],
)
def test_an_answer_comes_back_as_what_it_was(answer: PersonAnswer) -> None:
    back = decode_answer(encode_answer(answer), "t", "row")
    assert (back, type(back)) == (answer, type(answer))


def test_the_value_of_a_secret_is_not_written() -> None:
    from pydantic import SecretStr  # noqa: PLC0415 - of this test alone

    assert b"hunter2" not in encode_value({"key": SecretStr("hunter2")})
