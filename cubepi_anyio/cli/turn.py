"""One prompt and what comes of it on a screen, in an event loop of its own: stream, show, ask, and hear Ctrl-C.

Between two turns there is no event loop: whatever a run has begun has ended with it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio

from .. import Agent, AgentEvent, RunResult
from ..checkpointers.base import Checkpointer
from ..concurrency import bare_error
from ..hitl import Channel, TerminalChannel
from ..types.hitl import PersonAnswer, PersonRequest
from .conversation_view import ConversationView, Piece
from .interrupts import Interrupts
from .screen import Screen
from .text import Line

__all__ = ("AskingChannel", "TurnDisplay", "run_turn")

_REDRAW_SECONDS = 1 / 12


class TurnDisplay:
    """What is shown of one turn; while a person is asked, nothing else is written."""

    def __init__(self, screen: Screen, view: ConversationView, show: Callable[[Piece], None]) -> None:
        self.screen = screen
        self._view = view
        self._show = show
        self._questions = 0
        self._held_back: list[Piece] = []
        self._reader_has_gone = False

    def hear(self, event: AgentEvent) -> None:
        """Show one event. Raises ``BrokenPipeError`` if nobody reads any more, once."""
        self._held_back += self._view.hear(event, time.monotonic())
        if not self._questions:
            self._flush()

    def say(self, *lines: Line) -> None:
        """Show whole lines."""
        self._held_back += [*self._view.end_line(), *(Piece(line) for line in lines)]
        self._flush()

    def begin_question(self) -> None:
        """Leave the screen to a question until ``end_question``."""
        self._questions += 1
        self.screen.close()

    def end_question(self) -> None:
        """Show what has happened meanwhile."""
        self._questions -= 1
        if not self._questions:
            self._flush()

    async def redraw(self) -> None:
        """Keep the region of a live screen up to date, until cancelled."""
        while True:
            if not self._questions:
                region = self._view.region(time.monotonic(), self.screen.width)
                if region:
                    self.screen.show(region)
                else:
                    self.screen.close()
            await anyio.sleep(_REDRAW_SECONDS)

    def _flush(self) -> None:
        pieces, self._held_back = self._held_back, []
        if self._reader_has_gone:
            return
        try:
            for piece in pieces:
                if not piece.is_line:
                    self.screen.close()
                self._show(piece)
        except BrokenPipeError:
            # Raised once, it ends the run; the events of its settling have nobody to be shown to.
            self._reader_has_gone = True
            raise


class AskingChannel(TerminalChannel):
    """Asks on the terminal, and has the display of the turn wait meanwhile."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__(write=write)
        self.display: TurnDisplay | None = None

    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        display = self.display
        if display is None:
            return await super()._answer_to(request)
        display.begin_question()
        try:
            return await super()._answer_to(request)
        finally:
            display.end_question()


async def run_turn(
    agent: Agent,
    prompt: str,
    display: TurnDisplay,
    interrupts: Interrupts,
    *,
    channel: Channel | None = None,
    checkpointer: Checkpointer | None = None,
    listener: Callable[[AgentEvent], None] | None = None,
) -> RunResult:
    """Prompt the agent and show what happens; connections and the store are closed afterwards. A checkpoint.

    ``interrupts`` listens as long as the run goes on; its ``on_first`` aborts the run. Raises what the run raises.
    """
    if isinstance(channel, AskingChannel):
        channel.display = display
    unsubscribe = agent.subscribe(listener or display.hear)
    try:
        async with AsyncExitStack() as opened:
            resources: tuple[Any, ...] = (agent.state.model.provider, checkpointer)
            for resource in resources:
                if hasattr(resource, "__aenter__"):
                    await opened.enter_async_context(resource)
            return await _beside_interrupts(display, interrupts, lambda: agent.prompt(prompt))
    finally:
        unsubscribe()
        display.screen.close()


async def _beside_interrupts(
    display: TurnDisplay, interrupts: Interrupts, run: Callable[[], Awaitable[RunResult]]
) -> RunResult:
    """Run, with Ctrl-C heard and the region drawn meanwhile; an error leaves as itself."""
    results: list[RunResult] = []
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(interrupts.listen)
            if display.screen.is_live:
                tasks.start_soon(display.redraw)
            results.append(await run())
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = bare_error(group)
    else:
        return results[0]
    raise error
