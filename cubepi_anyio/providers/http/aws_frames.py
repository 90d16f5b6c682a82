"""Bytes to the binary frames of AWS event streams. Pure: chunks in, frames out, cut wherever they may be.

A frame is, with all numbers big-endian ("Event stream encoding" in the guides of Amazon Transcribe and Bedrock)::

    total length (4)  headers length (4)  CRC32 of these 8 (4)  headers  payload  CRC32 of all before it (4)
    header: name length (1)  name  type (1)  value, of a length that the type says or two bytes before it tell

Both checksums are checked, the first before the lengths are believed: a flipped bit is ``MalformedResponse``, never a
frame that waits for gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zlib import crc32

from ...errors import MalformedResponse
from .framing import Framing

__all__ = ("AWS_EVENT_STREAM", "AwsFrame", "AwsFrameDecoder", "AwsHeaderValue")

AwsHeaderValue = bool | int | bytes | str | datetime | UUID
"""The value of a header: its ten types as those of Python."""

_PRELUDE_BYTES = 12
_CHECKSUM_BYTES = 4
_MAX_HEADERS_BYTES = 128 * 1024
_MAX_FRAME_BYTES = 24 * 1024 * 1024
"""What AWS allows: 128 KiB of headers and 24 MiB together."""

_INTEGER_BYTES = {2: 1, 3: 2, 4: 4, 5: 8, 8: 8}
"""Types whose value is a signed number: byte, short, integer, long, and milliseconds since the epoch."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AwsFrame:
    """One frame. ``:message-type`` says whether it is an event, an exception or an error; ``:event-type`` which."""

    headers: Mapping[str, AwsHeaderValue]
    payload: bytes


class AwsFrameDecoder:
    """Decodes one body, in time linear in its bytes, whatever the sizes of the chunks."""

    __slots__ = ("_broken", "_buffer", "_wanted_bytes")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted_bytes = _PRELUDE_BYTES
        """How much must be there before there is anything to decide."""
        self._broken: MalformedResponse | None = None
        """What is wrong with the frame after those that were given last."""

    def feed(self, chunk: bytes) -> list[AwsFrame]:
        """Take the next bytes and return the frames they complete. Raises ``MalformedResponse`` for broken ones."""
        if self._broken is not None:
            raise self._broken
        self._buffer += chunk
        frames: list[AwsFrame] = []
        begin = 0
        try:
            while len(self._buffer) - begin >= self._wanted_bytes:
                total_bytes, headers_bytes = _lengths(bytes(self._buffer[begin : begin + _PRELUDE_BYTES]))
                self._wanted_bytes = total_bytes
                if len(self._buffer) - begin >= total_bytes:
                    frames.append(_frame(bytes(self._buffer[begin : begin + total_bytes]), headers_bytes))
                    begin += total_bytes
                    self._wanted_bytes = _PRELUDE_BYTES
        except MalformedResponse as error:
            if not frames:
                raise
            self._broken = error
        del self._buffer[:begin]
        return frames

    def finish(self) -> list[AwsFrame]:
        """Return nothing more. Raises ``MalformedResponse`` if a frame has begun and not ended."""
        if self._broken is not None:
            raise self._broken
        if self._buffer:
            raise MalformedResponse(f"{len(self._buffer)} bytes of {self._wanted_bytes} have come")
        return []


def _lengths(prelude: bytes) -> tuple[int, int]:
    """The length of a frame and of its headers, checked against their checksum and the limits."""
    total_bytes, headers_bytes, checksum = struct.unpack(">III", prelude)
    if crc32(prelude[:8]) != checksum:
        raise MalformedResponse("the checksum of a frame's lengths is wrong")
    around_bytes = _PRELUDE_BYTES + _CHECKSUM_BYTES
    if headers_bytes > _MAX_HEADERS_BYTES or not headers_bytes + around_bytes <= total_bytes <= _MAX_FRAME_BYTES:
        raise MalformedResponse(f"a frame of {total_bytes} bytes with {headers_bytes} of headers cannot be")
    return total_bytes, headers_bytes


def _frame(frame: bytes, headers_bytes: int) -> AwsFrame:
    body, checksum = frame[:-_CHECKSUM_BYTES], frame[-_CHECKSUM_BYTES:]
    if crc32(body) != int.from_bytes(checksum, "big"):
        raise MalformedResponse("the checksum of a frame is wrong")
    payload_begin = _PRELUDE_BYTES + headers_bytes
    try:
        headers = _headers(body[_PRELUDE_BYTES:payload_begin])
    except (IndexError, ValueError, OverflowError) as error:
        raise MalformedResponse(f"the headers of a frame cannot be read: {error}") from error
    return AwsFrame(headers, body[payload_begin:])


def _headers(data: bytes) -> dict[str, AwsHeaderValue]:
    """The headers by name. Raises ``IndexError`` or ``ValueError`` for what is none."""
    headers: dict[str, AwsHeaderValue] = {}
    place = 0

    def take(size_bytes: int) -> bytes:
        nonlocal place
        if place + size_bytes > len(data):
            raise ValueError(f"{size_bytes} bytes are wanted where {len(data) - place} are left")
        place += size_bytes
        return data[place - size_bytes : place]

    while place < len(data):
        name = take(take(1)[0]).decode()
        kind = take(1)[0]
        if kind in (0, 1):
            headers[name] = kind == 0
        elif kind in _INTEGER_BYTES:
            number = int.from_bytes(take(_INTEGER_BYTES[kind]), "big", signed=True)
            headers[name] = _EPOCH + timedelta(milliseconds=number) if kind == 8 else number
        elif kind in (6, 7):
            value = take(int.from_bytes(take(2), "big"))
            headers[name] = value.decode() if kind == 7 else value
        elif kind == 9:
            headers[name] = UUID(bytes=take(16))
        else:
            raise ValueError(f"there is no type {kind} of header")
    return headers


AWS_EVENT_STREAM: Framing[AwsFrame] = Framing(
    "an AWS event stream", "a frame", ("application/vnd.amazon.eventstream",), AwsFrameDecoder
)
"""What Bedrock's streaming calls send."""
