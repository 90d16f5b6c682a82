"""The tools of the demo: three that do real work on files, one that fails, and one that is too slow."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from anyio import to_thread

from ... import AbortSignal, AgentTool, AgentToolResult, tool
from ..screen.text import counted, size_text
from .files import FileSet, TextFile

__all__ = (
    "Pace",
    "Progress",
    "UpdateFunction",
    "demo_tools",
)

UpdateFunction = Callable[[object], Any]
"""``on_update`` as the tools of the demo call it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tool has come."""

    done: int
    total: int
    noun: str


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the demo goes: 1 can be watched, 2 is twice as fast, 0 does not wait at all."""

    speed: float

    def seconds(self, at_speed_one_seconds: float) -> float:
        """A wait at this pace, in seconds."""
        return at_speed_one_seconds / self.speed if self.speed else 0.0

    @property
    def slow_timeout_seconds(self) -> float:
        """What the call that is too slow gets."""
        return self.seconds(1.5) or 0.25

    @property
    def tokens_per_second(self) -> float | None:
        """How fast the stand-in for a model writes; ``None`` is as fast as it is read.

        It does not become slower than can be read with patience: slowing down is for watching the tools.
        """
        return 100 * max(self.speed, 0.25) if self.speed else None


def demo_tools(files: FileSet, pace: Pace) -> list[AgentTool]:
    """The five tools, over these files."""
    return [
        _count_lines(files, pace),
        _hash_files(files, pace),
        _search_text(files, pace),
        _read_file(files, pace),
        _ask_slow_service(pace),
    ]


def _answer(summary: str, **facts: Any) -> AgentToolResult:
    """JSON for the model; one line for people, as ``details``."""
    return AgentToolResult(json.dumps(facts), details=summary)


def _step_seconds(files: FileSet, pace: Pace, total_seconds: float) -> float:
    """How long to wait after each file, so that all of them take ``total_seconds`` at speed 1."""
    return pace.seconds(total_seconds) / max(len(files.files), 1)


def _read(file: TextFile) -> str:
    return file.path.read_bytes().decode("utf-8", "replace")


def _count_lines(files: FileSet, pace: Pace) -> AgentTool:
    @tool
    async def count_lines(on_update: UpdateFunction) -> AgentToolResult:
        """Count the lines and words of every file, as the command ``wc`` does."""
        total, step_seconds = len(files.files), _step_seconds(files, pace, 0.7)
        lines = words = size_bytes = 0
        by_name: dict[str, int] = {}
        for done, file in enumerate(files.files, 1):
            text = await to_thread.run_sync(_read, file)
            by_name[file.name] = text.count("\n")
            lines += by_name[file.name]
            words += len(text.split())
            size_bytes += file.size_bytes
            await on_update(Progress(done, total, "files"))
            await anyio.sleep(step_seconds)
        longest = sorted(by_name.items(), key=lambda item: -item[1])[:3]
        summary = (
            f"{counted(total, 'file')}, {counted(lines, 'line')}, {counted(words, 'word')}, {size_text(size_bytes)}"
        )
        return _answer(summary, files=total, lines=lines, words=words, bytes=size_bytes, longest=longest)

    return count_lines


def _hash_files(files: FileSet, pace: Pace) -> AgentTool:
    @tool
    def hash_files(signal: AbortSignal, on_update: UpdateFunction) -> AgentToolResult:
        """Compute the SHA-256 of every file. A plain function: the library runs it in a worker thread."""
        total, step_seconds = len(files.files), _step_seconds(files, pace, 1.1)
        digests: dict[str, str] = {}
        for file in files.files:
            digests[file.name] = hashlib.sha256(file.path.read_bytes()).hexdigest()
            on_update(Progress(len(digests), total, "files"))
            _pause(step_seconds, signal)
            if signal.is_set():
                raise RuntimeError(f"told to stop after {counted(len(digests), 'file')}")
        different = len(set(digests.values()))
        summary = f"{counted(total, 'file')}, {different:,} with different contents"
        return _answer(summary, digests=digests, different=different)

    return hash_files


def _pause(seconds: float, signal: AbortSignal) -> None:
    """Wait in a thread, in slices, so that a call that is cancelled is not abandoned to its thread."""
    until = time.monotonic() + seconds
    while not signal.is_set() and (rest := until - time.monotonic()) > 0:
        time.sleep(min(rest, 0.02))


def _search_text(files: FileSet, pace: Pace) -> AgentTool:
    @tool
    async def search_text(
        text: Annotated[str, "what to look for; upper and lower case are the same"], on_update: UpdateFunction
    ) -> AgentToolResult:
        """Find the lines that contain a text."""
        total, step_seconds = len(files.files), _step_seconds(files, pace, 0.9)
        wanted = text.casefold()
        hits: dict[str, int] = {}
        for done, file in enumerate(files.files, 1):
            contents = await to_thread.run_sync(_read, file)
            found = sum(wanted in line.casefold() for line in contents.splitlines())
            if found:
                hits[file.name] = found
            await on_update(Progress(done, total, "files"))
            await anyio.sleep(step_seconds)
        lines = sum(hits.values())
        most = max(hits.items(), key=lambda item: item[1], default=None)
        summary = f"{text!r} in {counted(lines, 'line')} of {counted(len(hits), 'file')}"
        return _answer(summary, text=text, lines=lines, files=len(hits), most=most)

    return search_text


def _read_file(files: FileSet, pace: Pace) -> AgentTool:
    @tool
    async def read_file(name: Annotated[str, "path of the file, relative to the folder"]) -> str:
        """Read one file."""
        await anyio.sleep(pace.seconds(0.4))
        root = files.root.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise PermissionError(f"{name} is not in the folder")
        return await anyio.Path(path).read_text(encoding="utf-8", errors="replace")

    return read_file


def _ask_slow_service(pace: Pace) -> AgentTool:
    @tool(timeout=pace.slow_timeout_seconds)
    async def ask_slow_service() -> str:
        """Ask a service that never answers in time, and say goodbye to it however the call ends."""
        try:
            await anyio.sleep_forever()  # the answer does not come
        finally:
            # A tool's clean-up that must be done in full is shielded, and has an end.
            with anyio.move_on_after(1 + pace.seconds(1), shield=True):
                await anyio.sleep(pace.seconds(0.2))
        return "an answer at last"

    return ask_slow_service
