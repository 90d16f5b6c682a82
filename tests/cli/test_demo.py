from __future__ import annotations

import hashlib
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.child import Running, on_terminal, run_command, write_files

if sys.platform == "win32":
    pytest.skip("signals and terminals are those of POSIX", allow_module_level=True)

needs_rich = pytest.mark.skipif(find_spec("rich") is None, reason="rich is not installed")
on_both = pytest.mark.parametrize(
    "backend",
    ["asyncio", pytest.param("trio", marks=pytest.mark.skipif(find_spec("trio") is None, reason="no trio"))],
)
ESCAPE = "\x1b"
TALL = b"one error here\ntwo words\nthree\n"
SHORT = b"An Error and an error\n"
WITHOUT = "import sys; sys.modules[{name!r}] = None; from cubepi_anyio.cli.main import main; sys.exit(main())"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "tall.txt": TALL,
        "below/short.txt": SHORT,
        "below/copy.txt": SHORT,
        "picture.bin": b"\x89\0\0",
        "node_modules/x.js": b"error\n",
        ".git/config": b"error\n",
    }
    return write_files(tmp_path / "files", files)


def call_lines(lines: list[str], name: str) -> list[str]:
    return [line for line in lines if line.startswith(f"  {name} ")]


# --- a run to its end --------------------------------------------------------------------------


@on_both
def test_the_demo_says_what_is_really_in_the_files(folder: Path, backend: str) -> None:
    done = run_command("demo", str(folder), "--backend", backend)
    assert (done.returncode, done.stderr) == (0, "")
    out = done.stdout
    assert "Found 3 files among 7 entries, 1 left out" in out
    assert f"the rest is real, on {backend}." in out
    assert "There are 5 lines and 16 words in 3 files, 75 bytes. The longest:" in out
    assert f"- tall.txt: 3 lines, SHA-256 {hashlib.sha256(TALL).hexdigest()}" in out
    assert f"- below/short.txt: 1 line, SHA-256 {hashlib.sha256(SHORT).hexdigest()}" in out
    assert "By their SHA-256, 1 file is a copy of another." in out
    assert "'error' is in 3 lines of 3 files, most often in tall.txt (1)." in out


@on_both
def test_each_call_ends_in_its_own_way_and_the_timeline_shows_it(folder: Path, backend: str) -> None:
    lines = run_command("demo", str(folder), "--backend", backend).stdout.splitlines()
    story, chart = lines[: lines.index("Timeline")], lines[lines.index("Timeline") :]
    for name, ending in (
        ("count_lines", "✓ finished"),
        ("hash_files", "✓ finished"),
        ("search_text", "✓ finished"),
        ("read_file", "✗ failed"),
        ("ask_slow_service", "✗ timed out"),
    ):
        started, *_, ended = call_lines(story, name)
        assert started.endswith("started")
        assert ending in ended
        (row,) = call_lines(chart, name)
        assert re.search(rf"[━╸╺].* (ms|s)  {ending}$", row)
    assert "No such file or directory" in call_lines(story, "read_file")[-1]
    assert any(line.startswith("  2 answers, 5 calls in ") for line in chart)


def test_without_a_terminal_nothing_but_plain_lines_is_written(folder: Path) -> None:
    done = run_command("demo", str(folder), TERM="xterm-256color", FORCE_COLOR="1")
    assert done.returncode == 0
    assert ESCAPE not in done.stdout
    assert "\r" not in done.stdout


def test_the_path_may_be_one_file(folder: Path) -> None:
    done = run_command("demo", str(folder / "tall.txt"), "--search", "WORDS")
    assert done.returncode == 0
    assert "There are 3 lines and 6 words in 1 file, 31 bytes." in done.stdout
    assert "'WORDS' is in 1 line of 1 file, most often in tall.txt (1)." in done.stdout


def test_a_search_that_is_cut_says_so(folder: Path) -> None:
    out = run_command("demo", str(folder), "--max-files", "1").stdout
    assert "Found 1 file " in out
    assert "There may be more: the search ended at its bound (--max-files 1, or 20,000 entries)." in out


def test_names_that_control_a_terminal_or_cannot_be_encoded_are_shown_harmlessly(tmp_path: Path) -> None:
    write_files(tmp_path, {"red\x1b[31m.txt": b"a\n", "naïve.txt": b"b\n"})
    done = run_command("demo", str(tmp_path), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "red?[31m.txt: 1 line" in done.stdout
    assert "na?ve.txt: 1 line" in done.stdout
    assert done.stdout.isascii()


# --- arguments that cannot be used -------------------------------------------------------------


def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = run_command("demo", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"cubepi-anyio demo: error: no such file or folder: {tmp_path / 'nowhere'}\n"


def test_a_folder_without_text_files_is_a_failure(tmp_path: Path) -> None:
    done = run_command("demo", str(write_files(tmp_path, {"x.bin": b"\0"})))
    assert done.returncode == 1
    assert "There are no text files; give the PATH of some." in done.stdout


def test_trio_that_is_not_installed_is_a_usage_error_with_the_way_out(folder: Path) -> None:
    done = run_command("demo", str(folder), "--backend", "trio", program=("-c", WITHOUT.format(name="trio")))
    assert done.returncode == 2
    assert done.stderr == "cubepi-anyio demo: error: trio is not installed: pip install 'cubepi-anyio[trio]'\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--speed", "-1"), "a speed is a number, 0 or more, not '-1'"),
        (("--speed", "fast"), "a speed is a number, 0 or more, not 'fast'"),
        (("--max-files", "0"), "a number of files is 1 or more, not '0'"),
        (("--search", " "), "there is nothing to search for"),
        (("--backend", "curio"), "invalid choice: 'curio'"),
    ],
)
def test_an_option_that_cannot_be_used_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = run_command("demo", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


# --- interruption ------------------------------------------------------------------------------


@on_both
def test_an_interrupted_demo_settles_and_says_what_is_left(folder: Path, backend: str) -> None:
    with Running("demo", str(folder), "--backend", backend, "--speed", "0.2") as command:
        command.lines_until("ask_slow_service  started")
        command.lines_until("hash_files        2 of 3 files")
        command.send(signal.SIGINT)
        code, lines, errors = command.rest()
    assert (code, errors) == (130, "")
    assert "Interrupted: stopping the run. Once more leaves at once." in lines
    left = lines[next(number for number, line in enumerate(lines) if "What is left:" in line) :]
    assert "  transcript  7 messages: every call is answered, a model can go on from here" in left
    assert "  tasks       none is running" in left
    (cancelled,) = (line for line in left if line.startswith("  cancelled  "))
    assert {"hash_files", "ask_slow_service"} <= set(cancelled.removeprefix("  cancelled").strip().split(", "))
    assert any("▲ interrupted at " in line or line.endswith(" ▲") for line in left)


@on_both
def test_a_demo_interrupted_while_the_model_writes_keeps_what_was_written(folder: Path, backend: str) -> None:
    with Running("demo", str(folder), "--backend", backend, "--speed", "0.05") as command:
        command.lines_until("you    What is in these files?")
        command.send(signal.SIGINT)
        code, lines, errors = command.rest()
    assert (code, errors) == (130, "")
    assert not any("started" in line for line in lines)
    assert any(line.startswith("  model ") and line.endswith("✗ cancelled") for line in lines)
    assert "  tasks       none is running" in lines


def test_a_termination_settles_too_and_has_its_own_exit_code(folder: Path) -> None:
    with Running("demo", str(folder), "--speed", "0.2") as command:
        command.lines_until("ask_slow_service  started")
        command.send(signal.SIGTERM)
        code, lines, _ = command.rest()
    assert code == 143
    assert "  tasks       none is running" in lines


@on_both
def test_a_second_interruption_leaves_at_once(folder: Path, backend: str) -> None:
    # At this pace the slow call takes ten seconds to say goodbye, so the first interruption cannot have settled.
    with Running("demo", str(folder), "--backend", backend, "--speed", "0.02") as command:
        command.lines_until("ask_slow_service  started")
        command.send(signal.SIGINT)
        command.lines_until("Interrupted: stopping the run.")
        command.send(signal.SIGINT)
        code, lines, errors = command.rest()
    assert (code, errors) == (130, "")
    assert lines[-1] == "Left at once: what still ran was not waited for."
    assert not any("What is left:" in line or line.startswith("  ask_slow_service") for line in lines)


def test_a_reader_that_goes_away_ends_the_demo_without_a_complaint(folder: Path) -> None:
    with Running("demo", str(folder), "--speed", "0.2") as command:
        command.lines_until("count_lines       started")
        command.stop_reading()
        assert command.wait() == (1, "")


# --- on a terminal -----------------------------------------------------------------------------


@needs_rich
@on_both
def test_on_a_terminal_the_run_is_drawn_live_and_in_colours(folder: Path, backend: str) -> None:
    with on_terminal("demo", str(folder), "--backend", backend, "--speed", "4") as terminal:
        code = terminal.rest()
    assert code == 0
    assert "Ctrl-C stops it" in terminal.output
    assert f"{ESCAPE}[36m" in terminal.output
    assert terminal.output.rindex(f"{ESCAPE}[?25h") > terminal.output.rindex(f"{ESCAPE}[?25l")
    assert "5 finished, 1 failed, 1 timed out" in terminal.output
    assert "started" not in terminal.output


@needs_rich
@pytest.mark.parametrize("how", ["option", "option before the command", "environment"])
def test_colours_can_be_switched_off(folder: Path, how: str) -> None:
    after = ("--no-color",) if how == "option" else ()
    before = ("--no-color",) if how == "option before the command" else ()
    changes = {"NO_COLOR": "1"} if how == "environment" else {}
    with on_terminal(*before, "demo", str(folder), "--speed", "0", *after, **changes) as terminal:
        assert terminal.rest() == 0
    assert not re.search(rf"{ESCAPE}\[(?:[\d;]*;)?[34]\d", terminal.output)
    assert "5 finished, 1 failed, 1 timed out" in terminal.output


def test_a_dumb_terminal_gets_plain_lines(folder: Path) -> None:
    with on_terminal("demo", str(folder), "--speed", "0", TERM="dumb") as terminal:
        assert terminal.rest() == 0
    assert ESCAPE not in terminal.output
    assert "ask_slow_service  started" in terminal.output


def test_a_terminal_without_rich_gets_plain_lines_and_one_hint(folder: Path) -> None:
    program = ("-c", WITHOUT.format(name="rich"))
    with on_terminal("demo", str(folder), "--speed", "0", program=program) as terminal:
        assert terminal.rest() == 0
    assert ESCAPE not in terminal.output
    assert terminal.output.count("For a live display: pip install 'cubepi-anyio[cli]'") == 1
    assert "5 finished, 1 failed, 1 timed out" in terminal.output


@needs_rich
def test_a_second_interruption_on_a_terminal_shows_the_cursor_again(folder: Path) -> None:
    with on_terminal("demo", str(folder), "--speed", "0.05") as terminal:
        terminal.read_until("ask_slow_service")
        terminal.send(signal.SIGINT)
        terminal.read_until("Interrupted:")
        terminal.send(signal.SIGINT)
        assert terminal.rest() == 130
    assert "Left at once" in terminal.output
    assert terminal.output.rindex(f"{ESCAPE}[?25h") > terminal.output.rindex(f"{ESCAPE}[?25l")
