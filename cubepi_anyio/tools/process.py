"""Run a program for a tool, so that nothing of it is alive when the tool has ended."""

from __future__ import annotations

import codecs
import math
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import anyio
from anyio import CancelScope
from anyio.abc import ByteReceiveStream, Process
from anyio.lowlevel import checkpoint

from ..concurrency import run_in_tasks
from .define.definition import OnUpdate

__all__ = ("ProcessOutput", "ProcessResult", "run_process")

_MAX_OUTPUT_BYTES = 1_000_000
_LINGER_SECONDS = 0.2
"""How long output is still read when the program has ended: a program it started may hold the pipe open for ever."""
_POLL_SECONDS = 0.02
_WAIT_SECONDS = 0.1
_KILL_SECONDS = 1.0
"""How long a killed group may take to be gone; what the system itself holds up is not waited for."""
_MAX_LEFT_BYTES = 1_000_000
"""How much is still read when the group has ended: what left the group may write for ever."""


class ProcessOutput:
    """What a program has written so far: all of it, or of too much the beginning and the end.

    Give one to ``run_process`` to read what there was after a cancellation.
    """

    def __init__(self, max_bytes: int = _MAX_OUTPUT_BYTES) -> None:
        self._half = max(max_bytes // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes: int = 0
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
    """One program, from its start to the end of its group."""

    output: ProcessOutput
    on_update: OnUpdate | None
    timeout: float | None
    terminate_seconds: float
    timed_out: bool = False
    reading_ended: anyio.Event = field(default_factory=anyio.Event)
    receiving: CancelScope = field(default_factory=CancelScope)
    last_byte: float = math.inf
    """The count of bytes after which nothing more is read; set when the group has ended."""

    @property
    def patience_seconds(self) -> float:
        """How long to wait for a piece of output."""
        return math.inf if self.last_byte == math.inf else _LINGER_SECONDS

    def read_only_what_is_left(self) -> None:
        """Nobody of the group writes any more."""
        self.last_byte = self.output.total_bytes + _MAX_LEFT_BYTES
        self.receiving.deadline = anyio.current_time() + _LINGER_SECONDS


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

    ``timeout`` in seconds ends the program and returns what there was. ``on_update`` gets each piece of output as text;
    awaiting it holds the program back. Returns when the program ends, also if something it started holds its pipes.
    Whatever is left of its process group is ended then: first asked (SIGTERM), after ``terminate_seconds`` killed.
    Only what has left the group, as a daemon does, goes on.

    A checkpoint. Cancelled, it ends the group in the same way before the cancellation goes on; ``output``, if one was
    given, holds what there was. Raises ``OSError`` if the program cannot be started, ``ValueError`` for a command that
    is empty or has a NUL in it, and what ``on_update`` raises.
    """
    parts = [command] if isinstance(command, str) else list(command)
    if not parts or not parts[0]:
        raise ValueError("the command is empty; give a string for the shell, or a program and its arguments")
    if any("\0" in part for part in parts):
        # What stands behind it would be lost on the way to the system.
        raise ValueError("the command has a NUL character in it, which no program can be given")
    job = _Job(output if output is not None else ProcessOutput(), on_update, timeout, terminate_seconds)
    start = partial(
        anyio.open_process,
        command,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=os.name == "posix",
    )
    result: list[ProcessResult] = []

    async def work() -> None:
        result.append(await _run(job, start, stdin))

    # In a task of its own, because ``Task.cancel()`` knows no shield.
    await run_in_tasks((work,))
    return result[0]


async def _run(job: _Job, start: Callable[[], Awaitable[Process]], stdin: bytes | None) -> ProcessResult:
    await checkpoint()
    process: Process | None = None
    # A start that is interrupted half-way would leave a program that nobody knows of.
    with CancelScope(shield=True):
        process = await start()
    assert process is not None
    try:
        await _attend(process, job, stdin)
    finally:
        with CancelScope(shield=True):
            await _end_group(process, job.terminate_seconds)
            await process.aclose()
    return ProcessResult(process.returncode or 0, job.output.text, job.timed_out, job.output.is_cut)


async def _attend(process: Process, job: _Job, stdin: bytes | None) -> None:
    """Read what the program writes until it ends or its time is over."""
    assert process.stdout is not None
    with CancelScope() as attending:

        async def watch() -> None:
            await _watch(process, job)
            attending.cancel()

        feed = [partial(_feed, process, stdin)] if stdin is not None else []
        await run_in_tasks([partial(_read, process.stdout, job), watch, *feed])


async def _watch(process: Process, job: _Job) -> None:
    """Wait for the end of the program, or bring it about; then for the end of its output."""
    with anyio.move_on_after(job.timeout) as scope:
        # On asyncio with some versions of Python, wait() returns only when the pipes are closed too; the code is known.
        while process.returncode is None:
            with anyio.move_on_after(_WAIT_SECONDS):
                await process.wait()
    if scope.cancelled_caught:
        job.timed_out = True
    else:
        with anyio.move_on_after(_LINGER_SECONDS):
            await job.reading_ended.wait()
    await _end_group(process, job.terminate_seconds)
    job.read_only_what_is_left()
    await job.reading_ended.wait()


async def _read(stream: ByteReceiveStream, job: _Job) -> None:
    text = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while job.output.total_bytes < job.last_byte:
            chunk = await _receive(stream, job)
            piece = text.decode(chunk, final=not chunk)
            if piece and job.on_update is not None:
                await job.on_update(piece)
            if not chunk:
                return
    finally:
        job.reading_ended.set()


async def _receive(stream: ByteReceiveStream, job: _Job) -> bytes:
    """The next piece of output, or nothing if it has ended."""
    with CancelScope(deadline=anyio.current_time() + job.patience_seconds) as job.receiving:
        with suppress(anyio.EndOfStream):
            chunk = await stream.receive()
            job.output.add(chunk)
            return chunk
    return b""


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
    if not await _is_gone_within(process, terminate_seconds):
        _signal_group(process, _KILL)
        await _is_gone_within(process, _KILL_SECONDS)


async def _is_gone_within(process: Process, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        while _is_alive(process):  # noqa: ASYNC110 - the system tells nobody when a group is empty
            await anyio.sleep(_POLL_SECONDS)
    return not _is_alive(process)


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
