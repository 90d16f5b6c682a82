"""The tool cycle: what makes a list of messages a transcript that any model accepts. Pure; values only.

**The invariant.** Each call of an assistant message is answered exactly once, directly after the message, in the order
of the calls; a result stands nowhere else::

    user       "Compare the two."
    assistant  call x    call y          one batch: the calls of one message
    result     of x      result of y     its results: as many, in the same order, with nothing in between
    assistant  "The first one."

One exception: the *open batch*. A call that waits for a person has no result yet, so the transcript may end with a
batch of which some calls are unanswered. Nothing stands behind an open batch but results of its other calls.

**A call is known by its place.** Some vendors number the calls of each message anew, so an id may come again in the
next message, and even twice in one. A result belongs to the latest message that has a call of its id; there the first
result of an id answers the first call of that id, the second one the second. That is what ``CallBatch`` keeps, and why
nothing here goes by ids alone.

**Who keeps it, and when.** A run puts results into its transcript in the order of the calls, and answers every call
however it ends, but those that wait for a person. A store keeps results in the order in which the calls ended, because
each is stored at once, and a process may die between two of them: whoever loads a thread calls ``repaired``. A run that
goes on with an ``open_batch`` adds the rest, and puts all of them ``in_call_order``. Wire formats ask for the
``results_after`` a message that was cut, whose calls may be sent only as far as they are answered.

**What would break.** Vendors refuse a request with an unanswered call, a result without a call or a result in between;
so one hole in a stored thread makes it useless for good. A result matched to a wrong call tells the model something
false. A call answered by a guess of ours, while its real result is stored further on, would have its effect forgotten:
``repaired`` moves results, and makes them up only where there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from .content import TextContent, ToolCall
from .messages import CUT_STOP_REASONS, AssistantMessage, Message, ToolResultMessage

__all__ = ("CallBatch", "in_call_order", "open_batch", "repaired", "results_after", "tool_cycle_faults")

_UNKNOWN = (
    "The outcome of this call is unknown: the program ended before its result was stored. "
    "It may have had its effects; it was not run again."
)
_NEVER_RAN = "This call was not run: the message that made it was cut short."


class CallBatch:
    """The calls of one message, and the result of each as far as it has one."""

    __slots__ = ("_places", "calls", "message", "results")

    def __init__(self, message: AssistantMessage) -> None:
        self.message: AssistantMessage = message
        self.calls: list[ToolCall] = message.tool_calls
        self.results: list[ToolResultMessage | None] = [None] * len(self.calls)
        """In the order of the calls; ``None`` for a call that has no result."""
        self._places: dict[str, list[int]] = {}
        """The places of the calls without a result, by id, the first one last."""
        for place in range(len(self.calls) - 1, -1, -1):
            self._places.setdefault(self.calls[place].id, []).append(place)

    @property
    def unanswered(self) -> list[ToolCall]:
        """The calls that have no result, in order."""
        return [call for call, result in zip(self.calls, self.results, strict=True) if result is None]

    def take(self, result: ToolResultMessage) -> bool:
        """Keep a result as that of the first call of its id that has none; whether there was one. O(1)."""
        places = self._places.get(result.tool_call_id)
        if not places:
            return False
        self.results[places.pop()] = result
        return True


def results_after(messages: Sequence[Message], position: int) -> Iterator[ToolResultMessage]:
    """The results that stand directly after the message at ``position``."""
    for index in range(position + 1, len(messages)):
        message = messages[index]
        if not isinstance(message, ToolResultMessage):
            return
        yield message


def open_batch(messages: Sequence[Message]) -> CallBatch | None:
    """The batch at the end of a transcript, if it has a call without a result; ``None`` if no call waits for one.

    O(results at the end): what stands before the last batch is not looked at.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, AssistantMessage):
            batch = CallBatch(message)
            for result in results_after(messages, position):
                batch.take(result)
            return batch if batch.unanswered else None
        if not isinstance(message, ToolResultMessage):
            return None
    return None


def in_call_order(message: AssistantMessage, results: Sequence[ToolResultMessage]) -> list[ToolResultMessage]:
    """The results in the order of the calls of ``message``, and behind them those that answer none of its calls."""
    batch = CallBatch(message)
    others = [result for result in results if not batch.take(result)]
    return [*(result for result in batch.results if result is not None), *others]


def tool_cycle_faults(messages: Sequence[Message]) -> list[str]:
    """Say what is wrong with the calls and results of a transcript; an empty list means it is valid.

    After an assistant message with K calls the next K messages are their results, in the order of the
    calls; a result stands nowhere else.
    """
    faults: list[str] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if isinstance(message, ToolResultMessage):
            faults.append(f"message {index - 1}: result {message.tool_call_id!r} answers no call before it")
        if not isinstance(message, AssistantMessage):
            continue
        # By place: the n-th message behind this one is the result of its n-th call.
        for call in message.tool_calls:
            answer = messages[index] if index < len(messages) else None
            if not isinstance(answer, ToolResultMessage):
                faults.append(f"message {index}: call {call.id!r} ({call.name}) has no result")
                continue
            if answer.tool_call_id != call.id:
                faults.append(f"message {index}: expected the result of {call.id!r}, found {answer.tool_call_id!r}")
            index += 1
    return faults


# --- repair ----------------------------------------------------------------------------------


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


class _Repair:
    # A plain class, as is ``CallBatch``: to import the package is to make them, and dataclasses take ten times as long.

    def __init__(self) -> None:
        self.entries: list[Message | CallBatch] = []
        self.notes: list[str] = []
        self.ids: set[str] = set()
        self.asked: dict[str, CallBatch] = {}
        """The latest batch that has a call of an id."""

    def take(self, message: Message) -> None:
        """Put the next message where it belongs."""
        if message.id and message.id in self.ids:
            self.notes.append(f"message {message.id!r} was there twice; the first one stands")
            return
        self.ids.add(message.id)
        if isinstance(message, ToolResultMessage):
            self._take_result(message)
        elif not isinstance(message, AssistantMessage):
            self.entries.append(message)
        elif not any(not isinstance(block, TextContent) or block.text for block in message.content):
            self.notes.append(f"assistant message {message.id!r} has no content and was dropped")
        else:
            batch = CallBatch(message)
            self.entries.append(batch if batch.calls else message)
            self.asked.update((call.id, batch) for call in batch.calls)

    def _take_result(self, result: ToolResultMessage) -> None:
        batch = self.asked.get(result.tool_call_id)
        if batch is None:
            self.notes.append(f"result {result.id!r} answers no call ({result.tool_call_id!r}) and was dropped")
        elif not batch.take(result):
            self.notes.append(f"result {result.id!r} is the second one of {result.tool_call_id!r} and was dropped")
        elif self.entries[-1] is not batch:
            self.notes.append(f"result {result.id!r} stood apart from its call {result.tool_call_id!r} and was moved")

    def result(self, waiting: frozenset[str]) -> Iterator[Message]:
        """The messages in their order, noting which calls had no result."""
        last = self.entries[-1] if self.entries else None
        for entry in self.entries:
            if not isinstance(entry, CallBatch):
                yield entry
                continue
            yield entry.message
            for place, (call, result) in enumerate(zip(entry.calls, entry.results, strict=True)):
                if result is not None:
                    yield result
                elif entry is not last or call.id not in waiting:
                    self.notes.append(f"call {call.id!r} ({call.name}) had no result and got one that says so")
                    yield _made_up_result(entry.message, call, place)


def _made_up_result(message: AssistantMessage, call: ToolCall, place: int) -> ToolResultMessage:
    never_ran = message.stop_reason in CUT_STOP_REASONS
    return ToolResultMessage(
        # Of the message and the place in it: ids of calls may be long, and the same in each message.
        id=f"repair-{message.id or call.id}-{place}",
        run_id=message.run_id,
        timestamp=message.timestamp,
        tool_call_id=call.id,
        tool_name=call.name,
        content=[TextContent(text=_NEVER_RAN if never_ran else _UNKNOWN)],
        details={"ending": "refused" if never_ran else "unknown"},
        is_error=True,
    )
