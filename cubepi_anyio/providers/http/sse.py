"""Bytes to server-sent events. Pure: chunks in, events out, cut wherever they may be.

The format is the WHATWG's (HTML standard, "server-sent events", interpretation of an event stream): lines end with
CR, LF or CRLF and with nothing else, a leading byte order mark is skipped, and an event without data is none.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import MalformedResponse
from .framing import Framing

__all__ = ("SERVER_SENT_EVENTS", "SSEDecoder", "ServerSentEvent")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_EVENT_BYTES = 64 * 1024 * 1024


class ServerSentEvent(NamedTuple):
    """One event: its name (``message`` if the server gave none), its data, and the last id the server gave."""

    event: str
    data: str
    id: str | None = None


class SSEDecoder:
    """Decodes one event stream; feed it the chunks in order, then call ``finish()``.

    The result does not depend on where the chunks were cut, and the cost is linear in the bytes, whatever their sizes.
    """

    __slots__ = ("_after_cr", "_at_start", "_data", "_event", "_id", "_max_event_bytes", "_pending_bytes", "_tail")

    def __init__(self, *, max_event_bytes: int = _MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._at_start: bytes | None = b""
        self._after_cr = False
        self._tail: list[bytes] = []  # the pieces of a line whose end has not come
        self._pending_bytes = 0
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events they complete, in order.

        Bytes that are not UTF-8 become U+FFFD. Raises ``MalformedResponse`` when one event grows beyond
        ``max_event_bytes``, so that a server cannot fill the memory.
        """
        if self._at_start is not None:
            chunk = self._skip_byte_order_mark(chunk)
        if b"\r" in chunk or self._after_cr:
            chunk = self._unify_line_ends(chunk)
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return []
        whole = chunk[:end]
        if self._tail:
            self._tail.append(whole)
            whole = b"".join(self._tail)
            self._tail.clear()
        # Whole lines are decoded at once: a character is never cut by a line end.
        lines = whole.decode("utf-8", "replace").split("\n")
        lines.pop()
        events = self._take_lines(lines)
        if events or not self._data:
            self._pending_bytes = 0
        else:
            self._count(end)
        if end < len(chunk):
            self._keep(chunk[end:])
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Say that no more bytes come, and return the last event if its blank line is missing.

        The standard drops such an event. It is given here, because servers leave the last blank line out; whether
        the event is whole, its reader can tell from the data.
        """
        head, self._at_start = self._at_start or b"", None
        text = (head + b"".join(self._tail)).decode("utf-8", "replace")
        self._tail.clear()
        return self._take_lines([text, ""])

    def _skip_byte_order_mark(self, chunk: bytes) -> bytes:
        head = (self._at_start or b"") + chunk
        if len(head) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(head):
            self._at_start = head
            return b""
        self._at_start = None
        return head.removeprefix(_BYTE_ORDER_MARK)

    def _unify_line_ends(self, chunk: bytes) -> bytes:
        """Turn CR and CRLF into LF. A CR at the end counts at once; an LF that follows it is dropped."""
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # An empty chunk here was the LF of a CRLF, after which the next LF is a line of its own.
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._tail.append(piece)
            self._count(len(piece))

    def _count(self, size_bytes: int) -> None:
        self._pending_bytes += size_bytes
        if self._pending_bytes > self._max_event_bytes:
            raise MalformedResponse(f"the server sent an event longer than {self._max_event_bytes} bytes")

    def _take_lines(self, lines: list[str]) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    text = data[0] if len(data) == 1 else "\n".join(data)
                    events.append(ServerSentEvent(self._event or "message", text, self._id))
                    data.clear()
                self._event = ""
            elif line.startswith("data: "):
                data.append(line[6:])
            elif line.startswith("event: "):
                self._event = line[7:]
            else:
                self._take_field(line)
        return events

    def _take_field(self, line: str) -> None:
        """Take a line that is not written as servers usually do; comments and unknown fields are passed over."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case _:
                pass


SERVER_SENT_EVENTS: Framing[ServerSentEvent] = Framing(
    "a stream of events", "an event", ("text/event-stream",), SSEDecoder
)
"""What most vendors send."""
