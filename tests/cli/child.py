"""The command as a person runs it: in a process of its own, with its output read line by line."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

DEADLINE_SECONDS = 25.0
MODULE = ("-W", "error", "-m", "cubepi_anyio")

T = TypeVar("T", bound="Terminal")


def environment(**changes: str) -> dict[str, str]:
    """The environment of a child: nothing in it changes how output looks, except ``changes``."""
    dropped = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "CLICOLOR", "PYTHONDEVMODE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONIOENCODING": "utf-8", **changes}


def run_command(*arguments: str, program: Sequence[str] = MODULE, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without a terminal."""
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment(**changes),
    )


class Running:
    """The command while it runs, without a terminal; it is killed when it takes too long, and on leaving the block."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *MODULE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
        )
        self._timer = threading.Timer(DEADLINE_SECONDS, self._process.kill)
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def lines_until(self, text: str) -> list[str]:
        """Read lines up to the first that contains ``text``; fails if the output ends before."""
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(f"{text!r} did not come:\n" + "\n".join(lines))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop_reading(self) -> None:
        """Close our end of its standard output."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait(self) -> tuple[int, str]:
        """Wait for the end, after ``stop_reading``: exit code, and all of standard error."""
        assert self._process.stderr is not None
        errors = self._process.stderr.read()
        return self._process.wait(timeout=DEADLINE_SECONDS), errors

    def rest(self) -> tuple[int, list[str], str]:
        """Wait for the end: exit code, the lines not yet read, and all of standard error."""
        out, error = self._process.communicate(timeout=DEADLINE_SECONDS)
        return self._process.returncode, out.splitlines(), error


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self._process = master, process
        self.output = ""

    def read_until(self, text: str) -> None:
        """Read what the terminal is sent, until it contains ``text``; fails if it ends before."""
        while text not in self.output:
            assert self._read(), f"{text!r} did not come:\n{self.output}"

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], DEADLINE_SECONDS)
        assert ready, f"nothing came any more:\n{self.output}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side of the terminal is closed
            return False
        self.output += data.decode("utf-8", "replace")
        return bool(data)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def rest(self) -> int:
        """Read to the end; returns the exit code."""
        while self._read():
            pass
        return self._process.wait(timeout=DEADLINE_SECONDS)


@contextmanager
def on_new_terminal(
    kind: type[T], command: Sequence[str], changes: dict[str, str], *, controls: bool = False
) -> Generator[T]:
    """Run Python with ``command`` on a new pseudo-terminal; with ``controls``, Ctrl-C is a key there."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(**{"COLUMNS": "100", "LINES": "40", **changes}),
        preexec_fn=(lambda: os.login_tty(slave)) if controls else None,
    )
    os.close(slave)
    try:
        yield kind(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def on_terminal(*arguments: str, program: Sequence[str] = MODULE, **changes: str) -> AbstractContextManager[Terminal]:
    """Run the command on a new pseudo-terminal."""
    return on_new_terminal(Terminal, [*program, *arguments], {"TERM": "xterm-256color", **changes})


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below ``folder``, with the folders they need."""
    for name, contents in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    return folder
