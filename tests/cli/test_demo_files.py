from __future__ import annotations

import os
from pathlib import Path

import pytest

from cubepi_anyio.cli.demo import files as demo_files
from cubepi_anyio.cli.demo.files import FileSet, find_text_files
from tests.cli.child import write_files


def names(found: FileSet) -> list[str]:
    return [file.name for file in found.files]


def test_a_folders_own_files_come_before_those_below_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"b.txt": b"b", "a/z.txt": b"z", "a/y/x.txt": b"x", "c/w.txt": b"w"})
    assert names(find_text_files(tmp_path, max_files=10)) == ["b.txt", "a/z.txt", "a/y/x.txt", "c/w.txt"]


def test_hidden_folders_and_those_of_packages_are_passed_over(tmp_path: Path) -> None:
    write_files(tmp_path, dict.fromkeys((".git/a", ".venv/b", "node_modules/c", "x/__pycache__/d", "x/e", ".f"), b"x"))
    assert names(find_text_files(tmp_path, max_files=10)) == [".f", "x/e"]


def test_binary_and_large_files_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_files, "MAX_FILE_BYTES", 10)
    write_files(tmp_path, {"a.bin": b"\0", "b.txt": b"x" * 11, "c.txt": b"x" * 10, "empty": b""})
    found = find_text_files(tmp_path, max_files=10)
    assert (names(found), found.left_out, found.is_cut) == (["c.txt", "empty"], 2, False)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": b"a"})
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    assert names(find_text_files(tmp_path, max_files=10)) == ["a.txt"]


def test_as_many_files_as_the_bound_are_no_cut_and_one_more_is(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": b"a", "b": b"b"})
    exact, cut = find_text_files(tmp_path, max_files=2), find_text_files(tmp_path, max_files=1)
    assert (names(exact), exact.is_cut) == (["a", "b"], False)
    assert (names(cut), cut.is_cut) == (["a"], True)


def test_the_search_ends_at_its_bound_on_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_files, "MAX_ENTRIES", 3)
    write_files(tmp_path, {f"{number}.txt": b"x" for number in range(5)})
    found = find_text_files(tmp_path, max_files=10)
    assert (len(found.files), found.entries, found.is_cut) == (3, 3, True)


def test_a_file_is_a_set_of_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": b"abc", "b.txt": b"b"})
    found = find_text_files(tmp_path / "a.txt", max_files=10)
    assert (names(found), found.root, found.files[0].size_bytes) == (["a.txt"], tmp_path, 3)


def test_a_name_that_is_no_unicode_is_made_into_some(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.txt")).write_bytes(b"x")
    (file,) = find_text_files(tmp_path, max_files=10).files
    assert file.name == "\ufffd.txt"
    assert file.path.read_bytes() == b"x"


def test_the_search_can_be_stopped_between_two_entries(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": b"a"})

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        find_text_files(tmp_path, max_files=10, check_cancelled=stop)
