"""``cubepi-anyio run``: one prompt, its answer on standard output, what goes on on standard error.

On a terminal the answer is written as it comes. Into a pipe or a file goes only the model's last message, whole, so
that what it says before its calls is not taken for the answer; with ``--json`` every event goes there as it happens.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import anyio

from .. import Agent, AgentEvent, CubepiError, RunResult, UsageError
from ..providers.base import StreamingModel
from .agents import Consent, make_agent, model_settings, options_fault
from .chat.turn import AskingChannel, TurnDisplay, run_turn
from .chat.view import ConversationView, Piece
from .file_tools import NEED_CONSENT
from .json_events import event_line, result_line
from .models import open_model
from .options import add_agent_options, leave_with_usage, seconds_option
from .screen.interrupts import Interrupts, exit_code_of
from .screen.leaving import LEFT_AT_ONCE, kill_child_groups
from .screen.screen import PlainScreen, Reader, show_what_cannot_be_encoded
from .screen.text import Span, as_line, printable

__all__ = ("FAILED", "LIMIT", "OK", "add_parser", "run")

OK = 0
"""Exit code of a run that completed."""

FAILED = 1
"""Exit code when the model failed, or something of ours."""

LIMIT = 3
"""Exit code of a run that a limit ended."""

_DESCRIPTION = """\
Sends one prompt to a model and prints its answer. The model may read, list and search files below --cwd; writing files
and running programs it may after you allowed it: on a terminal you are asked, elsewhere it takes --allow or --yes.
Exit codes: 0 answered, 1 the model failed, 2 wrong arguments or a missing key, 3 a limit was reached, 130 Ctrl-C.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add ``run`` to the subcommands of a parser, with the options that all of them share."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run", help="send one prompt to a model and print its answer", description=_DESCRIPTION, parents=[common]
    )
    parser.add_argument("prompt", metavar="PROMPT", help="what to say; - reads it from standard input")
    add_agent_options(parser)
    parser.add_argument("--json", action="store_true", help="print every event, and at last the result, as JSON lines")
    parser.add_argument("--timeout", type=seconds_option, metavar="SECONDS", help="end the run after so long")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of what goes on")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Do the run and return the exit code. Leaves by ``SystemExit`` with code 2 for what cannot be used.

    Raises ``BrokenPipeError`` if nobody reads the answer any more.
    """
    leave_with_usage(options, options_fault(options))
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace") if options.prompt == "-" else options.prompt
    leave_with_usage(options, "" if prompt.strip() else "the prompt is empty")
    try:
        with open_model(model_settings(options)) as model:
            return _OneRun(options).run(prompt, model)
    except UsageError as error:
        leave_with_usage(options, str(error))
    except CubepiError as error:
        print(f"{options.parser.prog}: {printable(str(error))}", file=sys.stderr)
    return FAILED


class _OneRun:
    """One run and where it is shown."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._answers = PlainScreen(sys.stdout)
        self._progress = PlainScreen(sys.stderr)
        show_what_cannot_be_encoded(sys.stdout)
        self._reader = Reader()
        self._is_streamed = sys.stdout.isatty() and not options.json
        view = ConversationView(self._progress.glyphs, has_region=False, show_thinking=False)
        self._display = TurnDisplay(self._progress, view, self._show)

    def run(self, prompt: str, model: StreamingModel) -> int:
        options = self._options
        channel = AskingChannel(lambda text: self._progress.write(Span(text)))
        can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not options.json and options.prompt != "-"
        consent = Consent(NEED_CONSENT if options.yes else options.allow, can_ask=can_ask)
        agent = make_agent(options, model, channel, consent, model_name=options.model, run_timeout=options.timeout)
        interrupts = Interrupts(partial(self._stop, agent), self._leave)
        work = partial(run_turn, agent, prompt, self._display, interrupts, channel=channel)
        result = anyio.run(partial(work, listener=self._write_event if options.json else None), backend=options.backend)
        self._finish(result)
        if result.outcome == "aborted":
            return FAILED if interrupts.received is None else exit_code_of(interrupts.received)
        return {"completed": OK, "limit": LIMIT}.get(result.outcome, FAILED)

    def _show(self, piece: Piece) -> None:
        if piece.is_answer:
            if self._is_streamed:
                self._answers.write(*piece.spans)
        elif not self._options.quiet:
            self._progress.write(*piece.spans, *([Span("\n")] if piece.is_line else []))

    def _write_event(self, event: AgentEvent) -> None:
        if self._reader.is_there:
            with self._reader:
                self._answers.write(Span(f"{event_line(event)}\n"))

    def _finish(self, result: RunResult) -> None:
        if self._options.json:
            self._answers.write(Span(f"{result_line(result)}\n"))
        elif not self._is_streamed and result.text:
            text = result.text if result.text.endswith("\n") else f"{result.text}\n"
            self._answers.write(Span(text))
        if result.outcome == "error":
            self._complain(f"the model could not answer: {result.error}")
        if result.outcome == "limit":
            self._complain(f"the run was ended by its limit {result.limit}={result.limit_value:g}")

    def _complain(self, words: str) -> None:
        self._progress.print(as_line(Span(f"{self._options.parser.prog}: {printable(words)}", "bad")))

    def _stop(self, agent: Agent) -> None:
        self._display.say(as_line(Span("Interrupted: stopping the run. Once more leaves at once.", "stopped")))
        agent.abort("interrupted")

    def _leave(self) -> None:
        kill_child_groups()
        self._display.say(LEFT_AT_ONCE)
