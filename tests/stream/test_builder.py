"""What deltas make of a message, and how it looked at each of them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.events.stream import StreamEvent, StreamEventType
from cubepi_anyio.stream import MessageBuilder
from cubepi_anyio.stream.builder import is_sendable, parse_arguments
from cubepi_anyio.types import (
    AssistantContent,
    AssistantMessage,
    ImageContent,
    OpaqueContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)


def applied(*events: StreamEvent) -> MessageBuilder:
    builder = MessageBuilder()
    for event in events:
        builder.apply(event)
    return builder


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "   ", "null", " null\n", "{}", "{ }"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == ({}, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\t', {"a": 1}),
        ('{"a": {"b": [1, {"c": null}]}}', {"a": {"b": [1, {"c": None}]}}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "\\u00e9\\ud83c\\udf0d"}', {"a": "é🌍"}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": 1.5, "b": true}', {"a": 1.5, "b": True}),
    ],
)
def test_an_object_is_read_as_it_is(text: str, value: dict[str, Any]) -> None:
    assert parse_arguments(text) == (value, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": "abc',
        "{",
        "[]",
        '[{"a": 1}]',
        '"text"',
        "1",
        "true",
        "NaN",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1}{"b": 2}',
        '{"a": 1} trailing',
        "{'a': 1}",
        '{"a": 1,}',
        "undefined",
        '{"a":' * 5000,
    ],
)
def test_what_is_no_object_is_kept_as_text_and_gives_no_arguments(text: str) -> None:
    assert parse_arguments(text) == ({}, text)


json_objects = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
        lambda leaf: st.lists(leaf, max_size=3) | st.dictionaries(st.text(max_size=4), leaf, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(json_objects)
def test_arguments_survive_the_wire(arguments: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(arguments)) == (arguments, None)
    assert parse_arguments(json.dumps(arguments, ensure_ascii=False)) == (arguments, None)


@given(json_objects.filter(bool))
def test_arguments_cut_anywhere_are_invalid(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    for cut in range(1, len(text)):
        assert parse_arguments(text[:cut]) == ({}, text[:cut]), cut


# --- what may stay of a broken message -------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "stays"),
    [
        (TextContent(text="x"), True),
        (TextContent(text=""), False),
        (TextContent(text=" \n"), False),
        (ThinkingContent(thinking="x"), False),
        (ThinkingContent(thinking="x", signature=""), False),
        (ThinkingContent(thinking="x", signature="s"), True),
        (ThinkingContent(redacted="r"), True),
        (ToolCall(id="1", name="t"), True),
        (OpaqueContent(kind="k"), True),
    ],
)
def test_empty_text_and_unsigned_thinking_may_not_stay(block: AssistantContent, stays: bool) -> None:
    assert is_sendable(block) is stays


def test_a_broken_message_keeps_text_signed_thinking_and_complete_calls_only() -> None:
    signed = ThinkingContent(thinking="", signature="sig")
    last = StreamEvent("toolcall_delta", 6, '{"b": ')
    builder = applied(
        StreamEvent("thinking_start", 0),
        StreamEvent("thinking_delta", 0, "signed"),
        StreamEvent("thinking_end", 0, block=signed),
        StreamEvent("thinking_start", 1),
        StreamEvent("thinking_delta", 1, "unsigned"),
        StreamEvent("thinking_end", 1),
        StreamEvent("text_start", 2),
        StreamEvent("text_end", 2),
        StreamEvent("text_start", 3),
        StreamEvent("text_delta", 3, "cut te"),
        StreamEvent("toolcall_start", 4, block=ToolCall(id="1", name="t")),
        StreamEvent("toolcall_delta", 4, '{"a": 1}'),
        StreamEvent("toolcall_end", 4),
        StreamEvent("opaque_start", 5, block=OpaqueContent(kind="search", data={"q": "cut"})),
        StreamEvent("toolcall_start", 6, block=ToolCall(id="2", name="t")),
        last,
    )
    assert builder.broken(last.mark, last.length).content == [
        ThinkingContent(thinking="signed", signature="sig"),
        TextContent(text="cut te"),
        ToolCall(id="1", name="t", arguments={"a": 1}),
    ]


# --- joining what starts, deltas and ends say ------------------------------------------------


def test_text_given_at_the_start_of_a_block_is_part_of_it() -> None:
    start = StreamEvent("text_start", 0, block=TextContent(text="Hel"))
    builder = applied(start, StreamEvent("text_delta", 0, "lo"))
    assert builder.message().text == "Hello"
    assert builder.finished().text == "Hello"
    assert start.partial is not None
    assert start.partial.text == "Hel"


def test_the_end_of_a_block_has_the_last_word() -> None:
    builder = applied(
        StreamEvent("text_delta", 0, "draft"),
        StreamEvent("text_end", 0, block=TextContent(text="final", vendor={"cited": 1})),
        StreamEvent("thinking_delta", 1, "thought"),
        StreamEvent("thinking_end", 1, block=ThinkingContent(signature="s")),
    )
    assert builder.finished().content == [
        TextContent(text="final", vendor={"cited": 1}),
        ThinkingContent(thinking="thought", signature="s"),
    ]


def test_what_the_end_of_a_block_says_is_not_in_earlier_snapshots() -> None:
    delta = StreamEvent("toolcall_delta", 0, '{"a": 1}')
    thought = StreamEvent("thinking_delta", 1, "x")
    text = StreamEvent("text_delta", 2, "y")
    applied(
        StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t")),
        delta,
        StreamEvent("toolcall_end", 0, block=ToolCall(id="1", name="t", arguments={"a": 1})),
        thought,
        StreamEvent("thinking_end", 1, block=ThinkingContent(signature="late")),
        text,
        StreamEvent("text_end", 2, block=TextContent(vendor={"late": True})),
    )
    assert delta.partial is not None
    assert delta.partial.content == [ToolCall(id="1", name="t")]
    assert thought.partial is not None
    assert thought.partial.content[-1] == ThinkingContent(thinking="x")
    assert text.partial is not None
    assert text.partial.content[-1] == TextContent(text="y")


def test_an_end_without_an_index_ends_the_last_open_block_of_its_kind() -> None:
    builder = applied(
        StreamEvent("text_delta", delta="text"),
        StreamEvent("toolcall_start", block=ToolCall(id="1", name="t")),
        StreamEvent("text_end"),
        StreamEvent("toolcall_delta", delta='{"a": 1}'),
        StreamEvent("toolcall_end"),
    )
    assert builder.finished().content == [TextContent(text="text"), ToolCall(id="1", name="t", arguments={"a": 1})]
    assert builder.open_blocks() == frozenset()


def test_the_end_of_nothing_adds_nothing() -> None:
    builder = applied(StreamEvent("text_end"), StreamEvent("thinking_end", 3))
    assert builder.finished().content == []


def test_indices_with_gaps_and_indices_of_each_kind_find_their_blocks() -> None:
    builder = applied(
        StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t")),
        StreamEvent("toolcall_start", 2, block=ToolCall(id="2", name="t")),
        StreamEvent("toolcall_delta", 2, '{"two"'),
        StreamEvent("toolcall_delta", 0, '{"one"'),
        StreamEvent("text_delta", 0, "he"),
        StreamEvent("toolcall_delta", 2, ": 2}"),
        StreamEvent("toolcall_delta", 0, ": 1}"),
        StreamEvent("text_delta", 0, "re"),
    )
    assert builder.finished().content == [
        ToolCall(id="1", name="t", arguments={"one": 1}),
        ToolCall(id="2", name="t", arguments={"two": 2}),
        TextContent(text="here"),
    ]


def test_a_call_nobody_announced_never_appears() -> None:
    assert applied(StreamEvent("toolcall_delta", 0, '{"a": 1}')).finished().content == []


def test_line_ends_and_characters_beyond_the_basic_plane_are_kept() -> None:
    text = "a\r\nb\rc\n\u2028🌍\x00"
    builder = applied(*(StreamEvent("text_delta", delta=character) for character in text))
    assert builder.finished().text == text


def test_unfinished_calls_are_read_when_the_message_ends() -> None:
    builder = applied(
        StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t")),
        StreamEvent("toolcall_delta", 0, '{"a": "cut'),
    )
    assert builder.finished().content == [ToolCall(id="1", name="t", invalid_arguments='{"a": "cut')]


def test_a_block_that_grows_after_its_end_loses_nothing_and_changes_no_snapshot() -> None:
    ended = StreamEvent("text_end", 0, block=TextContent(vendor={"v": 1}))
    late = StreamEvent("text_delta", 0, "lo")
    builder = applied(StreamEvent("text_delta", 0, "Hel"), ended, late)
    assert builder.finished().text == "Hello"
    assert ended.partial is not None
    assert ended.partial.content == [TextContent(text="Hel", vendor={"v": 1})]
    assert late.partial is not None
    assert late.partial.text == "Hello"


# --- previews --------------------------------------------------------------------------------


def test_a_preview_reads_what_can_be_read() -> None:
    events = [StreamEvent("toolcall_delta", 0, piece) for piece in ('{"path": "a', '/b", "n": 1', "2}")]
    applied(StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t")), *events)
    assert events[0].preview_arguments() == {"path": "a"}
    assert events[1].preview_arguments() in ({"path": "a/b"}, {"path": "a/b", "n": 1})
    assert events[2].preview_arguments()["path"] == "a/b"


def test_the_preview_of_an_earlier_event_shows_nothing_of_later_ones() -> None:
    other = StreamEvent("text_delta", 1, "text in between")
    start = StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t"))
    deltas = [StreamEvent("toolcall_delta", 0, piece) for piece in ('{"a": "x', 'y", "b"', ': "z"}')]
    end = StreamEvent("toolcall_end", 0)
    applied(start, deltas[0], other, deltas[1], deltas[2], end)
    assert end.preview_arguments() == {"a": "xy", "b": "z"}
    assert deltas[2].preview_arguments() == {"a": "xy", "b": "z"}
    assert deltas[0].preview_arguments() == {"a": "x"}
    assert start.preview_arguments() == {}
    assert other.preview_arguments() == {}


def test_reading_every_preview_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepi_anyio.stream import builder as module  # noqa: PLC0415

    parsed: list[int] = []
    parse = module.from_json

    def counted(text: str, **options: Any) -> Any:
        parsed.append(len(text))
        return parse(text, **options)

    monkeypatch.setattr(module, "from_json", counted)

    def characters_parsed(deltas: int) -> int:
        parsed.clear()
        builder = applied(StreamEvent("toolcall_start", 0, block=ToolCall(id="1", name="t")))
        for piece in ('{"a": "', *["abcd"] * deltas, '"}'):
            event = StreamEvent("toolcall_delta", 0, piece)
            builder.apply(event)
            event.preview_arguments()
        return sum(parsed)

    small, large = characters_parsed(5_000), characters_parsed(10_000)
    assert large < small * 2.4
    assert large < 10_000 * 4 * 14


# --- snapshots -------------------------------------------------------------------------------

Kind = Literal["text", "thinking", "toolcall"]


@dataclass
class Reference:
    """The message built eagerly: every step copies the whole of it."""

    kinds: list[Kind] = field(default_factory=list[Kind])
    texts: list[str] = field(default_factory=list[str])
    ended: list[AssistantContent | None] = field(default_factory=list[AssistantContent | None])

    def start(self, kind: Kind) -> int:
        self.kinds.append(kind)
        self.texts.append("")
        self.ended.append(None)
        return len(self.kinds) - 1

    def content(self) -> list[AssistantContent]:
        return [self._block(index) for index in range(len(self.kinds))]

    def _block(self, index: int) -> AssistantContent:
        ended, text = self.ended[index], self.texts[index]
        if ended is not None:
            return ended
        if self.kinds[index] == "text":
            return TextContent(text=text)
        if self.kinds[index] == "thinking":
            return ThinkingContent(thinking=text)
        return ToolCall(id=f"c{index}", name="t")

    def end(self, index: int, told: bool) -> AssistantContent | None:
        """End a block; returns what its ``X_end`` event has to carry for it."""
        text = self.texts[index]
        if self.kinds[index] == "text":
            said = TextContent(vendor={"i": index}) if told else None
            self.ended[index] = TextContent(text=text, vendor={"i": index} if told else None)
        elif self.kinds[index] == "thinking":
            said = ThinkingContent(signature=f"s{index}") if told else None
            self.ended[index] = ThinkingContent(thinking=text, signature=f"s{index}" if told else None)
        else:
            said = ToolCall(id=f"d{index}", name="t", arguments={"i": index}) if told else None
            arguments, invalid = ({"i": index}, None) if told else parse_arguments(text)
            self.ended[index] = ToolCall(
                id=f"{'d' if told else 'c'}{index}", name="t", arguments=arguments, invalid_arguments=invalid
            )
        return said

    def broken(self) -> list[AssistantContent]:
        return [
            block
            for index, block in enumerate(self.content())
            if is_sendable(block) and (self.kinds[index] != "toolcall" or self.ended[index] is not None)
        ]


pieces = st.text(alphabet='ab{}":1 é🌍\n', max_size=5)
steps = st.lists(
    st.tuples(st.sampled_from(["start", "delta", "delta", "delta", "end", "end_told"]), st.integers(0, 99), pieces),
    max_size=60,
)
KINDS: tuple[Kind, ...] = ("text", "thinking", "toolcall")


@given(steps, st.randoms(use_true_random=False))
def test_a_snapshot_read_late_is_the_message_as_it_stood(
    script: list[tuple[str, int, str]], chance: random.Random
) -> None:
    builder, reference = MessageBuilder(), Reference()
    seen: list[tuple[StreamEvent, list[AssistantContent], list[AssistantContent]]] = []
    for step, number, piece in script:
        event = _play(reference, step, number, piece)
        if event is not None:
            builder.apply(event)
            seen.append((event, reference.content(), reference.broken()))
    assert builder.message().content == reference.content()
    chance.shuffle(seen)
    for event, content, broken in seen:
        assert builder.broken(event.mark, event.length).content == broken
        assert event.given is None, "an event nobody has read holds a copy of the message"
        assert event.partial is not None
        assert event.partial.content == content


def _play(reference: Reference, step: str, number: int, piece: str) -> StreamEvent | None:
    if step == "start":
        kind = KINDS[number % 3]
        index = reference.start(kind)
        block = ToolCall(id=f"c{index}", name="t") if kind == "toolcall" else None
        return StreamEvent(cast("StreamEventType", f"{kind}_start"), index if number % 2 else None, block=block)
    running = [index for index, ended in enumerate(reference.ended) if ended is None]
    if not running:
        return None
    index = running[number % len(running)]
    kind = reference.kinds[index]
    if step == "delta":
        reference.texts[index] += piece
        unnamed = index == len(reference.kinds) - 1 and number % 2
        return StreamEvent(cast("StreamEventType", f"{kind}_delta"), None if unnamed else index, piece)
    return StreamEvent(cast("StreamEventType", f"{kind}_end"), index, block=reference.end(index, step == "end_told"))


def test_a_message_that_goes_on_from_a_given_one_keeps_what_was_in_it() -> None:
    base = AssistantMessage(
        content=[
            ThinkingContent(thinking="th", signature="s", vendor={"v": 1}),
            ImageContent(url="x"),
            TextContent(text="Hel", vendor={"w": 2}),
        ],
        model_id="m",
    )
    builder = MessageBuilder(base, open_blocks={2})
    delta = StreamEvent("text_delta", delta="lo")
    builder.apply(delta)
    builder.apply(StreamEvent("text_end"))
    assert builder.finished() == base.model_copy(
        update={"content": [*base.content[:2], TextContent(text="Hello", vendor={"w": 2})]}
    )
    assert base.text == "Hel"
    assert delta.content_index == 2
