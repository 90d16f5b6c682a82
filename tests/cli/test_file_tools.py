from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    FauxProvider,
    ToolExecutionUpdateEvent,
    ToolResultMessage,
    faux_assistant_message,
    faux_tool_call,
)
from cubepi_anyio.cli.file_tools import NEED_CONSENT, file_tools
from tests.cli.child import write_files

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="links and shells of POSIX")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "notes.txt": b"one error here\ntwo\nthree\n",
        "below/deep.txt": b"An ERROR and an error\n",
        "picture.bin": b"\x89\0\0",
        "empty.txt": b"",
        ".git/config": b"error\n",
    }
    (tmp_path / "secret.txt").write_text("a secret", encoding="utf-8")
    folder = write_files(tmp_path.resolve() / "files", files)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "outside").symlink_to(tmp_path)
    return folder


async def call(folder: Path, name: str, /, **arguments: Any) -> ToolResultMessage:
    """What the model reads of one call."""
    agent = agent_that_calls(folder, name, arguments)
    await agent.prompt("go")
    (result,) = (message for message in agent.state.messages if isinstance(message, ToolResultMessage))
    return result


def agent_that_calls(folder: Path, name: str, arguments: dict[str, Any], **options: Any) -> Agent:
    provider = FauxProvider(token_size_min=50_000, token_size_max=50_000)  # long arguments in few pieces
    provider.set_responses([faux_assistant_message([faux_tool_call(name, arguments)]), "done"])
    return Agent(model=provider.model("m"), tools=file_tools(folder, **options))


async def error_of(folder: Path, name: str, /, **arguments: Any) -> str:
    result = await call(folder, name, **arguments)
    assert result.is_error
    return result.text


def test_what_changes_something_needs_consent(tmp_path: Path) -> None:
    names = [tool.name for tool in file_tools(tmp_path)]
    assert names == ["read_file", "list_files", "search", "write_file", "run_process"]
    assert {"write_file", "run_process"} == NEED_CONSENT


# --- reading -----------------------------------------------------------------------------------


async def test_a_file_is_read_whole_or_in_part(folder: Path) -> None:
    whole = await call(folder, "read_file", path="notes.txt")
    assert (whole.text, whole.details) == ("one error here\ntwo\nthree\n", "notes.txt: 3 lines")
    part = await call(folder, "read_file", path="notes.txt", first_line=2, max_lines=1)
    assert part.text == "two\n\n[there is more: go on with first_line=3]"
    rest = await call(folder, "read_file", path="./below/../notes.txt", first_line=3)
    assert rest.text == "three\n"


async def test_an_empty_file_and_lines_behind_the_end_are_said_to_be_so(folder: Path) -> None:
    assert (await call(folder, "read_file", path="empty.txt")).text == "(the file is empty)"
    assert await error_of(folder, "read_file", path="notes.txt", first_line=9) == "notes.txt has fewer than 9 lines"


async def test_a_long_file_and_a_long_line_are_cut(folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)), encoding="utf-8")
    (folder / "wide.txt").write_text("x" * 100_000 + "\nend\n", encoding="utf-8")
    assert (await call(folder, "read_file", path="long.txt")).text.endswith(
        "line 1999\n\n[there is more: go on with first_line=2001]"
    )
    wide = (await call(folder, "read_file", path="wide.txt")).text
    assert len(wide) < 2100
    assert wide.endswith("x[the line is cut]\nend\n")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere.txt", "there is no file nowhere.txt; list_files shows which there are"),
        ("below", "below is a folder; list_files shows what is in it"),
        ("picture.bin", "picture.bin is no text file (3 bytes)"),
        ("../secret.txt", "../secret.txt lies outside the working folder; use a path below it"),
        ("/etc/passwd", "/etc/passwd lies outside the working folder; use a path below it"),
        ("link.txt", "link.txt lies outside the working folder; use a path below it"),
        ("outside/secret.txt", "outside/secret.txt lies outside the working folder; use a path below it"),
        ("a\0b", "a path has no NUL character in it"),
    ],
)
async def test_what_cannot_be_read_is_an_error_that_says_why(folder: Path, path: str, problem: str) -> None:
    assert await error_of(folder, "read_file", path=path) == problem


async def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert await error_of(folder, "read_file", path="pipe") == "pipe is no regular file"


async def test_a_folder_is_listed_by_name(folder: Path) -> None:
    listed = await call(folder, "list_files")
    assert listed.text.splitlines() == [
        ".git/",
        "below/",
        "empty.txt (0 bytes)",
        "link.txt (a symbolic link)",
        "notes.txt (25 bytes)",
        "outside (a symbolic link)",
        "picture.bin (3 bytes)",
    ]
    assert (await call(folder, "list_files", path="below")).text == "deep.txt (22 bytes)"


async def test_a_large_folder_is_cut(folder: Path) -> None:
    write_files(folder / "many", {f"{number:04}.txt": b"" for number in range(600)})
    listed = (await call(folder, "list_files", path="many")).text.splitlines()
    assert len(listed) == 501
    assert listed[-1] == "[only the first 500 found are shown]"


@pytest.mark.parametrize("path", ["..", "outside", "/"])
async def test_a_folder_outside_is_not_listed(folder: Path, path: str) -> None:
    assert "lies outside the working folder" in await error_of(folder, "list_files", path=path)


async def test_a_folder_that_is_none_cannot_be_listed(folder: Path) -> None:
    assert await error_of(folder, "list_files", path="notes.txt") == "there is no folder notes.txt"


# --- searching ---------------------------------------------------------------------------------


async def test_lines_are_found_with_their_places(folder: Path) -> None:
    found = await call(folder, "search", text="error")
    assert found.text.splitlines() == ["notes.txt:1: one error here", "below/deep.txt:1: An ERROR and an error"]
    assert found.details == "'error' in 2 lines"
    assert (await call(folder, "search", text="e.r.r")).text == "(nothing found)"
    assert (await call(folder, "search", text="TWO", path="notes.txt")).text == "notes.txt:2: two"


async def test_many_hits_are_cut(folder: Path) -> None:
    (folder / "many.txt").write_text("hit\n" * 500, encoding="utf-8")
    lines = (await call(folder, "search", text="hit")).text.splitlines()
    assert len(lines) == 201
    assert lines[-1].startswith("[only the first 200 lines are shown")


async def test_a_search_stays_inside(folder: Path) -> None:
    assert (await call(folder, "search", text="a secret")).text == "(nothing found)"
    assert "lies outside the working folder" in await error_of(folder, "search", text="a", path="..")
    assert await error_of(folder, "search", text="a", path="nowhere") == "there is no file or folder nowhere"
    assert "text" in await error_of(folder, "search", text="")


# --- writing -----------------------------------------------------------------------------------


async def test_a_file_is_written_with_the_folders_it_needs(folder: Path) -> None:
    written = await call(folder, "write_file", path="new/deeper/file.txt", text="naïve\n")
    assert written.text == "wrote new/deeper/file.txt: 7 bytes"
    assert (folder / "new/deeper/file.txt").read_text("utf-8") == "naïve\n"


async def test_a_file_is_replaced_and_keeps_its_mode(folder: Path) -> None:
    (folder / "notes.txt").chmod(0o750)
    assert (await call(folder, "write_file", path="notes.txt", text="new")).text == "replaced notes.txt: 3 bytes"
    assert (folder / "notes.txt").read_text("utf-8") == "new"
    assert (folder / "notes.txt").stat().st_mode & 0o777 == 0o750
    assert not [name for name in os.listdir(folder) if name.startswith(".writing-")]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../new.txt", "../new.txt lies outside the working folder; use a path below it"),
        ("outside/new.txt", "outside/new.txt lies outside the working folder; use a path below it"),
        ("link.txt", "link.txt lies outside the working folder; use a path below it"),
        ("below", "below is not a file that could be written"),
    ],
)
async def test_nothing_is_written_outside_or_over_a_folder(folder: Path, path: str, problem: str) -> None:
    assert await error_of(folder, "write_file", path=path, text="x") == problem
    assert not (folder.parent / "new.txt").exists()
    assert (folder.parent / "secret.txt").read_text("utf-8") == "a secret"


async def test_a_text_that_is_too_long_is_not_written(folder: Path) -> None:
    problem = await error_of(folder, "write_file", path="notes.txt", text="x" * 1_000_001)
    assert problem == "the text has 1.0 MB; at most 1.0 MB are written"
    assert (folder / "notes.txt").read_text("utf-8").startswith("one error")


# --- running -----------------------------------------------------------------------------------


async def test_a_program_runs_in_the_folder_and_its_output_is_read(folder: Path) -> None:
    done = await call(folder, "run_process", command="cat notes.txt | head -n 1; pwd; echo bad >&2")
    assert (done.is_error, done.details) == (False, "exit code 0: cat notes.txt | head -n 1; pwd; echo bad >&2")
    assert done.text == f"[exit code 0]\none error here\n{folder}\nbad"


async def test_a_program_that_fails_is_an_error_with_its_output(folder: Path) -> None:
    assert await error_of(folder, "run_process", command="echo why; exit 3") == "[exit code 3]\nwhy"


async def test_a_program_that_takes_too_long_is_ended(folder: Path) -> None:
    said = await error_of(folder, "run_process", command="echo begun; sleep 600", timeout_seconds=0.3)
    assert said == "[ended after 0.3 s]\nbegun"


async def test_much_output_lacks_its_middle(folder: Path) -> None:
    said = (await call(folder, "run_process", command="seq 1 100000")).text
    assert len(said) < 31_000
    assert said.startswith("[exit code 0]\n1\n2\n")
    assert "bytes left out ...]" in said
    assert said.endswith("\n100000")


async def test_a_program_has_no_input_and_does_not_see_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    monkeypatch.setenv("SOME_OTHER", "known")
    arguments = {"command": "cat; echo [$SOME_API_KEY] [$SOME_OTHER]"}
    agent = agent_that_calls(folder, "run_process", arguments, hidden_variables={"SOME_API_KEY"})
    await agent.prompt("go")
    (result,) = (message for message in agent.state.messages if isinstance(message, ToolResultMessage))
    assert result.text == "[exit code 0]\n[] [known]"


async def test_what_a_program_writes_is_followed_line_by_line(folder: Path) -> None:
    agent = agent_that_calls(folder, "run_process", {"command": "printf 'one\\ntwo\\033[31m\\n'"})
    seen: list[object] = []
    agent.subscribe(lambda e: seen.append(e.partial_result) if isinstance(e, ToolExecutionUpdateEvent) else None)
    await agent.prompt("go")
    assert seen == ["two?[31m"]


async def test_an_aborted_program_is_gone(folder: Path) -> None:
    agent = agent_that_calls(folder, "run_process", {"command": "echo $$ > pid; echo begun; sleep 600"})
    begun = anyio.Event()
    agent.subscribe(lambda e: begun.set() if isinstance(e, ToolExecutionUpdateEvent) else None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "go")
        await begun.wait()
        agent.abort()
    assert agent.state.last_outcome == "aborted"
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text("utf-8")), 0)
