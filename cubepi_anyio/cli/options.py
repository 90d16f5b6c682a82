"""The arguments that ``chat`` and ``run`` share, and what is wrong with them."""

from __future__ import annotations

import argparse
import math
import os
from importlib.util import find_spec
from pathlib import Path

from ..types.model import ReasoningControl
from .screen.text import printable

__all__ = (
    "MODEL_VARIABLE",
    "add_agent_options",
    "backend_fault",
    "folder_fault",
    "leave_with_usage",
    "positive_number",
    "reasoning_of",
    "seconds_option",
)

MODEL_VARIABLE = "CUBEPI_MODEL"
"""The environment variable that names the model where ``--model`` does not."""

_MODEL_HELP = (
    f"anthropic:ID, openai:ID, openrouter:ID, ollama:ID, ... ; local is a small model on this machine, faux a script "
    f"(default: the variable {MODEL_VARIABLE})"
)


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which model works with which tools, and how far it may go."""
    parser.add_argument("-m", "--model", default=os.environ.get(MODEL_VARIABLE, ""), metavar="NAME", help=_MODEL_HELP)
    parser.add_argument("--base-url", metavar="URL", help="where the model is served, if not at its vendor's address")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt, instead of our own")
    parser.add_argument("--cwd", default=".", metavar="PATH", help="the folder that the tools work in (default: .)")
    parser.add_argument("--no-tools", action="store_true", help="offer no tools to the model")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="TOOL", help="let TOOL run without asking; may be repeated"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="let every tool run without asking")
    parser.add_argument(
        "--think", choices=("low", "medium", "high"), help="let the model think before it answers, if it can"
    )
    parser.add_argument("--max-tokens", type=positive_number, metavar="N", help="of one answer (default: the vendor's)")
    parser.add_argument(
        "--max-turns", type=positive_number, default=100, metavar="N", help="model answers to one prompt (100)"
    )
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="default: asyncio")


def positive_number(text: str) -> int:
    """Read a whole number that is 1 or more. Raises ``argparse.ArgumentTypeError``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number here is 1 or more, not {text!r}")
    return int(text)


def seconds_option(text: str) -> float:
    """Read a positive number of seconds. Raises ``argparse.ArgumentTypeError``."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"a time is a number of seconds, more than 0, not {text!r}")
    return seconds


def backend_fault(backend: str) -> str:
    """Why the event loop cannot be used, in one line; empty if it can."""
    if find_spec(backend) is None:
        return f"{backend} is not installed: pip install 'cubepi-anyio[{backend}]'"
    return ""


def folder_fault(folder: str) -> str:
    """Why the tools cannot work in ``folder``, in one line; empty if they can."""
    try:
        is_folder = Path(folder).is_dir()
    except (OSError, ValueError) as error:
        return f"cannot use {printable(folder)}: {error}"
    return "" if is_folder else f"no such folder: {printable(folder)}"


def reasoning_of(effort: str | None) -> ReasoningControl | None:
    """What ``--think`` asks for."""
    return None if effort is None else ReasoningControl.model_validate({"mode": "on", "effort": effort})


def leave_with_usage(options: argparse.Namespace, fault: str) -> None:
    """Leave by ``SystemExit`` with code 2 and one line that says why; returns if ``fault`` is empty."""
    if fault:
        options.parser.exit(2, f"{options.parser.prog}: error: {fault}\n")
