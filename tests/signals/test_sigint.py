"""One Ctrl-C ends a program that runs an agent: in time, with the usual exit code, a whole record, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BUSY_MACHINE, needs_trio, needs_uvloop
from tests.support.processes import is_alive

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX knows them")

PROGRAMS = Path(__file__).with_name("programs.py")
DEADLINE_SECONDS = 25.0 * BUSY_MACHINE
BACKENDS = [
    "asyncio",
    pytest.param("uvloop", marks=needs_uvloop),
    pytest.param("trio", marks=needs_trio),
]
INTERRUPTED = {130, -signal.SIGINT}
"""Python ends itself by the signal it was sent, which ``subprocess`` shows as -2 and a shell as 130."""


@dataclass
class Program:
    """A program while it runs."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str])

    def until(self, text: str) -> None:
        """Read lines up to one that is ``text``."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if self.lines[-1] == text:
                return
        assert self.process.stderr is not None
        raise AssertionError(f"{text!r} did not come: {self.lines}\n{self.process.stderr.read()}")

    def interrupt(self) -> None:
        """As Ctrl-C in a terminal would, but to the program alone: its children have groups of their own."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Wait for the end: exit code and standard error."""
        out, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        self.lines += out.splitlines()
        return self.process.returncode, errors

    @property
    def report(self) -> dict[str, Any]:
        """What the program said last."""
        return json.loads(self.lines[-1])


@contextmanager
def running(*arguments: str) -> Generator[Program]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(PROGRAMS), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    timer = threading.Timer(DEADLINE_SECONDS, process.kill)
    timer.start()
    try:
        yield Program(process)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@dataclass
class Expected:
    roles: list[str]
    endings: list[list[str]]
    within_seconds: float
    """On a quiet machine; what the tools of the programs wait for takes a minute."""
    processes: int = 0


CANCELLED = ["cancelled", "cancelled"]
CASES = {
    "async_tool": Expected(["uatt"], [CANCELLED], 2.0),
    "polling_thread": Expected(["uatt"], [["stopped half-way"] * 2], 2.0),
    "deaf_thread": Expected(["uatt"], [["abandoned"] * 2], 3.0),
    "child_process": Expected(["uatt"], [CANCELLED], 3.0, processes=4),
    "deaf_process": Expected(["uat"], [["cancelled"]], 4.0, processes=1),
    "silent_model": Expected(["ua"], [[]], 2.0),
    "nested": Expected(["uatt", "uat", "uat"], [CANCELLED, ["cancelled"], ["cancelled"]], 3.0),
    "short_cleaning": Expected(["uat"], [["cancelled"]], 3.0),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_one_interrupt_ends_the_program_in_time_with_a_whole_record(case: str, backend: str) -> None:
    """B104, B111."""
    expected = CASES[case]
    with running(case, backend) as program:
        program.until("ready")
        began = time.monotonic()
        program.interrupt()
        code, errors = program.end()
        took = time.monotonic() - began
    assert code in INTERRUPTED, errors
    assert took < expected.within_seconds * BUSY_MACHINE
    report = program.report
    assert report["faults"] == [[] for _ in expected.roles]
    assert report["roles"] == expected.roles
    assert report["endings"] == expected.endings
    assert report["last_events"] == ["agent_end" for _ in expected.roles]
    assert report["outcomes"] == ["aborted" for _ in expected.roles]
    assert len(report["pids"]) == expected.processes
    assert [pid for pid in report["pids"] if is_alive(pid)] == []
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "ExceptionGroup" not in errors
    assert "never retrieved" not in errors
    assert ("clean" in program.lines) is (case == "short_cleaning")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_interrupt_ends_a_program_whose_tool_cleans_up_for_ever(backend: str) -> None:
    """B111: a second interrupt is not held up by what a tool does under its own shield."""
    with running("cleaning", backend) as program:
        program.until("ready")
        program.interrupt()
        program.until("cleaning")
        began = time.monotonic()
        program.interrupt()
        code, errors = program.end()
        took = time.monotonic() - began
    assert took < 5 * BUSY_MACHINE, errors
    assert code in INTERRUPTED, errors
    assert program.report["roles"] == ["uat"]
    assert program.report["faults"] == [[]]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=needs_trio)])
@pytest.mark.parametrize("way", ["abort", "scope"])
@pytest.mark.parametrize("case", ["async_tool", "polling_thread", "child_process", "silent_model", "nested"])
def test_after_a_run_has_ended_the_process_is_idle(case: str, way: str, backend: str) -> None:
    """G1: below 1 % of one processor over the half second after the end."""
    with running(case, backend, way) as program:
        code, errors = program.end()
    assert code == 0, errors
    assert json.loads(program.lines[-1]) < 0.005
