"""Child processes that tests talk to: they say where they listen, and end when we do."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-servers"
MISSING = "missing in {1}: {0}; `.ci/run servers` installs it"


@contextmanager
def child(command: Sequence[str | Path]) -> Generator[Child]:
    """Run a child that reads lines and answers each with one, until the block is left.

    It is to end when its input does, so that it outlives neither the block nor this process.
    """
    with subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Child(process.stdin, process.stdout)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Child:
    """A running child: one line in, one line out."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def line(self) -> str:
        """The next line it says."""
        said = self._stdout.readline()
        assert said, "the child process ended; what it wrote to standard error says why"
        return said.strip()

    def ask(self, line: str) -> str:
        """Say one line and hear one."""
        self._stdin.write(line + "\n")
        self._stdin.flush()
        return self.line()
