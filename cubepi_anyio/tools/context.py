"""``RunContext``: what a hook or a tool may know of its run, and the little it may do to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from ..concurrency import AbortSignal
from ..providers.base import StreamingModel
from ..types.json import JsonObject
from ..types.limits import RunLimits
from ..types.messages import Message
from ..types.usage import Usage
from .define.definition import AgentTool, OnUpdate

__all__ = ("DepsT", "RunContext", "RunView", "ToolContext", "ToolSource", "ToolsOfTurn")

DepsT = TypeVar("DepsT", default=Any)
"""The type of what a program gives its hooks and tools: a database, a client, a user."""


class RunView(Protocol):
    """The run as its contexts see it. Whatever changes while the run goes on is read anew each time."""

    @property
    def id(self) -> str:
        """The id of the run."""
        ...

    @property
    def turn(self) -> int:
        """The turn that is under way, counted from 1; 0 before the first."""
        ...

    @property
    def system_prompt(self) -> str:
        """The agent's system prompt."""
        ...

    @property
    def messages(self) -> Sequence[Message]:
        """The transcript so far."""
        ...

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of this turn."""
        ...

    @property
    def model(self) -> StreamingModel:
        """The model that the run asks."""
        ...

    @property
    def limits(self) -> RunLimits:
        """What bounds the run."""
        ...

    @property
    def signal(self) -> AbortSignal:
        """Set when the run is told to stop."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens of the run so far."""
        ...

    @property
    def notes(self) -> JsonObject:
        """The thread's own notes."""
        ...

    @property
    def result_notes(self) -> JsonObject:
        """Notes about this run."""
        ...

    @property
    def deps(self) -> Any:
        """What the program gave the run for its hooks and tools."""
        ...

    def add_usage(self, usage: Usage, *, by: str, model: StreamingModel | None) -> None:
        """Count tokens that somebody else has used for the run."""
        ...

    def emit(self, event: Any) -> Awaitable[None]:
        """Say an event of one's own."""
        ...


class RunContext(Generic[DepsT]):
    """What hooks and tools are given of the run they are called in: one kind of context for all of them.

    A tool gets it by declaring ``ctx`` or ``context``, a hook by declaring ``ctx``. What it shows is live: ``turn``,
    ``messages``, ``usage`` are those of the moment in which they are read. What belongs to a call (``tool_call_id``,
    ``tool_name``, ``on_update``) is ``None`` outside of one.
    """

    __slots__ = ("_run", "on_update", "signal", "tool_call_id", "tool_name")

    def __init__(
        self,
        run: RunView,
        *,
        tool_call_id: str | None = None,
        tool_name: str | None = None,
        signal: AbortSignal | None = None,
        on_update: OnUpdate | None = None,
    ) -> None:
        self._run = run
        self.tool_call_id: str | None = tool_call_id
        """The call; ``None`` outside of one."""
        self.tool_name: str | None = tool_name
        self.signal: AbortSignal = signal if signal is not None else run.signal
        """Set when the run, or this call, is told to stop."""
        self.on_update: OnUpdate | None = on_update
        """Reports progress of the call; ``None`` outside of one."""

    def __repr__(self) -> str:
        call = f", tool_call_id={self.tool_call_id!r}" if self.tool_call_id is not None else ""
        return f"RunContext(run_id={self.run_id!r}, turn={self.turn}{call})"

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def turn(self) -> int:
        """The turn that is under way, counted from 1; 0 before the first."""
        return self._run.turn

    @property
    def system_prompt(self) -> str:
        """The agent's system prompt, before hooks change it for a request."""
        return self._run.system_prompt

    @property
    def messages(self) -> Sequence[Message]:
        """The transcript so far; read-only."""
        return self._run.messages

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of this turn; read-only."""
        return self._run.tools

    @property
    def model(self) -> StreamingModel:
        """The model that the run asks."""
        return self._run.model

    @property
    def limits(self) -> RunLimits:
        """What bounds the run."""
        return self._run.limits

    @property
    def usage(self) -> Usage:
        """Tokens of the run so far: its model calls, and what was added by ``add_usage``."""
        return self._run.usage

    @property
    def deps(self) -> DepsT:
        """What the program gave the run for its hooks and tools."""
        return self._run.deps

    @property
    def notes(self) -> JsonObject:
        """The thread's own notes: change them in place. They are stored with the thread, at the end of each turn and
        of the run, under the run's claim."""
        return self._run.notes

    @property
    def extra(self) -> JsonObject:
        """The same as ``notes``."""
        return self._run.notes

    @property
    def result_notes(self) -> JsonObject:
        """Notes about this run: change them in place. They come back as ``RunResult.notes``; they are not stored."""
        return self._run.result_notes

    def update(self, x: object) -> Awaitable[None]:
        """Report progress of the call: the same as ``on_update(x)``, with ``await`` and without.

        Raises ``TypeError`` outside of a call.
        """
        if self.on_update is None:
            raise TypeError("update() reports the progress of a call, and this context belongs to none")
        return self.on_update(x)

    def add_usage(self, usage: Usage, *, by: str, model: StreamingModel | None = None) -> None:
        """Count tokens that were used for this run outside of it: a summary, a judge, another agent.

        They count in ``RunResult.usage`` and in the limits, and stand in ``RunResult.usage_by`` under ``by``. ``model``
        is the model that was asked; without one the tokens have no price. Call it in the event loop's thread.
        """
        self._run.add_usage(usage, by=by, model=model)

    def emit(self, event: Any) -> Awaitable[None]:
        """Say an event of your own: all listeners hear it, in the one order of the run's events. It is not stored.

        ``event`` is an object of a class of your own whose ``type`` is a string that no event of the library has. It is
        on its way at once; awaiting what is returned waits until all have heard it (a checkpoint then). Call it in the
        event loop's thread. Nothing is said once the run has ended. Raises ``TypeError`` for anything else.
        """
        return self._run.emit(event)


ToolContext = RunContext
"""The context as tools know it."""


class ToolsOfTurn(Protocol):
    """An object that has tools: it is asked for them at each turn."""

    def tools(self, ctx: RunContext[Any], /) -> Sequence[AgentTool] | Awaitable[Sequence[AgentTool]]:
        """The tools of the turn that begins."""
        ...


ToolSource = (
    Sequence[AgentTool]
    | Callable[[RunContext[Any]], Sequence[AgentTool] | Awaitable[Sequence[AgentTool]]]
    | ToolsOfTurn
)
"""Where tools come from: a sequence of them, a function of the context (sync or async), or an object with ``tools``.

The latter two are asked once a turn, before its request, and when a suspended batch goes on: never in the middle of a
turn, and not again for its tries.
"""
