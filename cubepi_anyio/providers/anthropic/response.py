"""The events of Anthropic's Messages API, written into a draft. Pure.

An answer is ``message_start``; for each block ``content_block_start``, ``content_block_delta``\\*,
``content_block_stop``; ``message_delta`` with the stop reason; ``message_stop``. ``ping`` and events we do not know
may stand anywhere, an ``error`` may end it at any point ("Streaming Messages" in Anthropic's API reference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import from_json, to_json

from ...errors import IncompleteStream, MalformedResponse
from ...stream.draft import DraftWriter
from ...types.content import AssistantContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ...types.json import JsonObject
from ...types.usage import Usage
from ..http.classify import classify_error
from ..http.sse import ServerSentEvent

__all__ = ("STOP_REASONS", "AnthropicReader")

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
"""The vendor's stop reasons in our words; others, as ``pause_turn``, are kept as they are."""

_COUNTERS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
_TEXT_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_STANDARD_CALL_FIELDS = ("type", "id", "name", "input")


class _Block:
    """One block while it arrives."""

    __slots__ = ("deltas", "grown", "index", "input_parts", "signature", "start")

    def __init__(self, index: int, start: JsonObject, deltas: tuple[str, ...]) -> None:
        self.index = index
        """Its place in the draft, which need not be the vendor's."""
        self.start = start
        self.deltas = deltas
        """The kinds of delta whose text is the text of the block in the draft."""
        self.grown = False
        self.signature = ""
        self.input_parts: list[str] = []


class AnthropicReader:
    """Reads one answer."""

    def __init__(self, draft: DraftWriter, request_id: str | None = None) -> None:
        self._draft = draft
        self._request_id = request_id
        self._blocks: dict[int, _Block] = {}
        self._counters: dict[str, int] = {}
        self._stop_reason: str | None = None
        self._take: dict[Any, Callable[[JsonObject], bool]] = {
            "content_block_delta": self._take_delta,
            "content_block_start": self._take_block_start,
            "content_block_stop": self._take_block_stop,
            "message_start": self._take_message_start,
            "message_delta": self._take_message_delta,
            "message_stop": self._take_message_stop,
            "error": self._take_error,
            "ping": lambda _: False,
        }

    @property
    def ended(self) -> bool:
        """Whether ``message_stop`` has been read."""
        return self._draft.ended

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far; ``None`` while there was no report."""
        return Usage(**self._counters) if self._counters else None

    def feed(self, event: ServerSentEvent) -> bool:
        """Take one event; false if it was only a sign of life.

        Raises the error an ``error`` event means, and ``MalformedResponse`` for what does not fit the format.
        """
        text = event.data
        try:
            data = from_json(text)
        except ValueError as error:
            return self._take_text(event, error)
        try:
            take = self._take.get(data.get("type") or event.event)
            if take is not None:
                return take(data)
            return self._take_error(data) if "error" in data else True
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # Whatever is missing or of another type than the format says shows itself in one of these.
            raise MalformedResponse(f"an event of the answer does not fit the format: {error!r}") from error

    def feed_body(self, body: JsonObject) -> None:
        """Take an answer that was not streamed, as if it had been. Raises like ``feed``."""
        if body.get("type") == "error" or "error" in body:
            self._take_error(body)
        try:
            self._take_message_start({"message": body})
            for position, block in enumerate(body["content"]):
                self._take_block_start({"index": position, "content_block": block})
                self._take_block_stop({"index": position})
            self._take_message_delta({"delta": body, "usage": body.get("usage")})
            self._take_message_stop(body)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedResponse(f"the answer does not fit the format: {error!r}") from error

    def finish(self) -> None:
        """Hear that no more comes. Raises ``IncompleteStream`` unless ``message_stop`` was read."""
        if not self.ended:
            raise IncompleteStream("the answer ended before message_stop; ask again")

    def _take_text(self, event: ServerSentEvent, error: ValueError) -> bool:
        """Take data that is not JSON: the keep-alives and end marks some gateways send, or an error in words."""
        if event.event == "error":
            raise classify_error(event.data)
        if event.data.startswith(":") or event.data.strip() in ("", "[DONE]"):
            return False
        raise MalformedResponse(f"an event of the answer is not valid JSON: {error}") from error

    def _take_error(self, data: JsonObject) -> bool:
        raise classify_error(data)

    # --- the message -------------------------------------------------------------------------

    def _take_message_start(self, data: JsonObject) -> bool:
        message: JsonObject = data["message"]
        self._count(message.get("usage"))
        self._draft.start(response_id=message.get("id"), request_id=self._request_id, usage=self.usage)
        return True

    def _take_message_delta(self, data: JsonObject) -> bool:
        delta: JsonObject = data.get("delta") or {}
        self._stop_reason = delta.get("stop_reason") or self._stop_reason
        self._count(data.get("usage"))
        return True

    def _take_message_stop(self, data: JsonObject) -> bool:
        for block in list(self._blocks.values()):
            self._close(block)
        self._blocks.clear()
        reason = self._stop_reason
        self._draft.done(STOP_REASONS.get(reason, reason) if reason else None, usage=self.usage)
        return True

    def _count(self, usage: JsonObject | None) -> None:
        """Keep the counters of a report; they are totals, and one that is missing or null keeps its old value."""
        if not usage:
            return
        for theirs, ours in _COUNTERS.items():
            if usage.get(theirs) is not None:
                self._counters[ours] = int(usage[theirs])
        details: JsonObject = usage.get("output_tokens_details") or {}
        if details.get("thinking_tokens") is not None:
            self._counters["reasoning_tokens"] = int(details["thinking_tokens"])

    # --- its blocks --------------------------------------------------------------------------

    def _take_block_start(self, data: JsonObject) -> bool:
        start: JsonObject = data["content_block"]
        draft = self._draft
        match start["type"]:
            case "text":
                block = _Block(draft.open(TextContent()), start, ("text_delta",))
                self._grow(block, start.get("text"))
            case "thinking":
                block = _Block(draft.open(ThinkingContent()), start, ("thinking_delta",))
                block.signature = start.get("signature") or ""
                self._grow(block, start.get("thinking"))
            case "redacted_thinking":
                block = _Block(draft.open(ThinkingContent(redacted=start["data"])), start, ())
            case "tool_use":
                block = _Block(draft.open(_call_of(start)), start, ("input_json_delta",))
                if not isinstance(given := start.get("input"), dict | None):
                    # Text is arguments not yet parsed; whatever else it is, it must not pass for no arguments.
                    self._grow(block, given if isinstance(given, str) else to_json(given).decode())
            case kind:
                block = _Block(draft.open(OpaqueContent(kind=kind, data=start)), start, ())
        self._blocks[data["index"]] = block
        return True

    def _grow(self, block: _Block, text: str | None) -> None:
        if text:
            block.grown = True
            self._draft.append(block.index, text)

    def _take_delta(self, data: JsonObject) -> bool:
        delta: JsonObject = data["delta"]
        block = self._blocks.get(data["index"])
        if block is None:
            raise MalformedResponse(f"the answer adds to block {data['index']}, which is not open")
        kind: str = delta["type"]
        if kind in block.deltas:
            self._grow(block, delta[_TEXT_OF_DELTA[kind]])
        else:
            _note(block, kind, delta)
        return True

    def _take_block_stop(self, data: JsonObject) -> bool:
        block = self._blocks.pop(data["index"], None)
        if block is not None:
            self._close(block)
        return True

    def _close(self, block: _Block) -> None:
        self._draft.close(block.index, _known_at_end(block))


def _call_of(start: JsonObject) -> ToolCall:
    extra = {name: value for name, value in start.items() if name not in _STANDARD_CALL_FIELDS}
    if extra.get("caller") == {"type": "direct"}:
        del extra["caller"]  # what every call is that says nothing
    return ToolCall(id=start["id"], name=start["name"], vendor=extra or None)


def _note(block: _Block, kind: str, delta: JsonObject) -> None:
    """Keep what a delta says that is not the text of its block."""
    match kind, block.start["type"]:
        case "signature_delta", _:
            block.signature += delta["signature"]
        case "citations_delta", _:
            block.start.setdefault("citations", None)
            block.start["citations"] = [*(block.start["citations"] or ()), delta["citation"]]
        case "input_json_delta", _:
            block.input_parts.append(delta["partial_json"])
        case (("text_delta" | "thinking_delta"), ("text" | "thinking" | "redacted_thinking" | "tool_use" as type_)):
            raise MalformedResponse(f"the answer adds a {kind} to a block of type {type_}")
        case _:
            # A block we do not know, and a delta we do not know: texts grow, everything else is replaced.
            for name in delta.keys() - {"type"}:
                before, value = block.start.get(name), delta[name]
                block.start[name] = before + value if isinstance(before, str) and isinstance(value, str) else value


def _known_at_end(block: _Block) -> AssistantContent | None:
    """What the draft is told of a block when it ends, besides the text it has."""
    start = block.start
    match start["type"]:
        case "text":
            return TextContent(vendor={"citations": start["citations"]}) if start.get("citations") else None
        case "thinking":
            return ThinkingContent(signature=block.signature or None)
        case "redacted_thinking":
            return ThinkingContent(redacted=start["data"])
        case "tool_use":
            given = None if block.grown else start.get("input")
            return (
                _call_of(start).model_copy(update={"arguments": given}) if given and isinstance(given, dict) else None
            )
        case kind:
            return OpaqueContent(kind=kind, data=_with_input(block))


def _with_input(block: _Block) -> JsonObject:
    """A vendor's block with the input that came in deltas; what is no JSON object is no input."""
    text = "".join(block.input_parts)
    if not text.strip():
        return block.start
    value = from_json(text)
    if not isinstance(value, dict):
        raise MalformedResponse(f"the input of a {block.start['type']} block is not a JSON object")
    return {**block.start, "input": value}
