"""Bytes to JSON objects, one a line. Pure: chunks in, objects out, cut wherever they may be.

Lines end with LF or CRLF; blank lines are passed over, and the last line may lack its end ("JSON Lines", and NDJSON,
which is the same but for its name).
"""

from __future__ import annotations

from typing import cast

from pydantic_core import from_json

from ...errors import MalformedResponse
from ...types.json import JsonObject
from .framing import Framing

__all__ = ("JSON_LINES", "JsonLinesDecoder")

_MAX_LINE_BYTES = 64 * 1024 * 1024


class JsonLinesDecoder:
    """Decodes one body, in time linear in its bytes, whatever the sizes of the chunks."""

    __slots__ = ("_broken", "_max_line_bytes", "_tail", "_tail_bytes")

    def __init__(self, *, max_line_bytes: int = _MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._tail: list[bytes] = []  # the pieces of a line whose end has not come
        self._tail_bytes = 0
        self._broken: MalformedResponse | None = None
        """What is wrong with the line after those that were given last."""

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Take the next bytes and return the objects of the lines they complete.

        Raises ``MalformedResponse`` for a line that is no JSON object or longer than ``max_line_bytes``.
        """
        if self._broken is not None:
            raise self._broken
        first, end, rest = chunk.partition(b"\n")
        self._tail.append(first)
        self._tail_bytes += len(first)
        if end:
            *whole, last = rest.split(b"\n")
            lines = [b"".join(self._tail), *whole]
            self._tail, self._tail_bytes = [last], len(last)
        else:
            lines = []
        objects: list[JsonObject] = []
        try:
            for line in lines:
                self._check_length(len(line))
                if line.strip():
                    objects.append(_object(line))
            self._check_length(self._tail_bytes)
        except MalformedResponse as error:
            if not objects:
                raise
            self._broken = error
        return objects

    def finish(self) -> list[JsonObject]:
        """Return the object of the last line if its end is missing. Raises like ``feed``."""
        if self._broken is not None:
            raise self._broken
        line = b"".join(self._tail)
        self._tail, self._tail_bytes = [], 0
        return [_object(line)] if line.strip() else []

    def _check_length(self, size_bytes: int) -> None:
        if size_bytes > self._max_line_bytes:
            raise MalformedResponse(f"the server sent a line longer than {self._max_line_bytes} bytes")


def _object(line: bytes) -> JsonObject:
    try:
        value = from_json(line)
    except ValueError as error:
        raise MalformedResponse(f"a line of the answer is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedResponse(f"a line of the answer is {type(value).__name__} where a JSON object belongs")
    return cast("JsonObject", value)


JSON_LINES: Framing[JsonObject] = Framing(
    "JSON lines", "a line", ("application/x-ndjson", "application/jsonl", "application/json-lines"), JsonLinesDecoder
)
"""What Ollama's own API sends, for one."""
