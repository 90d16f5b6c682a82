"""A message under construction: stream events in, the message as it stands (or stood) out. Pure.

A block's text grows in one append-only buffer, and an event remembers only how long the buffer was. So an
event costs O(delta), holds no copy of the message, and a snapshot of any earlier moment can be cut out of the
buffers when somebody asks. Blocks may grow by turns (parallel calls of some vendors do): the builder notes whose
turn began at which event and each block how long it was then, which is all that is needed to know how long the
*other* blocks were at a given event. What a later event says of a block is kept apart from what was known before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from io import StringIO
from typing import Any, cast

from pydantic_core import from_json

from ..events.stream import StreamEvent
from ..types.content import AssistantContent, TextContent, ThinkingContent, ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage

__all__ = ("MessageBuilder", "is_sendable", "parse_arguments", "stop_reason_of")


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Read the arguments of a call, strictly: the object, or ``{}`` and the text that is none.

    Nothing at all and ``null`` are how some vendors write a call without arguments.
    """
    stripped = text.strip()
    if not stripped or stripped == "null":
        return {}, None
    try:
        value = from_json(stripped, allow_inf_nan=False)
    except ValueError:
        return {}, text
    parsed = _as_object(value)
    return (parsed, None) if parsed is not None else ({}, text)


def _as_object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def is_sendable(block: AssistantContent) -> bool:
    """Whether a block of a broken message may stay in the transcript.

    Vendors refuse empty text and thinking without its signature, so a message that was cut keeps neither; nor a call
    whose arguments are no JSON object, because they may be what was cut.
    """
    match block:
        case TextContent():
            return bool(block.text.strip())
        case ThinkingContent():
            return block.redacted is not None or bool(block.signature)
        case ToolCall():
            return block.invalid_arguments is None
        case _:
            return True


def stop_reason_of(said: str, content: Sequence[AssistantContent]) -> str:
    """Why a message ended whose provider ``said`` nothing that agrees with its ``content``."""
    return "tool_use" if said == "stop" and any(block.type == "tool_call" for block in content) else said


_FOLD_LENGTH = 1024
"""Characters that a growing block takes in before they become one string."""


class _Block:
    """One block while it grows, and how it was at each of its events."""

    __slots__ = (
        "_buffer",
        "_folded",
        "_preview",
        "_preview_length",
        "_seed_length",
        "delta_type",
        "ended_at",
        "final",
        "fold_at",
        "kind",
        "known",
        "length",
        "past",
        "started_at",
        "turns",
    )

    def __init__(self, kind: str, known: AssistantContent | None, started_at: int) -> None:
        self.kind = kind
        self.delta_type: str = f"{kind}_delta"
        self.known = known
        self._buffer: StringIO | None = None
        self._folded: list[str] = []
        """The text before that of the buffer."""
        self._seed_length = self.length = len(_text_in(known))
        self.fold_at = self.length + _FOLD_LENGTH
        self.started_at = started_at
        self.ended_at: int | None = None
        self.final: AssistantContent | None = None
        self.past: tuple[tuple[int, int, AssistantContent | None], ...] = ()
        """(ended at, went on at, what it had ended as) for a block that grew again after its end."""
        self.turns: list[tuple[int, int]] = []
        """(mark, length before it) for each time the block became the growing one."""
        self._preview: dict[str, Any] = {}
        self._preview_length = 0

    @property
    def write(self) -> Callable[[str], int]:
        """Appends to the text. Many blocks, whole calls for one, never grow and need no buffer."""
        if self._buffer is None:
            self._buffer = StringIO()
            self._buffer.write(_text_in(self.known))
        return self._buffer.write

    def fold(self) -> Callable[[str], int]:
        """Make one string of what the buffer holds, and return the ``write`` of the next one.

        A ``StringIO`` keeps every piece that it is given, which is more than ten times the text of small deltas.
        """
        if self._buffer is not None:
            self._folded.append(self._buffer.getvalue())
        self.fold_at = self.length + _FOLD_LENGTH
        self._buffer = StringIO()
        return self._buffer.write

    @property
    def _text(self) -> str:
        if self._buffer is None:
            return _text_in(self.known)
        if rest := self._buffer.getvalue():
            # Emptied, not replaced: the builder holds its ``write``.
            self._buffer.seek(0)
            self._buffer.truncate()
            self._folded = ["".join((*self._folded, rest))]
        return "".join(self._folded)

    def end(self, mark: int, told: AssistantContent | None) -> None:
        """Fix the block as what the deltas said and ``told``, the block of its ``X_end`` event, knows besides."""
        self.final, self.ended_at = self.finish(told), mark

    def reopen(self, mark: int) -> None:
        """Let an ended block grow again: malformed, but no reason to lose what comes."""
        assert self.ended_at is not None
        self.past += ((self.ended_at, mark, self.final),)
        self.final, self.ended_at = None, None

    def final_at(self, mark: int) -> AssistantContent | None:
        """What the block had ended as before event ``mark``; ``None`` if it was open then."""
        if self.ended_at is not None and self.ended_at <= mark:
            return self.final
        return next((final for ended_at, until, final in self.past if ended_at <= mark < until), None)

    def resting_length_at(self, mark: int) -> int:
        """How long the block was at event ``mark``, while another one grew: what it had when its next turn began."""
        turn = bisect_right(self.turns, mark, key=_mark_of)
        return self.turns[turn][1] if turn < len(self.turns) else self.length

    def at_length(self, length: int) -> AssistantContent | None:
        """The block while it was ``length`` long and still open; ``None`` if nothing is known of it yet."""
        known = self.known
        if known is not None and length == self._seed_length:
            return known
        if self.kind == "text":
            return TextContent(text=self._text[:length], vendor=_vendor_of(known))
        if self.kind == "thinking":
            return ThinkingContent(thinking=self._text[:length], vendor=_vendor_of(known))
        return known

    def finish(self, told: AssistantContent | None) -> AssistantContent | None:
        """The block as it is when it ends; ``told`` has the last word on everything it says."""
        block = told if told is not None else self.known
        if self.kind == "text":
            if told is not None and told.type == "text" and told.text:
                return told
            return TextContent(text=self._text, vendor=_vendor_of(block))
        if self.kind == "thinking":
            if block is None or block.type != "thinking":
                return ThinkingContent(thinking=self._text)
            if block is told and block.thinking:
                return block
            return block.model_copy(update={"thinking": self._text})
        if block is None or block.type != "tool_call" or block.arguments or block.invalid_arguments is not None:
            return block
        if block is told and "arguments" in block.model_fields_set:
            return block  # told to have none
        arguments, invalid = parse_arguments(self._text)
        return block.model_copy(update={"arguments": arguments, "invalid_arguments": invalid})

    def preview_at(self, length: int) -> dict[str, Any]:
        """The best reading of the first ``length`` characters; read in order, parsed anew after a tenth of growth."""
        if length < self._preview_length:
            return _lenient_object(self._text[:length])
        if length and length * 10 >= self._preview_length * 11:
            self._preview, self._preview_length = _lenient_object(self._text[:length]), length
        return self._preview


def _mark_of(entry: tuple[int, int]) -> int:
    return entry[0]


# Blocks are told apart by their ``type``, here for every event: pydantic's classes take long to say what is theirs.


def _text_in(block: AssistantContent | None) -> str:
    if block is None:
        return ""
    if block.type == "text":
        return block.text
    return block.thinking if block.type == "thinking" else ""


def _vendor_of(block: AssistantContent | None) -> JsonObject | None:
    return block.vendor if block is not None and (block.type == "text" or block.type == "thinking") else None


class MessageBuilder:
    """Applies events to a message, in O(delta) each, and remembers how it looked at each of them."""

    __slots__ = ("_blocks", "_current", "_current_index", "_header", "_mark", "_positions", "_read", "_turns", "_write")

    def __init__(self, base: AssistantMessage | None = None, *, open_blocks: Collection[int] = ()) -> None:
        """Start from ``base``, whose blocks have ended except those at ``open_blocks``, or from an empty message."""
        self._header = AssistantMessage() if base is None else base
        self._blocks: list[_Block] = []
        self._current: _Block | None = None
        self._write: Callable[[str], int] = len  # of ``_current``, once there is one
        self._current_index = -1
        self._mark = 0
        self._turns: list[tuple[int, int]] = []
        """(mark, block index) for each change of the growing block."""
        self._positions: dict[int, int] = {}
        """Where blocks stand whose provider counts otherwise than we do (gaps, or each kind for itself)."""
        self._read: tuple[int, int, AssistantMessage] | None = None
        """(mark, length, message) of the snapshot that was asked for last."""
        for index, content in enumerate(self._header.content):
            block = _Block(content.type.replace("_", ""), content, 0)
            if index not in open_blocks:
                block.final, block.ended_at = content, 0
            self._blocks.append(block)

    def apply(self, event: StreamEvent) -> None:
        """Take in one event and bind it, so that its ``partial`` can be asked for later."""
        self._mark = mark = self._mark + 1
        delta = event.delta
        if delta is not None:
            index = event.content_index
            block = self._current
            if block is None or index != self._current_index or event.type != block.delta_type:
                block = self._turn_to(event)
            self._write(delta)
            block.length = event.length = length = block.length + len(delta)
            if length > block.fold_at:
                self._write = block.fold()
        else:
            if event.type not in ("start", "done", "error"):
                self._open_or_close(event)
            event.length = self._current.length if self._current is not None else 0
        event.source = self
        event.mark = mark

    def open_blocks(self) -> frozenset[int]:
        """The indices of the blocks that have not ended."""
        return frozenset(index for index, block in enumerate(self._blocks) if block.ended_at is None)

    def _turn_to(self, event: StreamEvent) -> _Block:
        """Make the block of a delta the growing one, opening it if the provider did not say so before."""
        kind = event.type.partition("_")[0]
        index = self._index_of(event, kind)
        block = self._blocks[index] if index is not None else self._begin(event, kind)
        if block is self._current:
            event.content_index = self._current_index
            return block
        if index is not None:
            event.content_index = index
            if block.ended_at is not None:
                block.reopen(self._mark)
        self._current, self._current_index = block, event.content_index or 0
        self._write = block.write
        self._turns.append((self._mark, self._current_index))
        block.turns.append((self._mark, block.length))
        return block

    def _index_of(self, event: StreamEvent, kind: str) -> int | None:
        """Where the block of ``event`` stands; ``None`` for one that has not been announced.

        An event without an index goes on with the last block, if that is of its kind and open.
        """
        named = event.content_index
        candidates = (len(self._blocks) - 1,) if named is None else (self._positions.get(named, named), named)
        for index in candidates:
            if 0 <= index < len(self._blocks) and self._blocks[index].kind == kind:
                return index if named is not None or self._blocks[index].ended_at is None else None
        return None

    def _begin(self, event: StreamEvent, kind: str) -> _Block:
        """Append a block, and tell the event where it stands."""
        index = len(self._blocks)
        if event.content_index is not None and event.content_index != index:
            self._positions[event.content_index] = index
        event.content_index = index
        block = _Block(kind, event.block, self._mark)
        self._blocks.append(block)
        return block

    def _open_or_close(self, event: StreamEvent) -> None:
        kind, _, step = event.type.partition("_")
        if step == "start":
            self._begin(event, kind)
            return
        if event.content_index is not None:
            index = self._index_of(event, kind)
        else:  # it ends the last one of its kind that has not ended
            open_ones = [i for i, b in enumerate(self._blocks) if b.kind == kind and b.ended_at is None]
            index = open_ones[-1] if open_ones else None
        if index is None:
            if event.block is None:
                return  # the end of nothing
            self._begin(event, kind).end(self._mark, event.block)
            return
        event.content_index = index
        block = self._blocks[index]
        block.end(self._mark, event.block)
        if block is self._current:
            self._current, self._current_index = None, -1

    def snapshot(self, mark: int, length: int) -> AssistantMessage:
        """The message as it stood at event ``mark``, when the growing block was ``length`` long.

        O(message), unless it is the one that was asked for last.
        """
        if self._read is None or self._read[:2] != (mark, length):
            message = self._header.model_copy(update={"content": self._content_at(mark, length)})
            self._read = mark, length, message
        return self._read[2]

    def message(self) -> AssistantMessage:
        """The message as it stands."""
        return self.snapshot(self._mark, self._current.length if self._current is not None else 0)

    def finished(self, *, stop_reason: str | None = None) -> AssistantMessage:
        """The message after its last event; blocks the provider did not end are ended now."""
        content = [block.final if block.final is not None else block.finish(None) for block in self._blocks]
        kept = [block for block in content if block is not None]
        closed = stop_reason or stop_reason_of(self._header.stop_reason, kept)
        return self._header.model_copy(update={"content": kept, "stop_reason": closed})

    def broken(self, mark: int, length: int) -> AssistantMessage:
        """The message of event ``mark`` as far as it may be kept when it will never be finished.

        Text and signed thinking stay; calls and vendors' blocks that had not ended go, because they may be cut.
        """
        content = self._content_at(mark, length, keep_cut=False)
        return self._header.model_copy(update={"content": [block for block in content if is_sendable(block)]})

    def _content_at(self, mark: int, length: int, *, keep_cut: bool = True) -> list[AssistantContent]:
        growing = self._growing_at(mark)
        content: list[AssistantContent] = []
        for index, block in enumerate(self._blocks):
            if block.started_at > mark:
                break
            seen = block.final_at(mark)
            if seen is None and (keep_cut or block.kind == "text" or block.kind == "thinking"):
                seen = block.at_length(length if index == growing else block.resting_length_at(mark))
            if seen is not None:
                content.append(seen)
        return content

    def _growing_at(self, mark: int) -> int:
        """The index of the block whose turn it was at event ``mark``; -1 before the first delta."""
        turn = bisect_right(self._turns, mark, key=_mark_of) - 1
        return self._turns[turn][1] if turn >= 0 else -1

    def preview_arguments(self, content_index: int, mark: int, length: int) -> dict[str, Any]:
        """The best reading of a call's arguments as they stood at event ``mark``; ``{}`` for any other block."""
        block = self._blocks[content_index]
        final = block.final_at(mark)
        if isinstance(final, ToolCall):
            return final.arguments
        if block.kind != "toolcall":
            return {}
        grows = content_index == self._growing_at(mark)
        return block.preview_at(length if grows else block.resting_length_at(mark))


def _lenient_object(text: str) -> dict[str, Any]:
    try:
        return _as_object(from_json(text, allow_partial="trailing-strings")) or {}
    except ValueError:
        return {}
