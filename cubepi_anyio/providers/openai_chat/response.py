"""The chunks of a Chat Completions answer, written into a draft. Pure.

An answer is chunks with ``choices[0].delta``, of which one says a ``finish_reason``; a chunk with ``usage``, if it was
asked for; ``[DONE]`` ("Streaming" in OpenAI's API reference). Vendors that imitate the format leave parts out, put
them elsewhere or send them twice. What always holds: an answer without a ``finish_reason`` is complete only if
``[DONE]`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic_core import from_json

from ...errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderError,
    ProviderOverloaded,
    ProviderUnavailable,
)
from ...stream.draft import DraftWriter
from ...types.content import TextContent, ThinkingContent
from ...types.json import JsonObject, JsonValue
from ...types.usage import Usage
from ..http.classify import classify_error
from ..http.sse import ServerSentEvent
from .calls import CallDeltas
from .extras import EXTRA_FIELDS, Extras, thinking_in
from .presets import Quirks
from .usage import UsageReports

__all__ = ("STOP_REASONS", "ChatReader")

STOP_REASONS = {
    "stop": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "tool_use": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
}
"""The vendors' finish reasons in our words, in small letters; others, as ``content_filter``, are kept as they are."""

_FAILURES: dict[str, tuple[type[ProviderError], str]] = {
    "error": (ProviderUnavailable, "the vendor failed while it answered"),
    "network_error": (ProviderUnavailable, "the vendor failed while it answered"),
    "insufficient_system_resource": (ProviderOverloaded, "the vendor ran out of resources while it answered"),
    "abort": (IncompleteStream, "the vendor broke the answer off"),
    "malformed_function_call": (MalformedResponse, "the model wrote a call that its vendor could not read"),
}
"""Finish reasons that say there is no whole answer."""

_FILTERED = frozenset(
    ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "sensitive")
)
"""Finish reasons that say a filter stopped the answer; those of Google and Zhipu among them."""


class ChatReader:
    """Reads one answer; of several choices, the first."""

    def __init__(
        self,
        draft: DraftWriter,
        request_id: str | None = None,
        *,
        quirks: Quirks | None = None,
        strict_schemas: Mapping[str, JsonObject] | None = None,
    ) -> None:
        """``strict_schemas`` are the schemas of the strict tools as they were before strictness, by name."""
        self._draft = draft
        self._request_id = request_id
        self._calls = CallDeltas(draft, self._stop_running, strict_schemas or {})
        self._extras = Extras()
        self._reports = UsageReports(reasoning_counted_apart=quirks is not None and quirks.reasoning_counted_apart)
        self._running = ""
        """The kind of the block that text goes on with: ``text``, ``refusal``, ``thinking``, or nothing."""
        self._running_index = -1
        self._said: set[str] = set()
        """The kinds of text the answer has."""
        self._heard_choice = False
        self._finish_reason: str | None = None

    @property
    def ended(self) -> bool:
        """Whether ``[DONE]`` has been read."""
        return self._draft.ended

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far; ``None`` while there was no report."""
        return self._reports.usage()

    def feed(self, event: ServerSentEvent) -> bool:
        """Take one event; false if it was only a sign of life.

        Raises the error an error object means, and ``MalformedResponse`` for what does not fit the format.
        """
        try:
            chunk = from_json(event.data)
        except ValueError as error:
            return self._take_words(event, error)
        if not isinstance(chunk, dict):
            raise _not_a_chunk(chunk)
        try:
            return self._take_chunk(cast("JsonObject", chunk), event.event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # Whatever is missing or of another type than the format says shows itself in one of these.
            raise MalformedResponse(f"an event of the answer does not fit the format: {error!r}") from error

    def feed_body(self, body: JsonObject) -> None:
        """Take an answer that was not streamed, though it was asked to be."""
        try:
            self._take_chunk(body, "message")
            if not self._heard_choice:
                raise MalformedResponse("the answer is a JSON object without choices; check base_url")
            self._complete()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedResponse(f"the answer does not fit the format: {error!r}") from error

    def finish(self) -> None:
        """Hear that no more comes. Raises ``IncompleteStream`` if neither a finish reason nor ``[DONE]`` was read."""
        if self._finish_reason is None:
            raise IncompleteStream("the answer ended before its finish_reason; ask again")
        self._complete()

    def _take_words(self, event: ServerSentEvent, error: ValueError) -> bool:
        """Take data that is not JSON: the end mark, the keep-alives some gateways send, or an error in words."""
        words = event.data.strip()
        if words == "[DONE]":
            if self._finish_reason is None and not (self._said or len(self._calls)):
                raise IncompleteStream("the answer ended before it had begun; ask again")
            self._complete()
            return True
        if event.event == "error":
            raise classify_error(words)
        if not words or words.startswith(":"):
            return False
        raise MalformedResponse(f"an event of the answer is not valid JSON: {error}") from error

    # --- chunks ------------------------------------------------------------------------------

    def _take_chunk(self, chunk: JsonObject, event_name: str) -> bool:
        choices: list[JsonObject] | None = chunk.get("choices")
        if not choices or chunk.get("error"):
            _raise_if_error(chunk, event_name)
        apart: JsonObject = chunk.get("x_groq") or {}
        report: JsonObject | None = chunk.get("usage") or apart.get("usage")
        if report:
            self._reports.take(report)
        for choice in choices or ():
            if choice.get("index"):
                continue  # of several choices, the first
            if not self._heard_choice:
                self._heard_choice = True
                self._draft.start(response_id=chunk.get("id") or None, request_id=self._request_id)
            if choice.get("error"):
                raise classify_error({"error": choice["error"]})
            delta: JsonObject | None = choice["delta"] if "delta" in choice else choice.get("message")
            if delta:
                self._take_delta(delta)
            if choice.get("usage"):
                self._reports.take(choice["usage"])
            reason: str = choice.get("finish_reason") or ""
            self._finish_reason = reason.strip() or self._finish_reason
        return bool(choices or report)

    def _take_delta(self, delta: JsonObject) -> None:
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        if not thinking and "reasoning_details" in delta:
            thinking = thinking_in(delta["reasoning_details"])
        if thinking:
            self._say("thinking", thinking)
        content = delta.get("content")
        if isinstance(content, str):
            self._say("text", content)
        elif content:
            self._take_parts(content)
        if delta.get("refusal"):
            self._say("refusal", delta["refusal"])
        for entry in delta.get("tool_calls") or ():
            self._calls.take(entry)
        if not delta.keys().isdisjoint(_RARE_FIELDS):
            if delta.get("function_call"):
                self._calls.take({"function": delta["function_call"]})  # the form before there were tools
            self._extras.take(delta)

    def _take_parts(self, parts: list[JsonObject]) -> None:
        """Take content that comes as a list of parts, as Mistral's thinking models send it."""
        for part in parts:
            match part.get("type"):
                case "text" | "output_text":
                    self._say("text", part["text"])
                case "refusal":
                    self._say("refusal", part["refusal"])
                case "thinking":
                    said: str | list[JsonObject] = part["thinking"]
                    if not isinstance(said, str):
                        said = "".join(each["text"] for each in said if each.get("type") == "text")
                    self._say("thinking", said)
                case _:
                    pass  # references, of which there is no text

    def _say(self, kind: str, delta: str) -> None:
        """Let the text of ``kind`` grow, beginning a block where another kind was running."""
        if not isinstance(cast("object", delta), str):
            raise TypeError(f"{kind} is {type(delta).__name__} where text belongs")
        if not delta:
            return
        if self._running != kind:
            self._stop_running()
            refusal: JsonObject | None = {"refusal": True} if kind == "refusal" else None
            block = ThinkingContent() if kind == "thinking" else TextContent(vendor=refusal)
            self._running_index = self._draft.open(block)
            self._running = kind
            self._said.add(kind)
        self._draft.append(self._running_index, delta)

    def _stop_running(self) -> None:
        if self._running:
            self._draft.close(self._running_index)
            self._running = ""

    # --- the end -----------------------------------------------------------------------------

    def _complete(self) -> None:
        """End the message, unless its finish reason says that it is none."""
        if self._draft.ended:
            return
        reason = (self._finish_reason or "").rpartition(":")[2].strip().lower()
        if reason in _FAILURES:
            kind, what = _FAILURES[reason]
            raise kind(f"{what} (finish_reason {self._finish_reason!r}); ask again")
        filtered = reason in _FILTERED or (self._finish_reason or "").startswith("content_filter")
        if filtered and (len(self._calls) or not self._said & {"text", "refusal"}):
            raise ContentFiltered(f"the vendor's filter stopped the answer (finish_reason {self._finish_reason!r})")
        self._stop_running()
        self._calls.finish()
        self._extras.write(self._draft)
        self._draft.done(self._stop_reason(reason, filtered=filtered), usage=self.usage)

    def _stop_reason(self, reason: str, *, filtered: bool) -> str:
        known = STOP_REASONS.get(reason, self._finish_reason or "stop")
        if "refusal" in self._said and (filtered or known == "stop"):
            return "refusal"
        if filtered:
            return "content_filter"
        # Some vendors say "stop" though the answer calls tools, and some say nothing.
        return "tool_use" if known == "stop" and len(self._calls) else known


_RARE_FIELDS = frozenset(("function_call", *EXTRA_FIELDS))


def _not_a_chunk(said: object) -> ProviderError:
    """The error of an event that is JSON but no object. Google puts its error objects into a list."""
    items = cast("list[JsonValue]", said) if isinstance(said, list) else []
    if items and isinstance(items[0], dict) and "error" in items[0]:
        return classify_error(said)
    kind = "a list" if isinstance(said, list) else type(said).__name__
    return MalformedResponse(f"an event of the answer is {kind} where a JSON object belongs")


def _raise_if_error(said: JsonObject, event_name: str) -> None:
    """Raise what an object that is no ordinary chunk means, if it means an error."""
    if said.get("error"):
        raise classify_error({"error": said["error"]})
    # vLLM and some gateways say the error without wrapping it.
    if event_name == "error" or said.get("object") == "error" or said.keys() & {"error_message", "error_type"}:
        raise classify_error(said)
