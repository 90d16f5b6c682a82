"""One prompt and what comes of it on a screen, in an event loop of its own: stream, show, ask, and hear Ctrl-C.

Between two turns there is no event loop: whatever a run has begun has ended with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio

from ... import Agent, AgentEvent, RunResult
from ...checkpointers.base import Checkpointer
from ...hitl import Channel, TerminalChannel
from ...types.hitl import PersonAnswer, PersonRequest
from ..screen.interrupts import Interrupts, beside_interrupts
from ..screen.screen import Reader, Screen
from ..screen.text import Line
from .view import ConversationView, Piece

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
        self._reader = Reader()

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
        with self._reader:
            for piece in pieces if self._reader.is_there else ():
                if not piece.is_line:
                    self.screen.close()
                self._show(piece)


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
            redraw = display.redraw if display.screen.is_live else None
            return await beside_interrupts(interrupts, lambda: agent.prompt(prompt), redraw=redraw)
    finally:
        unsubscribe()
        display.screen.close()
