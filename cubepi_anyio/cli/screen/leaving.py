"""What is done before the process ends at once: the programs it started are ended with it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from .text import Span, as_line

__all__ = ("LEFT_AT_ONCE", "kill_child_groups")

LEFT_AT_ONCE = as_line(Span("Left at once: what still ran was not waited for.", "bad"))
"""The last words of a process that is told a second time to stop."""


def kill_child_groups() -> None:
    """Kill every child that leads a group of its own, and its group; those of our own group are left to the terminal.

    Where the system does not list children in ``/proc`` (elsewhere than on Linux), nothing is done.
    """
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listing.read_text(encoding="ascii").split()):
                with suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(child) == child:
                        os.killpg(child, signal.SIGKILL)
