"""``cubepi-anyio chat``: its arguments, and what is wrong with them. ``conversation.py`` does the talking."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ...errors import CubepiError, UsageError
from ..agents import options_fault
from ..options import add_agent_options, leave_with_usage
from ..screen.screen import open_screen
from ..screen.text import printable
from .conversation import Conversation

__all__ = ("add_parser", "run")

_DESCRIPTION = """\
Talks with a model. Answers are shown as they are written; the model may read, list and search files below --cwd, and
you are asked before it writes a file or runs a program. Ctrl-C ends an answer and the conversation goes on; a second
one leaves at once. At the prompt /help lists what you can do, and Ctrl-D leaves.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add ``chat`` to the subcommands of a parser, with the options that all of them share."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat", help="talk with a model that can use your files", description=_DESCRIPTION, parents=[common]
    )
    add_agent_options(parser)
    parser.add_argument("--thread", metavar="PATH", help="keep the conversation in this file, and go on from it")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Talk until the person leaves, and return the exit code: 0, or 130 after Ctrl-C at the prompt, twice.

    Leaves by ``SystemExit`` with code 2 for arguments that cannot be used, a missing key among them.
    """
    leave_with_usage(options, options_fault(options))
    screen = open_screen(colour=not options.no_color)
    try:
        with Conversation(options, screen) as conversation:
            return conversation.talk()
    except UsageError as error:
        leave_with_usage(options, printable(str(error)))
    except CubepiError as error:
        print(f"{options.parser.prog}: {printable(str(error))}", file=sys.stderr)
    finally:
        screen.close()
    return 1
