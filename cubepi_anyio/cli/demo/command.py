"""``cubepi-anyio demo``: its arguments, and what is wrong with them. The demo itself is in ``demo_run.py``."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

import anyio

from ..options import backend_fault, leave_with_usage
from ..screen.screen import open_screen
from ..screen.text import printable
from .run import DemoSettings, run_demo
from .tools import Pace

__all__ = ("add_parser", "run")

_DESCRIPTION = """\
Runs an agent over your own files: five tools at once, of which one fails and one is too slow, then an answer built
from their results, then a timeline. It is offline and changes nothing: a script plays the model, the rest is real.
Ctrl-C stops the run and shows what is left; a second Ctrl-C leaves at once.
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add ``demo`` to the subcommands of a parser, with the options that all of them share."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="see an agent at work, offline, over your own files", description=_DESCRIPTION, parents=[common]
    )
    parser.add_argument("path", nargs="?", default=".", metavar="PATH", help="folder or file to look at (default: .)")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="default: asyncio")
    parser.add_argument(
        "--speed", type=_speed, metavar="X", help="1 can be watched (default on a terminal), 2 is twice as fast, "
        "0 does not wait at all (default without a terminal)",
    )  # fmt: skip
    parser.add_argument("--max-files", type=_positive, default=200, metavar="N", help="look at most at N files (200)")
    parser.add_argument("--search", type=_text, default="error", metavar="TEXT", help="what to search for (error)")
    parser.set_defaults(run=run, parser=parser)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 <= speed < math.inf:
        raise argparse.ArgumentTypeError(f"a speed is a number, 0 or more, not {text!r}")
    return speed


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of files is 1 or more, not {text!r}")
    return int(text)


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("there is nothing to search for in an empty text")
    return text


def run(options: argparse.Namespace) -> int:
    """Run the demo and return the exit code. Leaves by ``SystemExit`` with code 2 for arguments that cannot be used."""
    path = Path(options.path)
    leave_with_usage(options, backend_fault(options.backend) or _fault_of(path))
    screen = open_screen(colour=not options.no_color)
    speed = options.speed if options.speed is not None else float(screen.is_live)
    settings = DemoSettings(
        path=path, backend=options.backend, pace=Pace(speed), max_files=options.max_files, search=options.search
    )
    try:
        return anyio.run(run_demo, screen, settings, backend=options.backend)
    finally:
        screen.close()


def _fault_of(path: Path) -> str:
    """Why the demo cannot read ``path``, in one line; empty if it can."""
    shown = printable(os.fspath(path))
    try:
        mode_is_known = path.is_dir() or path.is_file()
        if not path.exists():
            return f"no such file or folder: {shown}"
    except (OSError, ValueError) as error:
        return f"cannot use {shown}: {error}"
    if not mode_is_known:
        return f"neither a file nor a folder: {shown}"
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        return f"not allowed to read {shown}"
    return ""
