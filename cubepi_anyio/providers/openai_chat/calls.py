"""The calls of one Chat Completions answer, put together from their deltas. Pure.

OpenAI numbers the calls by ``index`` and gives ``id`` and ``name`` with the first delta of each. Its imitators leave
the index out, give all calls the same one, repeat id and name or bring them late, and send arguments as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from ...errors import MalformedResponse
from ...stream.builder import parse_arguments
from ...stream.draft import DraftWriter
from ...types.content import ToolCall
from ...types.json import JsonObject, JsonValue
from ..strict_schema import without_added_nulls

__all__ = ("CallDeltas",)

_STANDARD_FIELDS = frozenset(("index", "id", "type", "function"))


class _Call:
    """One call while it arrives."""

    __slots__ = ("arguments", "block_index", "extra", "id", "is_open", "name")

    def __init__(self, block_index: int, id: str, name: str) -> None:
        self.block_index = block_index
        self.id = id
        self.name = name
        self.arguments: list[str] = []
        self.extra: JsonObject = {}
        self.is_open = True

    def has_arguments(self) -> bool:
        """Whether the arguments are a whole JSON object, which only white space can follow."""
        if not (self.arguments and self.arguments[-1].rstrip().endswith("}")):
            return False
        return parse_arguments("".join(self.arguments))[1] is None

    def lacks_arguments_of(self, name: str) -> bool:
        """Whether the call is of the tool ``name`` and stands in the middle of its arguments."""
        return name == self.name and bool(self.arguments) and not self.has_arguments()


class CallDeltas:
    """Takes the deltas of all calls of an answer and writes the calls into a draft, in the order they begin."""

    def __init__(
        self, draft: DraftWriter, on_begin: Callable[[], None], strict_schemas: Mapping[str, JsonObject]
    ) -> None:
        """``on_begin`` is called before each call begins, so that text before it can end. ``strict_schemas`` are the
        schemas of the strict tools as they were before strictness, by the tool's name."""
        self._draft = draft
        self._on_begin = on_begin
        self._strict_schemas = strict_schemas
        self._calls: list[_Call] = []
        self._last: _Call | None = None
        self._by_index: dict[Any, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, entry: JsonObject) -> None:
        """Take one entry of ``delta.tool_calls`` or ``message.tool_calls``; one that says nothing is no call."""
        function: JsonObject = entry.get("function") or {}
        index, call_id, name = entry.get("index"), entry.get("id") or "", function.get("name") or ""
        arguments = _as_text(function.get("arguments"))
        if not (call_id or name or arguments):
            self._note_alone(index, entry)
            return
        call = self._continued(index, call_id, name, arguments)
        if call is None:
            call = self._begin(call_id, name)
        self._last = call
        if index is not None:
            self._by_index[index] = call
        self._note(call, call_id, name, entry)
        if arguments:
            self._grow(call, arguments)

    def _note_alone(self, index: JsonValue, entry: JsonObject) -> None:
        """Keep what an entry says that says nothing else, as Google's signatures may come."""
        call = self._last if index is None else self._by_index.get(index)
        if call is not None:
            self._note(call, "", "", entry)

    def _continued(self, index: JsonValue, id: str, name: str, arguments: str) -> _Call | None:
        """The call an entry goes on with; ``None`` if it begins one."""
        if index is not None:
            call = self._by_index.get(index)
            if call is None:
                return None
        elif id:
            call = self._by_id.get(id)
            # An id that comes after its call has begun belongs to the call that has none.
            return call if call is not None else self._last_without_id(name)
        else:
            call = self._last
            if call is not None and name and call.name and not call.lacks_arguments_of(name):
                return None
        if call is None or (id and call.id and id != call.id):
            return None
        return None if not id and name and call.name and _begins_anew(call, name, arguments) else call

    def _last_without_id(self, name: str) -> _Call | None:
        last = self._last
        return last if last is not None and not last.id and not (name and last.name) else None

    def _begin(self, id: str, name: str) -> _Call:
        last = self._last
        if last is not None and last.is_open and last.id and last.name and last.has_arguments():
            self._close(last)
        self._on_begin()
        call = _Call(self._draft.open(ToolCall(id=id, name=name)), id, name)
        self._calls.append(call)
        return call

    def _note(self, call: _Call, id: str, name: str, entry: JsonObject) -> None:
        """Keep what an entry says of its call besides the arguments."""
        if id and not call.id:
            call.id = id
        if id:
            self._by_id[id] = call
        if name and name != call.name and not (call.name and call.arguments):
            call.name += name
        if not entry.keys() - _STANDARD_FIELDS:
            return
        for field, value in entry.items():
            if field not in _STANDARD_FIELDS and value is not None:
                call.extra[field] = value

    def _grow(self, call: _Call, arguments: str) -> None:
        if not call.is_open:
            if arguments.strip():
                raise MalformedResponse(f"the call {call.id!r} goes on after its arguments were complete")
            return
        call.arguments.append(arguments)
        self._draft.append(call.block_index, arguments)

    def finish(self) -> None:
        """End all calls. Raises ``MalformedResponse`` for one whose name never came."""
        for call in self._calls:
            if call.is_open:
                self._close(call)

    def _close(self, call: _Call) -> None:
        if not call.name:
            raise MalformedResponse("the answer calls a tool without naming it")
        if not call.id or call.id in self._taken:
            # It has to be answered by its id, and by that of no other.
            call.id = f"call_{uuid4().hex[:24]}"
        self._taken.add(call.id)
        call.is_open = False
        self._draft.close(call.block_index, self._known(call))

    def _known(self, call: _Call) -> ToolCall:
        """What the draft is told of a call when it ends, besides the text of its arguments."""
        known = ToolCall(id=call.id, name=call.name, vendor=call.extra or None)
        schema = self._strict_schemas.get(call.name)
        if schema is None:
            return known
        arguments, invalid = parse_arguments("".join(call.arguments))
        if invalid is not None:
            return known
        return known.model_copy(update={"arguments": without_added_nulls(schema, arguments)})


def _as_text(arguments: JsonValue) -> str:
    """Arguments as JSON text: some vendors send the object itself, some ``null`` for none."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else to_json(arguments).decode()


def _begins_anew(call: _Call, name: str, arguments: str) -> bool:
    """Whether an entry that names a tool, without an id and where a call was going on, is the next call."""
    if name != call.name:
        return bool(call.arguments)  # before the arguments, it is the rest of the name
    return arguments.lstrip().startswith("{") and call.has_arguments()
