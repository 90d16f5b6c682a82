"""One conversation on a terminal: read a line, do what it says, show it, until the person leaves.

Lines are read in the main thread while there is no event loop, so that editing them and Ctrl-C work as in any program;
each turn has an event loop of its own, and nothing of it is left when the next line is read.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Self
from uuid import uuid4

import anyio

from ... import Agent, RunResult
from ...checkpointers.base import Checkpointer
from ...errors import CubepiError
from ...providers.base import StreamingModel
from ..agents import Consent, make_agent, model_settings, system_prompt, tools_for
from ..file_tools import NEED_CONSENT
from ..models import open_model
from ..screen.interrupts import Interrupts, exit_code_of
from ..screen.leaving import LEFT_AT_ONCE, kill_child_groups
from ..screen.screen import Screen
from ..screen.text import Line, Span, Style, as_line, counted, printable, seconds_text
from .slash_commands import SlashCommands
from .turn import AskingChannel, TurnDisplay, run_turn
from .view import ConversationView, Piece

__all__ = ("Conversation",)

_PROMPT = "> "


class Conversation:
    """A person, an agent, and the screen between them. A context manager: leaving it ends what the model needs."""

    def __init__(self, options: argparse.Namespace, screen: Screen) -> None:
        self.options = options
        self.screen = screen
        self.model_name: str = options.model
        can_ask = sys.stdin.isatty() and sys.stdout.isatty()
        self.consent: Consent = Consent(NEED_CONSENT if options.yes else options.allow, can_ask=can_ask)
        self._channel = AskingChannel(lambda text: screen.write(Span(text)))
        self._store = _store(options.thread)
        self._thread_id: str | None = None
        self._opened = ExitStack()
        self._agent: Agent | None = None

    def __enter__(self) -> Self:
        """Have the model ready and the stored conversation read. Raises ``UsageError`` for a model that is none."""
        try:
            self._say_what_takes_long(self.model_name)
            model = self._opened.enter_context(open_model(model_settings(self.options)))
            if self._store is None:
                self._agent = self._new_agent(model)
            else:
                self._agent = anyio.run(self._stored_agent, self._store, model, backend=self.options.backend)
        except BaseException:
            self._opened.close()
            raise
        return self

    async def _stored_agent(self, store: Checkpointer, model: StreamingModel) -> Agent:
        """An agent that goes on with the newest thread of the store."""
        async with store:
            threads = await store.list_threads()
            self._thread_id = threads[-1] if threads else uuid4().hex
            agent = self._new_agent(model)
            await agent.load()
        return agent

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def agent(self) -> Agent:
        """Who is talked to."""
        assert self._agent is not None
        return self._agent

    def say(self, text: str, style: Style = "plain") -> None:
        """Show a line of our own."""
        self.screen.print(as_line(Span(printable(text), style)))

    # --- what a person may change --------------------------------------------------------------

    def start_anew(self) -> None:
        """Forget the conversation; a stored one is kept, and a new one begins beside it."""
        if self._store is None:
            self.agent.reset()
            return
        self._thread_id = uuid4().hex
        self._agent = self._new_agent(self.agent.state.model)

    def change_model(self, name: str) -> None:
        """Go on with another model. Raises ``UsageError`` if it cannot be asked; then all is as it was."""
        self._say_what_takes_long(name)
        opened = ExitStack()
        state = self.agent.state
        state.model = opened.enter_context(open_model(model_settings(self.options, name)))
        self._opened.close()
        self._opened, self.model_name = opened, name
        state.tools = tools_for(self.options, name)
        state.system_prompt = system_prompt(self.options, has_tools=bool(state.tools))

    def _say_what_takes_long(self, name: str) -> None:
        if name.partition(":")[0] == "local":
            self.say("Starting the local model ...", "dim")

    def _new_agent(self, model: StreamingModel) -> Agent:
        return make_agent(
            self.options,
            model,
            self._channel,
            self.consent,
            model_name=self.model_name,
            checkpointer=self._store,
            thread_id=self._thread_id,
        )

    # --- talking -------------------------------------------------------------------------------

    def talk(self) -> int:
        """Read and answer until the person leaves; returns the exit code."""
        self.screen.print(*self._greeting())
        commands = SlashCommands(self)
        reader = _LineReader()
        while not commands.has_quit:
            try:
                line = reader.read()
            except KeyboardInterrupt:
                if reader.was_interrupted_twice():
                    return exit_code_of(signal.SIGINT)
                self.screen.print(as_line(""), as_line(Span("(Ctrl-C once more leaves, and so does Ctrl-D)", "dim")))
                continue
            except EOFError:
                if sys.stdin.isatty():
                    self.screen.print(as_line(""))
                return 0
            code = self._answer(line.strip(), commands)
            if code is not None:
                return code
        return 0

    def _answer(self, line: str, commands: SlashCommands) -> int | None:
        """Do what a line says; returns an exit code if it is time to leave."""
        if line.startswith("/"):
            commands.do(line)
            return None
        return self._turn(line) if line else None

    def _turn(self, line: str) -> int | None:
        view = ConversationView(self.screen.glyphs, has_region=self.screen.is_live)
        display = TurnDisplay(self.screen, view, self._show)
        interrupts = Interrupts(partial(self._stop, display), partial(self._leave, display))
        began = time.monotonic()
        turn = partial(run_turn, channel=self._channel, checkpointer=self._store)
        try:
            result = anyio.run(turn, self.agent, line, display, interrupts, backend=self.options.backend)
        except KeyboardInterrupt:  # before the run had begun to listen, or where signals are not heard
            self.screen.print(as_line(Span("Interrupted; the conversation goes on.", "stopped")))
        except CubepiError as error:
            self.say(f"This did not work: {error}", "bad")
        else:
            self.screen.print(*_outcome(result, time.monotonic() - began))
        if interrupts.received not in (None, signal.SIGINT):
            return exit_code_of(interrupts.received)
        return None

    def _show(self, piece: Piece) -> None:
        if piece.is_line:
            self.screen.print(piece.spans)
        else:
            self.screen.write(*piece.spans)

    def _stop(self, display: TurnDisplay) -> None:
        display.say(as_line(Span("Stopping; Ctrl-C once more leaves at once.", "stopped")))
        self.agent.abort("interrupted")

    def _leave(self, display: TurnDisplay) -> None:
        self.screen.close()
        kill_child_groups()
        display.say(LEFT_AT_ONCE)

    def _greeting(self) -> Iterator[Line]:
        tools = ", ".join(tool.name for tool in self.agent.state.tools) or "no tools"
        yield as_line(Span(self.model_name, "strong"))
        yield as_line(Span(f"on {self.options.backend}, with {tools}", "dim"))
        if self.agent.state.messages:
            yield as_line(
                Span(f"The conversation goes on after {counted(len(self.agent.state.messages), 'message')}.", "dim")
            )
        yield as_line(Span("/help lists what you can do; Ctrl-C ends an answer, Ctrl-D the conversation.", "dim"))
        if self.screen.hint:
            yield as_line(Span(self.screen.hint, "dim"))


def _outcome(result: RunResult, seconds: float) -> Iterator[Line]:
    """What there is to say when a turn has ended."""
    match result.outcome:
        case "aborted":
            yield as_line(Span("Aborted; the conversation goes on.", "stopped"))
        case "error":
            yield as_line(Span(f"The model could not answer: {printable(str(result.error))}", "bad"))
        case "limit":
            yield as_line(Span(f'Ended by {result.limit}={result.limit_value:g}; say "go on" to go on.', "late"))
        case _:
            usage = result.usage
            words = f"{usage.context_tokens:,} tokens read, {usage.output_tokens:,} written, {seconds_text(seconds)}"
            yield as_line(Span(f"({words})", "dim"))
    yield as_line("")


class _LineReader:
    """Reads lines from the person, with the editing of readline where there is one."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdin.isatty()
        self._interruptions = 0
        if self._is_terminal:
            with suppress(ImportError):
                import_module("readline")  # being loaded is all that `input` wants of it

    def read(self) -> str:
        """The next line. Raises ``EOFError`` at the end and ``KeyboardInterrupt`` for Ctrl-C."""
        while True:
            try:
                line = input(_PROMPT if self._is_terminal else "")
            except UnicodeDecodeError:
                print("(this line is not in the terminal's encoding)")
                continue
            except KeyboardInterrupt:
                self._interruptions += 1
                raise
            self._interruptions = 0
            return line

    def was_interrupted_twice(self) -> bool:
        """Whether Ctrl-C was pressed a second time with nothing said in between."""
        return self._interruptions > 1


# --- the stored conversation -------------------------------------------------------------------


def _store(path: str | None) -> Checkpointer | None:
    if path is None:
        return None
    from ...checkpointers.sqlite import SQLiteCheckpointer  # noqa: PLC0415 - loads the database

    return SQLiteCheckpointer(path)
