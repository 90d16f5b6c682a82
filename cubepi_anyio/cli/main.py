"""The command ``cubepi-anyio``: its arguments, its subcommands and its exit codes.

0: it worked. 1: it failed. 2: the arguments cannot be used. 3: a limit ended it. 128 and the number of a signal: it was
interrupted, 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from .. import __version__
from . import one_run
from .chat import command as chat
from .demo import command as demo
from .screen.interrupts import exit_code_of

__all__ = ("main",)

_COMMANDS = (demo, chat, one_run)
"""One module for each subcommand: ``add_parser`` describes it and names the function that runs it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process; returns the exit code.

    ``--help``, ``--version`` and arguments that cannot be used leave by ``SystemExit``.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        return exit_code_of(signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cubepi-anyio", description="LLM agents on structured concurrency, on asyncio and on trio."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--no-color", action="store_true", help=_NO_COLOR)
    # A subcommand's own default would overrule what stands before the subcommand.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--no-color", action="store_true", default=argparse.SUPPRESS, help=_NO_COLOR)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands, common)
    return parser


_NO_COLOR = "no colours, as with the environment variable NO_COLOR"
