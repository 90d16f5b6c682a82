"""One run of an agent: what it has in common with nobody.

A run is three things that know as little of each other as they can::

    record   what was said            (agent/record.py)
    calls    which calls are open     (agent/calls.py)   writes results into the record, asks the ending why
    ending   why and how it ends      (agent/ending.py)  knows of neither

The functions that make a turn (``loop``, ``turn``, ``ask_model``, ``read_answer``) are given the run and use these.
To hooks and tools it is the ``RunView`` behind their context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from ..concurrency import NOTHING_TO_AWAIT, AbortSignal, native_cancel_counter
from ..providers.base import StreamingModel, StreamOptions
from ..stream.block import Worker
from ..tools.context import RunContext
from ..tools.define.definition import AgentTool
from ..types.json import JsonObject
from ..types.limits import RunLimits
from ..types.messages import Message
from ..types.run import RunOutcome, RunResult
from ..types.usage import Usage
from .calls import Calls
from .config import AgentConfig
from .ending import Ending
from .listeners import ListenerList
from .outbox import MessageStore, Outbox
from .record import Record
from .toolset import NO_TOOLS, Toolset

__all__ = ("Run", "RunPhase")

RunPhase = Literal["idle", "loading", "waiting", "streaming", "tools", "between_turns", "settling"]
"""What a run is doing: reading the thread, waiting for the first token, receiving, running tools, and so on."""

_OWN_TYPES = frozenset(
    {
        "agent_start",
        "turn_start",
        "message_start",
        "message_update",
        "message_end",
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_end",
        "turn_end",
        "agent_end",
    }
)
"""The types of the events that only the run itself says."""


class Run:
    """One run, from its first event to its last."""

    __slots__ = (
        "calls",
        "cancel_requests",
        "cancelled_before",
        "config",
        "ending",
        "on_settled",
        "options",
        "phase",
        "producer",
        "put_off",
        "record",
        "toolset",
    )

    def __init__(
        self,
        config: AgentConfig,
        messages: list[Message],
        listeners: ListenerList,
        *,
        run_id: str | None = None,
        store: MessageStore | None = None,
        notes: JsonObject | None = None,
    ) -> None:
        self.config: AgentConfig = config
        self.ending: Ending = Ending()
        self.record: Record = Record(run_id, messages, listeners, Outbox(listeners, self.ending.signal, store), notes)
        self.calls: Calls = Calls(self.record, self.ending, settle_timeout=config.limits.settle_timeout)
        self.options: StreamOptions | None = None
        """What the model is given besides the conversation, once it is known to be the same for each request."""
        self.toolset: Toolset = config.toolset or NO_TOOLS
        """The tools of the turn that is under way."""
        self.producer: Worker | None = None
        """The task in which the model's answers are produced, one after the other."""
        self.phase: RunPhase = "loading"
        self.put_off: Sequence[Message] = ()
        """What is to be said when the run goes on after a person's answer."""
        self.on_settled: Callable[[RunOutcome], Awaitable[None]] | None = None
        """Called when everything is stored and announced, or given up: gives the thread back."""
        self.cancel_requests: Callable[[], int] = native_cancel_counter()
        """How often ``Task.cancel()`` has hit the current task."""
        self.cancelled_before: bool = self.cancel_requests() > 0
        """Whether the task that begins the run has been cancelled by ``Task.cancel()``, perhaps long ago."""

    @property
    def must_stop(self) -> bool:
        """Whether no further turn may begin: the run is being ended, or calls of it wait for a person."""
        return self.ending.is_called or bool(self.calls.requests)

    def outcome_now(self) -> RunOutcome:
        """How the run ends if nothing more happens."""
        return self.ending.outcome(is_suspended=bool(self.calls.requests))

    def result(self) -> RunResult[Any]:
        """What the run came to."""
        record, outcome = self.record, self.record.outcome
        cause = self.ending.cause
        is_limit = outcome == "limit" and cause is not None
        return RunResult(
            run_id=record.run_id,
            outcome=outcome,
            text=record.text,
            messages=record.new_messages,
            usage=record.usage,
            usage_by=record.usage_by,
            notes=record.result_notes,
            error=self.ending.model_error,
            requests=self.calls.requests,
            abort_reason=cause.reason if cause is not None else None,
            limit=cause.limit if is_limit and cause is not None else None,
            limit_value=cause.bound if is_limit and cause is not None else None,
        )

    # --- the run as its contexts see it ------------------------------------------------------

    def context(self) -> RunContext[Any]:
        """What hooks are given. Made anew each time: a run that held its own would wait for the garbage collector."""
        return RunContext(self)

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.record.run_id

    @property
    def turn(self) -> int:
        """The turn that is under way, counted from 1."""
        return self.record.turn

    @property
    def system_prompt(self) -> str:
        """The agent's system prompt."""
        return self.config.system_prompt

    @property
    def messages(self) -> Sequence[Message]:
        """The transcript so far."""
        return self.record.messages

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of this turn."""
        return tuple(self.toolset.by_name.values())

    @property
    def model(self) -> StreamingModel:
        """The model that the run asks."""
        return self.config.model

    @property
    def limits(self) -> RunLimits:
        """What bounds the run."""
        return self.config.limits

    @property
    def signal(self) -> AbortSignal:
        """Set when the run is told to stop."""
        return self.ending.signal

    @property
    def usage(self) -> Usage:
        """Tokens of the run so far."""
        return self.record.usage

    @property
    def notes(self) -> JsonObject:
        """The thread's own notes."""
        return self.record.notes

    @property
    def result_notes(self) -> JsonObject:
        """Notes about this run."""
        return self.record.result_notes

    @property
    def deps(self) -> Any:
        """What the program gave the run for its hooks and tools."""
        return self.config.deps

    def add_usage(self, usage: Usage, *, by: str, model: StreamingModel | None) -> None:
        """Count tokens that somebody else has used for the run."""
        if not by:
            raise ValueError("add_usage(by=...) says in a word who used the tokens")
        record = self.record
        record.usage = record.usage + usage
        record.usage_by[by] = record.usage_by.get(by, Usage()) + usage

    def emit(self, event: Any) -> Awaitable[None]:
        """Say an event that is not one of the run's own."""
        kind = getattr(event, "type", None)
        if not isinstance(kind, str) or not kind:
            raise TypeError(f"an event has a type, a string of its own; {type(event).__name__} has none")
        if kind in _OWN_TYPES:
            raise TypeError(f"events of type {kind!r} are said by the run alone; give yours a type of its own")
        if not self.record.is_heard or not self.record.is_open:
            return NOTHING_TO_AWAIT
        return self.calls.emit(event)
