"""A person at a terminal: types, presses keys, and reads what comes back; and scripts for the model they talk to."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.child import DEADLINE_SECONDS, MODULE, Terminal, on_new_terminal

CTRL_C = "\x03"
CTRL_D = "\x04"
KEYS = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "GROQ_API_KEY",
    "CUBEPI_MODEL",
)

on_both = pytest.mark.parametrize(
    "backend",
    ["asyncio", pytest.param("trio", marks=pytest.mark.skipif(find_spec("trio") is None, reason="no trio"))],
)


class Person(Terminal):
    """The command on a terminal that controls it, and somebody who types there."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(master, process)
        self._read_up_to = 0

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def press(self, key: str) -> None:
        """Press a key when the command waits: readline passes over a signal that comes just before it waits."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while state_of(self._process.pid) != "S":
            assert time.monotonic() < deadline, f"it never waits:\n{self.output}"
        self.type(key)

    def say(self, line: str) -> None:
        """Wait for the prompt and enter a line."""
        self.expect("> ")
        self.type(f"{line}\n")
        self.expect(f"{line}\r\n")

    def expect(self, text: str) -> str:
        """Read on until ``text`` comes; returns what came before it."""
        while (found := self.output.find(text, self._read_up_to)) < 0:
            assert self._read(), f"{text!r} did not come:\n{self.output}"
        before = self.output[self._read_up_to : found]
        self._read_up_to = found + len(text)
        return before


def at_terminal(*arguments: str, program: Sequence[str] = MODULE, **changes: str) -> AbstractContextManager[Person]:
    """Run the command on a new terminal of its own, so that Ctrl-C is a key; plain lines unless ``TERM`` is given."""
    plain = {"TERM": "dumb", "INPUTRC": os.devnull, **changes}
    return on_new_terminal(Person, [*program, *arguments], plain, controls=True)


def state_of(pid: int) -> str:
    """What a process does, as ``ps`` says it: ``S`` if it waits, ``Z`` if nobody has reaped it; empty if it is gone."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, encoding="utf-8", check=False)
    return listed.stdout.strip()[:1]


def has_ended(pid: int) -> bool:
    """Whether a process is no more, or only waits for somebody to reap it."""
    return state_of(pid) in ("", "Z")


def script(folder: Path, *answers: Any) -> str:
    """Write what the model will say; returns its name for ``--model``."""
    path = folder / "script.json"
    path.write_text(json.dumps(answers), encoding="utf-8")
    return f"faux:{path}"


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """An answer that calls tools."""
    made = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    return {"calls": made, **({"text": text} if text else {})}
