"""Bytes to server-sent events, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import MalformedResponse
from cubepi_anyio.providers.http.sse import ServerSentEvent, SSEDecoder


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.finish()


def message(data: str) -> ServerSentEvent:
    return ServerSentEvent("message", data)


CASES = {
    "LF": (b"event: a\ndata: 1\n\ndata: 2\n\n", [ServerSentEvent("a", "1"), message("2")]),
    "CR": (b"event: a\rdata: 1\r\rdata: 2\r\r", [ServerSentEvent("a", "1"), message("2")]),
    "CRLF": (b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", [ServerSentEvent("a", "1"), message("2")]),
    "mixed line ends": (b"data: 1\r\ndata: 2\rdata: 3\n\r\n\rdata: 4\n\n", [message("1\n2\n3"), message("4")]),
    "a CR inside the data ends the line": (b'data: {"a":\rdata: 1}\r\n\r\n', [message('{"a":\n1}')]),
    "byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [message("1")]),
    "a mark later on is text": (b"data: \xef\xbb\xbf\n\n", [message("\ufeff")]),
    "comments": (b": ping\n\n:\n\n:x\ndata: 1\n: y\n\n", [message("1")]),
    "several data lines": (b"data: a\ndata:\ndata: b\n\n", [message("a\n\nb")]),
    "no space after the colon": (b"event:a\ndata:{}\n\n", [ServerSentEvent("a", "{}")]),
    "one space is taken, not two": (b"data:  a\n\n", [message(" a")]),
    "no colon": (b"data\n\n", [message("")]),
    "an event without data is none, and its name is forgotten": (b"event: a\n\ndata: 1\n\n", [message("1")]),
    "the name is that of the last event line": (b"event: a\nevent: b\ndata: 1\n\n", [ServerSentEvent("b", "1")]),
    "ids stay": (
        b"id: 7\ndata: 1\n\ndata: 2\n\nid: a\x00b\ndata: 3\n\n",
        [
            ServerSentEvent("message", "1", "7"),
            ServerSentEvent("message", "2", "7"),
            ServerSentEvent("message", "3", "7"),
        ],
    ),
    "unknown fields": (b"retry: 5\nfoo: bar\nDATA: x\ndata : y\ndata: 1\n\n", [message("1")]),
    "what Unicode calls line ends are none": (
        "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n\n".encode(),
        [message("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg")],
    ),
    "characters of every length": ("data: é☃🍏\n\n".encode(), [message("é☃🍏")]),
    "bytes that are no UTF-8": (b"data: a\xffb\n\n", [message("a\ufffdb")]),
    "blank lines alone": (b"\n\n\r\n\r\n\r\r", []),
    "nothing": (b"", []),
    "the last event without its blank line": (b"data: 1\n\ndata: 2\n", [message("1"), message("2")]),
    "the last line without its end": (b"data: 1\n\nevent: a\ndata: 2", [message("1"), ServerSentEvent("a", "2")]),
    "half a byte order mark": (b"\xef\xbb", []),
}


@pytest.mark.parametrize(("wire", "expected"), CASES.values(), ids=CASES)
def test_a_stream_is_decoded_the_same_wherever_it_is_cut(wire: bytes, expected: list[ServerSentEvent]) -> None:
    assert decode(wire) == expected
    assert decode(*(wire[i : i + 1] for i in range(len(wire)))) == expected
    for cut in range(len(wire) + 1):
        assert decode(wire[:cut], wire[cut:]) == expected, cut
        assert decode(wire[:cut], b"", wire[cut:]) == expected, cut


LINE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
EVENTS = st.lists(st.tuples(LINE_TEXT, st.lists(LINE_TEXT, min_size=1, max_size=3)), max_size=6)


@given(events=EVENTS, line_end=st.sampled_from(["\n", "\r", "\r\n"]), mark=st.booleans(), data=st.data())
def test_what_was_written_is_read_however_it_is_chopped(
    events: list[tuple[str, list[str]]], line_end: str, mark: bool, data: st.DataObject
) -> None:
    lines: list[str] = []
    for name, texts in events:
        lines += [f"event: {name}", ": alive", *(f"data: {text}" for text in texts), ""]
    wire = ("\ufeff" if mark else "").encode() + "".join(line + line_end for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    chunks = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert decode(*chunks) == [ServerSentEvent(name or "message", "\n".join(texts)) for name, texts in events]


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_any_bytes_give_the_same_events_in_one_piece(chunks: list[bytes]) -> None:
    assert decode(*chunks) == decode(b"".join(chunks))


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 1\r\r") == [message("1")]
    assert decoder.feed(b"\ndata: 2\n") == []
    assert decoder.feed(b"\n") == [message("2")]


def test_a_large_event_in_small_pieces_arrives_whole() -> None:
    text = "0123456789" * 100_000
    wire = f"data: {text}\n\n".encode()
    assert decode(*(wire[i : i + 7] for i in range(0, len(wire), 7))) == [message(text)]


@pytest.mark.parametrize("wire", [b"data: " + b"x" * 200, b"data: x\n" * 25], ids=["line", "lines"])
def test_an_event_that_never_ends_is_refused_at_a_bound(wire: bytes) -> None:
    decoder = SSEDecoder(max_event_bytes=100)
    with pytest.raises(MalformedResponse, match="longer than 100 bytes"):
        for byte in wire:
            decoder.feed(bytes([byte]))


def test_many_small_events_or_comments_are_no_large_one() -> None:
    decoder = SSEDecoder(max_event_bytes=20)
    assert [decoder.feed(b": still here\n\n") for _ in range(10)] == [[]] * 10
    assert sum(len(decoder.feed(b"data: 1\n\ndata: 2\n\nda" if i % 2 else b"ta: 3\n\n")) for i in range(1, 101)) == 150
