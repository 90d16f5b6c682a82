"""``repaired``: what a killed process left of a thread, made a transcript that any model accepts. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..types.content import TextContent, ToolCall
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message, ToolResultMessage

__all__ = ("repaired",)

_UNKNOWN = (
    "The outcome of this call is unknown: the program ended before its result was stored. "
    "It may have had its effects; it was not run again."
)
_NEVER_RAN = "This call was not run: the message that made it was cut short."


def repaired(messages: Sequence[Message], *, waiting: Collection[str] = ()) -> tuple[list[Message], list[str]]:
    """The transcript with each call answered once, in order, at once; and a sentence for each thing that was wrong.

    Results move behind their calls, in the order of the calls (results stored in another order are nothing wrong).
    A call without a result gets an error result that says the outcome is unknown; its id follows from the call, so that
    repairing and storing it twice changes nothing. Dropped are: results without a call, a second result of a call,
    a second message of the same id, and assistant messages without content.

    ``waiting`` names calls (``tool_call_id``) that wait for a person: in the last batch they stay unanswered.

    The messages are those given, none is changed. Repairing what was repaired changes nothing. O(messages).
    """
    repair = _Repair()
    for message in messages:
        repair.take(message)
    return list(repair.result(frozenset(waiting))), repair.notes


# Plain classes: to import the package is to make them, and dataclasses take ten times as long to make.


class _Batch:
    """An assistant message with calls, and the result of each, as far as it has one."""

    __slots__ = ("calls", "message", "results")

    def __init__(self, message: AssistantMessage, calls: list[ToolCall]) -> None:
        self.message = message
        self.calls = calls
        self.results: list[ToolResultMessage | None] = [None] * len(calls)


class _Repair:
    def __init__(self) -> None:
        self.entries: list[Message | _Batch] = []
        self.notes: list[str] = []
        self.ids: set[str] = set()
        self.unanswered: dict[str, deque[tuple[_Batch, int]]] = {}
        """Calls by id. Some vendors number the calls of each message anew: a later call replaces an earlier one."""

    def take(self, message: Message) -> None:
        """Put the next message where it belongs."""
        if message.id and message.id in self.ids:
            self.notes.append(f"message {message.id!r} was there twice; the first one stands")
            return
        self.ids.add(message.id)
        if isinstance(message, ToolResultMessage):
            self._take_result(message)
        elif isinstance(message, AssistantMessage):
            self._take_assistant(message)
        else:
            self.entries.append(message)

    def _take_assistant(self, message: AssistantMessage) -> None:
        if not _has_content(message):
            self.notes.append(f"assistant message {message.id!r} has no content and was dropped")
            return
        calls = message.tool_calls
        if not calls:
            self.entries.append(message)
            return
        batch = _Batch(message, calls)
        self.entries.append(batch)
        for call in calls:
            self.unanswered[call.id] = deque()
        for index, call in enumerate(calls):
            self.unanswered[call.id].append((batch, index))

    def _take_result(self, result: ToolResultMessage) -> None:
        calls = self.unanswered.get(result.tool_call_id)
        if calls is None:
            self.notes.append(f"result {result.id!r} answers no call ({result.tool_call_id!r}) and was dropped")
            return
        if not calls:
            self.notes.append(f"result {result.id!r} is the second one of {result.tool_call_id!r} and was dropped")
            return
        batch, index = calls.popleft()
        batch.results[index] = result
        if self.entries[-1] is not batch:
            self.notes.append(f"result {result.id!r} stood apart from its call {result.tool_call_id!r} and was moved")

    def result(self, waiting: frozenset[str]) -> Iterator[Message]:
        """The messages in their order, noting which calls had no result."""
        last = self.entries[-1] if self.entries else None
        for entry in self.entries:
            if isinstance(entry, _Batch):
                yield entry.message
                yield from self._answers(entry, waiting if entry is last else frozenset())
            else:
                yield entry

    def _answers(self, batch: _Batch, waiting: frozenset[str]) -> Iterable[Message]:
        for index, (call, result) in enumerate(zip(batch.calls, batch.results, strict=True)):
            if result is not None:
                yield result
            elif call.id not in waiting:
                self.notes.append(f"call {call.id!r} ({call.name}) had no result and got one that says so")
                yield _made_up_result(batch.message, call, index)


def _has_content(message: AssistantMessage) -> bool:
    return any(not isinstance(block, TextContent) or block.text for block in message.content)


def _made_up_result(message: AssistantMessage, call: ToolCall, index: int) -> ToolResultMessage:
    never_ran = message.stop_reason in CUT_STOP_REASONS
    return ToolResultMessage(
        # Of the message and the place in it: ids of calls may be long, and the same in each message.
        id=f"repair-{message.id or call.id}-{index}",
        run_id=message.run_id,
        timestamp=message.timestamp,
        tool_call_id=call.id,
        tool_name=call.name,
        content=[TextContent(text=_NEVER_RAN if never_ran else _UNKNOWN)],
        details={"ending": "refused" if never_ran else "unknown"},
        is_error=True,
    )
