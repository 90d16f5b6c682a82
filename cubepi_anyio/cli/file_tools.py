"""Tools for a model that works in one folder: read, list, search and write files, and run programs.

Paths are confined to the folder, also through ``..`` and symbolic links; a program that runs is not: it may do whatever
the person may. So writing and running are named as needing a person's consent.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from anyio import from_thread
from pydantic import Field

from .. import AgentTool, AgentToolResult, tool
from ..tools.process import ProcessOutput, run_process
from .demo.files import BINARY_PROBE_BYTES, find_text_files
from .screen.text import counted, printable, shorten, size_text

__all__ = ("NEED_CONSENT", "file_tools")

NEED_CONSENT = frozenset({"write_file", "run_process"})
"""The tools that change something."""

_MAX_READ_BYTES = 50_000_000
_MAX_LINES = 2000
_MAX_CHARACTERS = 60_000
_MAX_LINE_CHARACTERS = 2000
_MAX_ENTRIES = 500
_MAX_HITS = 200
_MAX_HIT_CHARACTERS = 300
_MAX_SEARCHED_FILES = 5000
_MAX_WRITTEN_BYTES = 1_000_000
_MAX_OUTPUT_BYTES = 30_000
_MAX_SECONDS = 3600.0

_FilePath = Annotated[str, "path of a file, relative to the working folder"]
_FolderPath = Annotated[str, "path of a folder, relative to the working folder"]


def file_tools(folder: Path, *, hidden_variables: Collection[str] = ()) -> list[AgentTool]:
    """The five tools, confined to ``folder``, whose programs do not see the environment's ``hidden_variables``."""
    root = folder.resolve()
    return [_read_file(root), _list_files(root), _search(root), _write_file(root), _run_process(root, hidden_variables)]


def _inside(root: Path, name: str) -> Path:
    """The path that ``name`` means below ``root``. Raises ``ValueError`` for one that leads out."""
    if "\0" in name:
        raise ValueError("a path has no NUL character in it")
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"{name} lies outside the working folder; use a path below it")
    return path


def _regular_file(root: Path, name: str) -> Path:
    path = _inside(root, name)
    if path.is_dir():
        raise ValueError(f"{name} is a folder; list_files shows what is in it")
    if not path.exists():
        raise ValueError(f"there is no file {name}; list_files shows which there are")
    if not path.is_file():
        raise ValueError(f"{name} is no regular file")
    return path


# --- reading ---------------------------------------------------------------------------------


def _read_file(root: Path) -> AgentTool:
    @tool
    def read_file(
        path: _FilePath,
        first_line: Annotated[int, Field(ge=1, description="where to begin, counted from 1")] = 1,
        max_lines: Annotated[int, Field(ge=1, le=_MAX_LINES)] = _MAX_LINES,
    ) -> AgentToolResult:
        """Read a text file, or some of its lines."""
        lines, is_all = _lines(_regular_file(root, path), first_line, max_lines)
        if not lines and first_line > 1:
            raise ValueError(f"{path} has fewer than {first_line} lines")
        note = "" if is_all else f"\n[there is more: go on with first_line={first_line + len(lines)}]"
        found = f"{path}: {counted(len(lines), 'line')}{'' if is_all else ' and more'}"
        return AgentToolResult("".join(lines) + note or "(the file is empty)", details=found)

    return read_file


def _lines(path: Path, first_line: int, max_lines: int) -> tuple[list[str], bool]:
    """Lines of a file, within the bounds, and whether they go to its end."""
    size_bytes = path.stat().st_size
    if size_bytes > _MAX_READ_BYTES:
        raise ValueError(f"{path.name} is too large to be read ({size_text(size_bytes)})")
    with path.open("rb") as file:
        if b"\0" in file.read(BINARY_PROBE_BYTES):
            raise ValueError(f"{path.name} is no text file ({size_text(size_bytes)})")
    lines: list[str] = []
    room = _MAX_CHARACTERS
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for line in islice(file, first_line - 1, None):
            from_thread.check_cancelled()
            if len(lines) == max_lines or room <= 0:
                return lines, False
            ending = "\n" if len(line) > _MAX_LINE_CHARACTERS and line.endswith("\n") else ""
            lines.append(shorten(line, _MAX_LINE_CHARACTERS, "[the line is cut]") + ending)
            room -= len(lines[-1])
    return lines, True


def _list_files(root: Path) -> AgentTool:
    @tool
    def list_files(path: _FolderPath = ".") -> AgentToolResult:
        """List a folder: its files with their sizes, its folders with a slash at the end."""
        folder = _inside(root, path)
        if not folder.is_dir():
            raise ValueError(f"there is no folder {path}")
        with os.scandir(folder) as listing:
            entries = sorted(islice(listing, _MAX_ENTRIES + 1), key=lambda entry: entry.name)
        shown = [_entry_text(entry) for entry in entries[:_MAX_ENTRIES]]
        if len(entries) > _MAX_ENTRIES:
            shown.append(f"[only the first {_MAX_ENTRIES} found are shown]")
        found = f"{path}: {counted(min(len(entries), _MAX_ENTRIES), 'entry', 'entries')}"
        return AgentToolResult("\n".join(shown) or "(the folder is empty)", details=found)

    return list_files


def _entry_text(entry: os.DirEntry[str]) -> str:
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    if entry.is_symlink():
        return f"{name} (a symbolic link)"
    if entry.is_dir():
        return f"{name}/"
    with suppress(OSError):
        return f"{name} ({size_text(entry.stat().st_size)})"
    return name


def _search(root: Path) -> AgentTool:
    @tool
    def search(
        text: Annotated[str, Field(min_length=1, description="what to look for, to the letter; case does not matter")],
        on_update: Callable[[object], Any],
        path: Annotated[str, "file or folder to look in, relative to the working folder"] = ".",
    ) -> AgentToolResult:
        """Find the lines of text files that contain a text. Hidden folders and those of packages are passed over."""
        start = _inside(root, path)
        if not start.exists():
            raise ValueError(f"there is no file or folder {path}")
        files = find_text_files(start, max_files=_MAX_SEARCHED_FILES, check_cancelled=from_thread.check_cancelled)
        hits: list[str] = []
        for done, file in enumerate(files.files, 1):
            from_thread.check_cancelled()
            hits.extend(islice(_hits(root, file.path, text.casefold()), _MAX_HITS + 1 - len(hits)))
            if len(hits) > _MAX_HITS:
                break
            if done % 100 == 0:
                on_update(f"{done:,} of {len(files.files):,} files")
        return _search_result(text, hits, is_cut=files.is_cut)

    return search


def _hits(root: Path, path: Path, wanted: str) -> Iterator[str]:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        name = os.fsencode(path.resolve().relative_to(root)).decode("utf-8", "replace")
        for number, line in enumerate(file, 1):
            if wanted in line.casefold():
                yield f"{name}:{number}: {shorten(line.rstrip(), _MAX_HIT_CHARACTERS, '[...]')}"


def _search_result(text: str, hits: list[str], *, is_cut: bool) -> AgentToolResult:
    notes: list[str] = []
    if len(hits) > _MAX_HITS:
        notes.append(f"[only the first {_MAX_HITS} lines are shown: look for something longer, or in fewer files]")
    elif is_cut:
        notes.append("[there are too many files to search all of them: give a path]")
    shown = hits[:_MAX_HITS]
    found = f"{printable(text)!r} in {counted(len(shown), 'line')}{' and more' if notes else ''}"
    return AgentToolResult("\n".join([*shown, *notes]) or "(nothing found)", details=found)


# --- changing --------------------------------------------------------------------------------


def _write_file(root: Path) -> AgentTool:
    @tool(idempotent=False)
    def write_file(path: _FilePath, text: Annotated[str, "the whole text of the file"]) -> AgentToolResult:
        """Write a text file: a new one, or in place of what is there. Folders that are missing are made."""
        target = _inside(root, path)
        if target.exists() and not target.is_file():
            raise ValueError(f"{path} is not a file that could be written")
        data = text.encode("utf-8", "replace")
        if len(data) > _MAX_WRITTEN_BYTES:
            raise ValueError(
                f"the text has {size_text(len(data))}; at most {size_text(_MAX_WRITTEN_BYTES)} are written"
            )
        was_there = target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
        done = f"{'replaced' if was_there else 'wrote'} {path}: {size_text(len(data))}"
        return AgentToolResult(done, details=done)

    return write_file


def _replace(target: Path, data: bytes) -> None:
    """Put a file in its place as a whole: whoever looks, and whatever is interrupted, finds the old or the new one."""
    name = target.parent / f".writing-{uuid4().hex}"
    try:
        with open(name, "xb") as file:
            file.write(data)
        if target.exists():
            name.chmod(target.stat().st_mode & 0o777)
        name.replace(target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def _run_process(root: Path, hidden_variables: Collection[str]) -> AgentTool:
    @tool(idempotent=False, name="run_process")
    async def run(
        command: Annotated[str, Field(min_length=1, description="a command line for the shell")],
        on_update: Callable[[object], Awaitable[None]],
        timeout_seconds: Annotated[float, Field(gt=0, le=_MAX_SECONDS)] = 120.0,
    ) -> AgentToolResult:
        """Run a command in the working folder and read what it writes. It has no input to read."""
        result = await run_process(
            command,
            timeout=timeout_seconds,
            on_update=lambda text: on_update(_last_line(str(text))),
            output=ProcessOutput(_MAX_OUTPUT_BYTES),
            cwd=root,
            env={name: value for name, value in os.environ.items() if name not in hidden_variables},
        )
        ending = f"ended after {timeout_seconds:g} s" if result.timed_out else f"exit code {result.exit_code}"
        failed = result.timed_out or result.exit_code != 0
        return AgentToolResult(
            f"[{ending}]\n{result.output}".rstrip(),
            details=f"{ending}: {shorten(printable(command), 60, '...')}",
            is_error=failed,
        )

    return run


def _last_line(text: str) -> str:
    """What a person follows of a program's output."""
    lines = text.strip().splitlines()
    return shorten(printable(lines[-1]), _MAX_HIT_CHARACTERS, "...") if lines else ""
