"""Which files the demo works on: text files under a path, with bounds on their number, their size and the search."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ("BINARY_PROBE_BYTES", "MAX_ENTRIES", "MAX_FILE_BYTES", "FileSet", "TextFile", "find_text_files")

MAX_FILE_BYTES = 1_000_000
"""Larger files are left out."""
MAX_ENTRIES = 20_000
"""How many directory entries are looked at before the search is given up."""
BINARY_PROBE_BYTES = 8192
"""A file with a zero byte in its first bytes is taken for binary."""

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "env", "build", "dist", "target"})


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file: where it is, and its name for people and models, below the path that was given."""

    path: Path
    name: str
    size_bytes: int


@dataclass(slots=True)
class FileSet:
    """What was found, and why it may not be everything."""

    root: Path
    """The folder that the names are relative to."""
    files: list[TextFile] = field(default_factory=list[TextFile])
    entries: int = 0
    """Directory entries looked at."""
    left_out: int = 0
    """Files that are binary, too large or unreadable."""
    is_cut: bool = False
    """Whether the search ended at a bound, so that there may be more."""


def find_text_files(path: Path, *, max_files: int, check_cancelled: Callable[[], None] = lambda: None) -> FileSet:
    """Find at most ``max_files`` text files under ``path``, in the order of their names; ``path`` may be a file.

    Hidden folders and those of packages and builds are passed over, and so are symbolic links, sockets and pipes.
    Folders that cannot be read count as left out. ``check_cancelled`` is called between two entries, so that a worker
    thread can be told to stop: whatever it raises leaves.
    """
    if path.is_file():
        found = FileSet(path.parent)
        _consider(path, found)
        return found
    found = FileSet(path)
    for candidate in _walk(path, found):
        check_cancelled()
        if len(found.files) == max_files:
            found.is_cut = True
            break
        _consider(candidate, found)
    return found


def _walk(folder: Path, found: FileSet) -> Iterator[Path]:
    """Regular files under ``folder``: its own before those of its folders, so that a cut keeps what is nearest."""
    folders: list[Path] = [folder]
    while folders:
        current = folders.pop()
        below: list[Path] = []
        for entry in _entries(current, found):
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                    below.append(current / entry.name)
            elif entry.is_file(follow_symlinks=False):
                yield current / entry.name
        folders.extend(reversed(below))


def _entries(folder: Path, found: FileSet) -> list[os.DirEntry[str]]:
    """The entries of one folder by name, as many of them as the bound on all entries allows."""
    entries: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                if found.entries == MAX_ENTRIES:
                    found.is_cut = True
                    break
                found.entries += 1
                entries.append(entry)
    except OSError:
        found.left_out += 1
    return sorted(entries, key=lambda entry: entry.name)


def _consider(path: Path, found: FileSet) -> None:
    """Take ``path`` into the set, if it is text of a reasonable size."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            is_text = b"\0" not in file.read(BINARY_PROBE_BYTES)
    except OSError:
        is_text, size_bytes = False, 0
    if is_text and size_bytes <= MAX_FILE_BYTES:
        # A name on disk need not be valid Unicode.
        name = os.fsencode(path.relative_to(found.root)).decode("utf-8", "replace")
        found.files.append(TextFile(path, name, size_bytes))
    else:
        found.left_out += 1
