"""The events of OpenAI's Responses API, written into a draft. Pure.

An answer is ``response.created``; for each item ``response.output_item.added``, deltas, ``response.output_item.done``;
then one of ``response.completed``, ``response.incomplete`` and ``response.failed``, which repeats the answer as a whole
("Streaming events" in OpenAI's API reference). An ``error`` may end it at any point. Events are known by the ``type``
in their data; some servers that imitate the API send no other name, leave the deltas out, or repeat nothing at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json

from ...errors import (
    ContentFiltered,
    IncompleteStream,
    MalformedResponse,
    ProviderBadRequest,
    ProviderError,
    ProviderUnavailable,
)
from ...stream.draft import DraftWriter
from ...types.json import JsonObject, JsonValue
from ...types.usage import Usage
from ..http.classify import classify_error
from ..http.sse import ServerSentEvent
from .items import Item, Items

__all__ = ("ResponsesReader",)

_SIGNS_OF_LIFE = frozenset(("keepalive", "ping", "response.queued"))

_DELTAS = {
    "response.output_text.delta": ("text", "message", "content_index"),
    "response.refusal.delta": ("refusal", "message", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "reasoning", "summary_index"),
    "response.reasoning_text.delta": ("text", "reasoning", "content_index"),
    "response.function_call_arguments.delta": ("arguments", "", ""),
    "response.custom_tool_call_input.delta": ("input", "", ""),
}
"""What grows by a delta: the kind of part, the type of item it belongs to, and the field that says which part."""

_ONLY_WHEN_DONE = ("id", "status", "encrypted_content")
"""What an item that was never done does not keep: the vendor would take it for the whole item."""

_NEVER = object()

_REFUSED_CODES = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download_image")
"""How the codes begin that blame what was asked for ("The response object, error" in OpenAI's API reference)."""


class ResponsesReader:
    """Reads one answer."""

    def __init__(
        self,
        draft: DraftWriter,
        request_id: str | None = None,
        *,
        strict_schemas: Mapping[str, JsonObject] | None = None,
    ) -> None:
        """``strict_schemas`` are the schemas of the strict tools as they were before strictness, by name."""
        self._draft = draft
        self._request_id = request_id
        self._items = Items(draft, strict_schemas or {})
        self._open: dict[Any, tuple[Item, JsonObject]] = {}
        """Items that have begun, by ``output_index``: some gateways give an item another id in each event."""
        self._done: dict[Any, JsonValue] = {}
        """The ids of items that are done, by the same key."""
        self._count = 0
        """How many items are done."""
        self._usage: Usage | None = None
        self._take: dict[Any, Callable[[JsonObject], bool]] = {
            "response.output_item.added": self._take_added,
            "response.output_item.done": self._take_done,
            "response.created": self._take_created,
            "response.in_progress": self._take_created,
            "response.completed": self._take_response,
            "response.incomplete": self._take_response,
            "response.failed": self._take_response,
            "response.cancelled": self._take_response,
            "error": self._take_error,
        }

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been read."""
        return self._draft.ended

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far; ``None`` while there was no report."""
        return self._usage

    def feed(self, event: ServerSentEvent) -> bool:
        """Take one event; false if it was only a sign of life.

        Raises the error that an ``error`` event or a failed response means, and ``MalformedResponse`` for what does
        not fit the format.
        """
        try:
            data = from_json(event.data)
        except ValueError as error:
            return self._take_words(event, error)
        try:
            kind = data.get("type") or event.event
            grows = _DELTAS.get(kind)
            if grows is not None:
                return self._take_delta(data, *grows)
            take = self._take.get(kind)
            if take is not None:
                return take(data)
            return self._take_error(data) if data.get("error") else kind not in _SIGNS_OF_LIFE
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # Whatever is missing or of another type than the format says shows itself in one of these.
            raise MalformedResponse(f"an event of the answer does not fit the format: {error!r}") from error

    def feed_body(self, body: JsonObject) -> None:
        """Take an answer that was not streamed, as if it had been. Raises like ``feed``."""
        if "output" not in body:
            if body.get("error"):
                self._take_error(body)
            raise MalformedResponse("the answer is a JSON object without output; check base_url")
        try:
            self._take_created({"response": body})
            self._take_response({"response": body})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedResponse(f"the answer does not fit the format: {error!r}") from error

    def finish(self) -> None:
        """Hear that no more comes. Raises ``IncompleteStream`` unless a terminal event was read."""
        if not self.ended:
            raise IncompleteStream("the answer ended before response.completed; ask again")

    def _take_words(self, event: ServerSentEvent, error: ValueError) -> bool:
        """Take data that is not JSON: the keep-alives and the end mark some servers send, or an error in words."""
        words = event.data.strip()
        if event.event == "error":
            raise classify_error(words)
        if words == "[DONE]":
            self.finish()
            return True
        if not words or words.startswith(":"):
            return False
        raise MalformedResponse(f"an event of the answer is not valid JSON: {error}") from error

    def _take_error(self, data: JsonObject) -> bool:
        raise _error_of(data)

    # --- items -------------------------------------------------------------------------------

    def _take_created(self, data: JsonObject) -> bool:
        response: JsonObject = data.get("response") or {}
        self._draft.start(response_id=response.get("id") or None, request_id=self._request_id)
        return True

    def _take_added(self, data: JsonObject) -> bool:
        item: JsonObject = data["item"]
        self._open[_key_of(data, item)] = (self._items.begin(item), item)
        return True

    def _take_delta(self, data: JsonObject, kind: str, owner: str, place: str) -> bool:
        key = data["output_index"] if "output_index" in data else data.get("item_id")
        entry = self._open.get(key)
        if entry is None:
            if key in self._done and not owner:
                raise MalformedResponse("a call goes on after its arguments were complete")
            if not owner:
                return True  # what a call is that was not announced, it tells when it is done
            self._take_added({**data, "item": {"type": owner}})
            entry = self._open[key]
        entry[0].grow(kind, data.get(place), data["delta"])
        return True

    def _take_done(self, data: JsonObject) -> bool:
        item: JsonObject = data["item"]
        key = _key_of(data, item)
        entry = self._open.pop(key, None)
        if entry is None and self._done.get(key, _NEVER) == item.get("id"):
            return True
        if entry is None or entry[1]["type"] != item["type"]:
            entry = (self._items.begin(item), item)
        self._done[key] = item.get("id")
        self._count += 1
        entry[0].finish(item)
        return True

    # --- the end -----------------------------------------------------------------------------

    def _take_response(self, data: JsonObject) -> bool:
        """Take the response as a whole, which ends the message unless it is none."""
        response: JsonObject = data["response"]
        if response.get("usage"):
            self._usage = _usage_of(response["usage"])
        status = _status_of(data.get("type"), response.get("status") or "completed")
        if status == "failed" or response.get("error"):
            raise _failure(response)
        if status not in ("completed", "incomplete"):
            raise IncompleteStream(f"the vendor broke the answer off (status {status!r}); ask again")
        self._take_created(data)
        details: JsonObject = response.get("incomplete_details") or {}
        self._take_rest(response.get("output") or [])
        self._draft.done(self._stop_reason(status, details.get("reason")), usage=self._usage)
        return True

    def _take_rest(self, output: list[JsonObject]) -> None:
        """Take the items that no event has ended, or none has told of."""
        for key, (item, begun) in list(self._open.items()):
            told = output[key] if isinstance(key, int) and key < len(output) else {}
            if told.get("type") == begun["type"]:
                self._take_done({"output_index": key, "item": told})
            else:
                self._count += 1
                item.finish({name: value for name, value in begun.items() if name not in _ONLY_WHEN_DONE})
        if self._count < len(output):
            for position, told in enumerate(output):
                if position not in self._done:
                    self._take_done({"output_index": position, "item": told})

    def _stop_reason(self, status: str, reason: JsonValue) -> str:
        held = self._items.held
        if reason == "content_filter":
            if "call" in held or not held:
                raise ContentFiltered("the vendor's filter stopped the answer (incomplete: content_filter)")
            return "refusal" if "refusal" in held else "content_filter"
        if status == "incomplete":
            return "length"  # whatever the reason: the answer was cut, and none of its calls may run
        if "refusal" in held:
            return "refusal"
        return "tool_use" if "call" in held else "stop"


def _status_of(kind: JsonValue, status: JsonValue) -> JsonValue:
    """How the answer ended. The event and the response in it should agree; where they do not, the worse one counts."""
    told = (str(kind).removeprefix("response."), status)
    words = ("failed", "cancelled", "incomplete", "completed")
    return next((word for word in words if word in told), status)


def _key_of(data: JsonObject, item: JsonObject) -> JsonValue:
    return data["output_index"] if "output_index" in data else item.get("id", data.get("item_id"))


def _failure(response: JsonObject) -> ProviderError:
    if response.get("error"):
        return _error_of({"error": response["error"]})
    return ProviderUnavailable("the vendor failed while it answered, and gave no reason; ask again")


def _error_of(said: JsonObject) -> ProviderError:
    error = classify_error(said)
    code = error.error_code or ""
    if type(error) is ProviderUnavailable and code.startswith(_REFUSED_CODES):
        kind = ContentFiltered if "policy" in code else ProviderBadRequest
        return kind(error.message, error_code=code, request_id=error.request_id)
    return error


def _usage_of(counted: JsonObject) -> Usage:
    """The vendor's ``input_tokens`` include what was read from and written to a cache, ours do not."""
    details: JsonObject = counted.get("input_tokens_details") or {}
    output_details: JsonObject = counted.get("output_tokens_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    return Usage(
        input_tokens=max(0, (counted.get("input_tokens") or 0) - read - written),
        output_tokens=counted.get("output_tokens") or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=output_details.get("reasoning_tokens") or 0,
    )
