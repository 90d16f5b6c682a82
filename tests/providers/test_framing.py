"""Bytes to JSON lines, and to the frames of AWS event streams, cut anywhere."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio.errors import MalformedResponse
from cubepi_anyio.providers.http.aws_frames import AWS_EVENT_STREAM, AwsFrame, AwsFrameDecoder
from cubepi_anyio.providers.http.framing import Framing
from cubepi_anyio.providers.http.json_lines import JSON_LINES, JsonLinesDecoder


def decode(framing: Framing[Any], *chunks: bytes) -> list[Any]:
    """The frames, and at the end the text of the error if there was one."""
    decoder, frames = framing.decoder(), list[Any]()
    try:
        for chunk in chunks:
            frames += decoder.feed(chunk)
        frames += decoder.finish()
    except MalformedResponse as error:
        frames.append(str(error))
    return frames


def everywhere_alike(framing: Framing[Any], wire: bytes) -> list[Any]:
    """The frames of ``wire``, which are the same wherever it is cut."""
    frames = decode(framing, wire)
    assert decode(framing, *(wire[i : i + 1] for i in range(len(wire)))) == frames
    for cut in range(len(wire) + 1):
        assert decode(framing, wire[:cut], b"", wire[cut:]) == frames, cut
    return frames


# --- JSON lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (b'{"a":1}\n{"b":2}\n', [{"a": 1}, {"b": 2}]),
        (b'{"a":1}\r\n\r\n \n{"b":2}\r\n', [{"a": 1}, {"b": 2}]),
        (b'{"a":1}\n{"b":2}', [{"a": 1}, {"b": 2}]),
        ('{"é":"🍏\u2028"}\n'.encode(), [{"é": "🍏\u2028"}]),
        (b"", []),
        (b"\n\n", []),
        (b'{"a":1}\n[1]\n{"b":2}\n', [{"a": 1}, "a line of the answer is list where a JSON object belongs"]),
    ],
)
def test_json_lines_are_decoded_the_same_wherever_they_are_cut(wire: bytes, frames: list[Any]) -> None:
    assert everywhere_alike(JSON_LINES, wire) == frames


@pytest.mark.parametrize("wire", [b'{"a":\n', b'{"a":1}\n{"a"', b"\xff\n", b"upstream error\n"])
def test_a_line_that_is_no_json_is_refused(wire: bytes) -> None:
    *before, text = everywhere_alike(JSON_LINES, wire)
    assert "a line of the answer is not valid JSON" in text
    assert before == ([{"a": 1}] if wire.startswith(b'{"a":1}') else [])


def test_a_line_that_never_ends_is_refused_at_a_bound() -> None:
    for wire in (b'{"a":"' + b"x" * 200, b'{"a":"' + b"x" * 200 + b'"}\n'):
        with pytest.raises(MalformedResponse, match="longer than 100 bytes"):
            JsonLinesDecoder(max_line_bytes=100).feed(wire)
    decoder = JsonLinesDecoder(max_line_bytes=100)
    assert sum(len(decoder.feed(b'{"a": 1}\n{"b"' if i % 2 else b": 2}\n")) for i in range(1, 101)) == 100


@given(st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=9), max_size=3), max_size=5))
def test_objects_that_were_written_are_read(objects: list[dict[str, Any]]) -> None:
    wire = "".join(json.dumps(each) + "\n" for each in objects).encode()
    assert decode(JSON_LINES, *(wire[i : i + 3] for i in range(0, len(wire), 3))) == objects


# --- frames of AWS ---------------------------------------------------------------------------


def header(name: str, kind: int, value: bytes) -> bytes:
    return bytes([len(name.encode())]) + name.encode() + bytes([kind]) + value


def text_header(name: str, value: str) -> bytes:
    return header(name, 7, struct.pack(">H", len(value.encode())) + value.encode())


def aws_frame(headers: bytes, payload: bytes) -> bytes:
    """A frame as AWS writes it, by the table of its guide."""
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return body + struct.pack(">I", crc32(body))


EVENT = aws_frame(text_header(":message-type", "event") + text_header(":event-type", "chunk"), b'{"bytes":"aGk="}')
EMPTY = aws_frame(b"", b"")

# The example of a frame without headers in the tests of AWS's own SDKs.
KNOWN = bytes.fromhex("0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936")


def test_a_known_frame_is_read() -> None:
    assert decode(AWS_EVENT_STREAM, KNOWN) == [AwsFrame({}, b"{'foo':'bar'}")]


def test_frames_are_decoded_the_same_wherever_they_are_cut() -> None:
    headers: Mapping[str, Any] = {":message-type": "event", ":event-type": "chunk"}
    first, second = AwsFrame(headers, b'{"bytes":"aGk="}'), AwsFrame({}, b"")
    assert everywhere_alike(AWS_EVENT_STREAM, EVENT + EMPTY + EVENT) == [first, second, first]


def test_a_header_of_every_type_is_read() -> None:
    number = UUID("01234567-89ab-cdef-0123-456789abcdef")
    headers = (
        header("yes", 0, b"")
        + header("no", 1, b"")
        + header("byte", 2, b"\xff")
        + header("short", 3, struct.pack(">h", -300))
        + header("integer", 4, struct.pack(">i", -70_000))
        + header("long", 5, struct.pack(">q", -(2**40)))
        + header("bytes", 6, struct.pack(">H", 2) + b"\x00\xff")
        + text_header("täxt", "é")
        + header("time", 8, struct.pack(">q", 1_500))
        + header("id", 9, number.bytes)
    )
    (frame,) = decode(AWS_EVENT_STREAM, aws_frame(headers, b"x"))
    assert frame.headers == {
        "yes": True,
        "no": False,
        "byte": -1,
        "short": -300,
        "integer": -70_000,
        "long": -(2**40),
        "bytes": b"\x00\xff",
        "täxt": "é",
        "time": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        "id": number,
    }
    assert frame.payload == b"x"


def test_a_flipped_bit_is_never_a_frame() -> None:
    for place in range(len(EVENT)):
        for bit in (0x01, 0x80):
            wire = bytearray(EVENT)
            wire[place] ^= bit
            frames = decode(AWS_EVENT_STREAM, EVENT, bytes(wire), EVENT)
            assert frames[0] == decode(AWS_EVENT_STREAM, EVENT)[0]
            assert [type(each) for each in frames[1:]] == [str], (place, bit)


@pytest.mark.parametrize("cut", [1, 11, 12, 13, len(EVENT) - 1])
def test_a_frame_that_is_cut_off_is_refused_at_the_end(cut: int) -> None:
    decoder = AwsFrameDecoder()
    assert decoder.feed(EVENT + EVENT[:cut]) == decode(AWS_EVENT_STREAM, EVENT)
    with pytest.raises(MalformedResponse, match=f"{cut} bytes of"):
        decoder.finish()


@pytest.mark.parametrize(
    ("total_bytes", "headers_bytes"), [(15, 0), (16, 1), (0, 0), (2**32 - 1, 0), (30 * 2**20, 0), (2**24, 2**18)]
)
def test_lengths_that_cannot_be_are_refused_at_once(total_bytes: int, headers_bytes: int) -> None:
    lengths = struct.pack(">II", total_bytes, headers_bytes)
    with pytest.raises(MalformedResponse, match="cannot be"):
        AwsFrameDecoder().feed(lengths + struct.pack(">I", crc32(lengths)))


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01",
        b"\x05ab",
        b"\x01\xff\x00",
        header("a", 10, b""),
        header("a", 3, b"\x00"),
        header("a", 7, b"\x00\x09ab"),
        header("a", 8, struct.pack(">q", 2**62)),
    ],
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    with pytest.raises(MalformedResponse, match="the headers of a frame cannot be read"):
        AwsFrameDecoder().feed(aws_frame(headers, b""))


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=40)), max_size=4), st.data())
def test_frames_that_were_written_are_read_however_they_are_chopped(
    written: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    wire = b"".join(aws_frame(text_header("k", text), payload) for text, payload in written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    chunks = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert decode(AWS_EVENT_STREAM, *chunks) == [AwsFrame({"k": text}, payload) for text, payload in written]


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_any_bytes_are_an_error_or_nothing(chunks: list[bytes]) -> None:
    for framing in (AWS_EVENT_STREAM, JSON_LINES):
        assert decode(framing, *chunks) == decode(framing, b"".join(chunks))
