"""Run a program for a tool, so that nothing of it is alive when the tool has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from ..concurrency import bare_error
from .definition import OnUpdate

__all__ = ("ProcessOutput", "ProcessResult", "run_process")

_MAX_OUTPUT_BYTES = 1_000_000
_LINGER_SECONDS = 0.2
"""How long output is still read when the program has ended: a program it started may hold the pipe open for ever."""
_POLL_SECONDS = 0.02


class ProcessOutput:
    """What a program has written so far: all of it, or of too much the beginning and the end.

    Give one to ``run_process`` to read what there was after a cancellation.
    """

    def __init__(self, max_bytes: int = _MAX_OUTPUT_BYTES) -> None:
        self._half = max(max_bytes // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        """Everything the program wrote, kept or not."""

    def add(self, chunk: bytes) -> None:
        """Take in what the program wrote; O(chunk), memory stays bounded."""
        self.total_bytes += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def is_cut(self) -> bool:
        """Whether something in the middle is missing."""
        return self.total_bytes > 2 * self._half

    @property
    def text(self) -> str:
        """The output as text; bytes that are no UTF-8 are replaced, and a line says how much is missing."""
        if not self.is_cut:
            return (self._head + self._tail).decode(errors="replace")
        missing = self.total_bytes - 2 * self._half
        tail = self._tail[-self._half :]
        note = f"\n[... {missing} bytes left out ...]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


@dataclass(slots=True)
class ProcessResult:
    """How a program ended."""

    exit_code: int
    """As the system gives it: negative for the signal that ended the program."""
    output: str
    """What it wrote to its standard output and error, in the order it came."""
    timed_out: bool = False
    """Whether it was ended because ``timeout`` was over."""
    is_cut: bool = False
    """Whether ``output`` lacks its middle."""


@dataclass(slots=True)
class _Job:
    process: Process
    output: ProcessOutput
    on_update: OnUpdate | None
    terminate_seconds: float
    timed_out: bool = field(default=False, init=False)


async def run_process(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    on_update: OnUpdate | None = None,
    output: ProcessOutput | None = None,
    stdin: bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    terminate_seconds: float = 2.0,
) -> ProcessResult:
    """Run a program to its end and return how it ended; a string is given to the shell.

    ``timeout`` in seconds ends the program and returns what there was. ``on_update`` gets each piece of output as text.
    Returns when the program ends, also if something it started holds its pipes. Whatever is left of its process
    group is ended then: first asked (SIGTERM), after ``terminate_seconds`` killed.

    A checkpoint. Cancelled, it ends the group in the same way before the cancellation goes on; ``output``, if one was
    given, holds what there was. Raises ``OSError`` if the program cannot be started.
    """
    process = await anyio.open_process(
        command,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=os.name == "posix",
    )
    job = _Job(process, output if output is not None else ProcessOutput(), on_update, terminate_seconds)
    try:
        await _attend(job, stdin, timeout)
    finally:
        with anyio.CancelScope(shield=True):
            await _end_group(process, terminate_seconds)
            await process.aclose()
    return ProcessResult(process.returncode or 0, job.output.text, job.timed_out, job.output.is_cut)


async def _attend(job: _Job, stdin: bytes | None, timeout: float | None) -> None:
    """Read what the program writes until it ends or its time is over."""
    process = job.process
    assert process.stdout is not None
    reading_ended = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, job, reading_ended)
            if stdin is not None:
                tasks.start_soon(_feed, process, stdin)
            with anyio.move_on_after(timeout) as scope:
                await process.wait()
            if scope.cancelled_caught:
                job.timed_out = True
                await _end_group(process, job.terminate_seconds)
            with anyio.move_on_after(_LINGER_SECONDS):
                await reading_ended.wait()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = bare_error(group)
    else:
        return
    raise error


async def _read(stream: ByteReceiveStream, job: _Job, ended: anyio.Event) -> None:
    try:
        async for chunk in stream:
            job.output.add(chunk)
            if job.on_update is not None:
                await job.on_update(chunk.decode(errors="replace"))
    finally:
        ended.set()


async def _feed(process: Process, stdin: bytes) -> None:
    assert process.stdin is not None
    # A program need not read what it is given.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.send(stdin)
    await process.stdin.aclose()


async def _end_group(process: Process, terminate_seconds: float) -> None:
    """End the program and all that is left of its group, and wait until it has been reaped."""
    if not _is_alive(process):
        return
    _signal_group(process, signal.SIGTERM)
    with anyio.move_on_after(terminate_seconds):
        while _is_alive(process):  # noqa: ASYNC110 - the system tells nobody when a group is empty
            await anyio.sleep(_POLL_SECONDS)
    if _is_alive(process):
        _signal_group(process, _KILL)
    await process.wait()


_KILL: Any = getattr(signal, "SIGKILL", signal.SIGTERM)


def _is_alive(process: Process) -> bool:
    """Whether the program, or anything else of its group, has not ended."""
    if process.returncode is None:
        return True
    if os.name != "posix":
        return False
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # nobody, or somebody else's group that has the number now
    return not _is_only_waiting_to_be_reaped(process.pid)


def _is_only_waiting_to_be_reaped(group: int) -> bool:
    """Whether all of a group has ended: in a container without an init, nobody reaps what a dead parent leaves.

    Linux only, by field 3 (state) and 5 (group) of ``/proc/<pid>/stat``; elsewhere nothing is known.
    """
    known = False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The second field is the program's name in brackets, which may hold anything.
            state, _, pgrp = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
            if int(pgrp) == group:
                known = True
                if state not in ("Z", "X"):
                    return False
    return known


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
