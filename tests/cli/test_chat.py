from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("signals and terminals are those of POSIX", allow_module_level=True)

from tests.cli.child import DEADLINE_SECONDS, MODULE, environment, run_command
from tests.cli.talking import CTRL_C, CTRL_D, at_terminal, calls, has_ended, on_both, script

needs_rich = pytest.mark.skipif(find_spec("rich") is None, reason="rich is not installed")
ESCAPE = "\x1b"
WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from cubepi_anyio.cli.main import main; sys.exit(main())"
WAITING = "while :; do echo pid $$; sleep 0.2; done"
STUBBORN = f"trap '' TERM; {WAITING}"


def chat_through_pipe(lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *MODULE, "chat", *arguments],
        input=lines,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment(),
    )


# --- talking -----------------------------------------------------------------------------------


@on_both
def test_a_conversation_goes_back_and_forth_and_ctrl_d_leaves_it(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, {"thinking": "They greet me.", "text": "Hello.\nWho are you?"}, "Nice to meet you.")
    with at_terminal("chat", "-m", model, "--backend", backend, "--cwd", str(tmp_path)) as person:
        person.expect(f"{model}\r\non {backend}, with read_file, list_files, search, write_file, run_process")
        person.say("hi")
        person.expect("They greet me.\r\nHello.\r\nWho are you?\r\n(")
        person.expect(" tokens read, 9 written, ")
        person.say("I am Ada")
        person.expect("Nice to meet you.\r\n(")
        person.expect("> ")
        person.press(CTRL_D)
        assert person.rest() == 0


def test_lines_from_a_pipe_are_answered_without_prompts_and_the_end_leaves() -> None:
    done = chat_through_pipe("one\n\n  \ntwo\n", "-m", "faux")
    assert (done.returncode, done.stderr) == (0, "")
    answers = [line for line in done.stdout.splitlines() if line.startswith("I am a script")]
    assert answers == [f"I am a script and no model, so I can only repeat it: {word}" for word in ("one", "two")]
    assert "> " not in done.stdout
    assert ESCAPE not in done.stdout


@on_both
def test_calls_are_shown_with_their_progress_and_endings(tmp_path: Path, backend: str) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    model = script(
        tmp_path,
        calls(("read_file", {"path": "notes.txt"}), ("read_file", {"path": "../secret"}), text="I will look."),
        "Two lines.",
    )
    with at_terminal("chat", "-m", model, "--backend", backend, "--cwd", str(tmp_path)) as person:
        person.say("what is in my notes?")
        person.expect("I will look.\r\n")
        person.expect("read_file         started  path=notes.txt")
        shown = person.expect("Two lines.")
        assert "✓ finished" in shown
        assert "notes.txt: 2 lines" in shown
        assert "✗ failed" in shown
        assert "../secret lies outside the working folder; use a path below it" in shown


def test_what_a_model_writes_cannot_control_the_terminal(tmp_path: Path) -> None:
    done = chat_through_pipe("hi\n", "-m", script(tmp_path, "red \x1b[31mtext\x07\rover\tthere\nend"))
    assert "red ?[31mtext??over\tthere\nend\n" in done.stdout
    assert ESCAPE not in done.stdout


@on_both
def test_a_model_that_fails_is_told_of_and_the_conversation_goes_on(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, {"error": "too much to do"}, "Here I am.")
    done = chat_through_pipe("one\ntwo\n", "-m", model, "--backend", backend)
    assert "The model could not answer: [faux/script] too much to do\n" in done.stdout
    assert "Here I am.\n" in done.stdout
    assert done.returncode == 0


def test_a_limit_ends_the_turn_and_the_conversation_goes_on(tmp_path: Path) -> None:
    model = script(tmp_path, calls(("list_files", {})), "Going on.")
    done = chat_through_pipe("look\ngo on\n", "-m", model, "--max-turns", "1", "--cwd", str(tmp_path))
    assert 'Ended by max_turns=1; say "go on" to go on.' in done.stdout
    assert "Going on.\n" in done.stdout


# --- Ctrl-C ------------------------------------------------------------------------------------


@on_both
def test_ctrl_c_ends_the_answer_and_the_conversation_goes_on(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, {"text": "A long story begins", "stall_after_deltas": 3}, "Another one.")
    with at_terminal("chat", "-m", model, "--backend", backend) as person:
        person.say("tell me a story")
        person.expect("A long stor")
        person.press(CTRL_C)
        person.expect("Stopping; Ctrl-C once more leaves at once.")
        person.expect("(cut off here)")
        person.expect("Aborted; the conversation goes on.")
        person.say("another one")
        person.expect("Another one.")
        person.say("/usage")
        person.expect("2 answers: ")


@on_both
def test_ctrl_c_ends_a_running_program_and_nothing_of_it_is_left(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, calls(("run_process", {"command": WAITING})), "Never read.")
    with at_terminal("chat", "-m", model, "--backend", backend, "--yes", "--cwd", str(tmp_path)) as person:
        person.say("wait")
        person.expect("  pid ")
        pid = int(person.expect("\r\n"))
        person.press(CTRL_C)
        person.expect("✗ cancelled")
        person.expect("Aborted; the conversation goes on.")
        assert has_ended(pid)
        person.expect("> ")
        person.press(CTRL_D)
        assert person.rest() == 0


@on_both
def test_a_second_ctrl_c_during_a_turn_leaves_at_once_and_takes_programs_along(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, calls(("run_process", {"command": STUBBORN})))
    with at_terminal("chat", "-m", model, "--backend", backend, "--yes", "--cwd", str(tmp_path)) as person:
        person.say("wait")
        person.expect("  pid ")
        pid = int(person.expect("\r\n"))
        person.press(CTRL_C)
        person.expect("Stopping;")
        person.press(CTRL_C)
        assert person.rest() == 130
    assert "Left at once" in person.output
    assert has_ended(pid)


@on_both
def test_ctrl_c_at_the_prompt_drops_the_line_and_twice_leaves(backend: str) -> None:
    with at_terminal("chat", "-m", "faux", "--backend", backend) as person:
        person.expect("> ")
        person.type("forget this")
        person.expect("forget this")
        person.press(CTRL_C)
        person.expect("(Ctrl-C once more leaves, and so does Ctrl-D)")
        person.say("keep this")
        person.expect("repeat it: keep this\r\n")
        person.expect("> ")
        person.press(CTRL_C)
        person.expect("(Ctrl-C once more leaves, and so does Ctrl-D)")
        person.expect("> ")
        person.press(CTRL_C)
        assert person.rest() == 130


@on_both
def test_a_termination_settles_the_turn_and_leaves(tmp_path: Path, backend: str) -> None:
    with at_terminal(
        "chat", "-m", script(tmp_path, {"text": "A long story", "stall_after_deltas": 2}), "--backend", backend
    ) as person:
        person.say("tell me")
        person.expect("A long")
        person.send(signal.SIGTERM)
        assert person.rest() == 143
    assert "Aborted" in person.output


# --- consent -----------------------------------------------------------------------------------


def writing(folder: Path) -> str:
    return script(folder, calls(("write_file", {"path": "new.txt", "text": "words"})), "That is that.")


@on_both
def test_a_person_is_asked_before_a_file_is_written(tmp_path: Path, backend: str) -> None:
    with at_terminal("chat", "-m", writing(tmp_path), "--backend", backend, "--cwd", str(tmp_path)) as person:
        person.say("write it")
        person.expect("May this call run?")
        person.expect('path: "new.txt"')
        person.expect("yes, no or edit [y/n/e]: ")
        assert not (tmp_path / "new.txt").exists()
        person.type("y\n")
        person.expect("wrote new.txt: 5 bytes")
        person.expect("That is that.")
    assert (tmp_path / "new.txt").read_text("utf-8") == "words"


def test_what_a_person_refuses_does_not_happen(tmp_path: Path) -> None:
    with at_terminal("chat", "-m", writing(tmp_path), "--cwd", str(tmp_path)) as person:
        person.say("write it")
        person.expect("yes, no or edit [y/n/e]: ")
        person.type("n\n")
        person.expect("why (may be left empty): ")
        person.type("not now\n")
        person.expect("✗ refused")
        person.expect("The user refused this call: not now")
        person.expect("That is that.")
    assert not (tmp_path / "new.txt").exists()


@on_both
def test_ctrl_c_at_a_question_ends_the_turn_and_refuses_the_call(tmp_path: Path, backend: str) -> None:
    with at_terminal("chat", "-m", writing(tmp_path), "--backend", backend, "--cwd", str(tmp_path)) as person:
        person.say("write it")
        person.expect("yes, no or edit [y/n/e]: ")
        person.press(CTRL_C)
        person.expect("Aborted; the conversation goes on.")
        person.say("and?")
        person.expect("That is that.")
    assert not (tmp_path / "new.txt").exists()


@pytest.mark.parametrize("how", ["--yes", "--allow"])
def test_what_is_allowed_beforehand_is_not_asked_about(tmp_path: Path, how: str) -> None:
    allowed = ["--yes"] if how == "--yes" else ["--allow", "write_file"]
    done = chat_through_pipe("write it\n", "-m", writing(tmp_path), "--cwd", str(tmp_path), *allowed)
    assert "That is that." in done.stdout
    assert (tmp_path / "new.txt").read_text("utf-8") == "words"


def test_where_nobody_can_be_asked_the_model_is_told_the_way_out(tmp_path: Path) -> None:
    done = chat_through_pipe("write it\n", "-m", writing(tmp_path), "--cwd", str(tmp_path))
    assert "✗ refused" in done.stdout
    assert (
        "Nobody is there to allow write_file; the person can start the command with --allow write_file." in done.stdout
    )
    assert not (tmp_path / "new.txt").exists()


# --- commands ----------------------------------------------------------------------------------


def test_help_lists_the_commands_and_quit_leaves() -> None:
    done = chat_through_pipe("/help\n/quit\nnever said\n", "-m", "faux")
    assert done.returncode == 0
    for name in ("help", "model", "tools", "allow", "usage", "save", "reset", "quit"):
        assert f"\n  /{name}" in done.stdout
    assert "never said" not in done.stdout


def test_an_unknown_command_is_not_sent_to_the_model() -> None:
    done = chat_through_pipe("/dance\n", "-m", "faux")
    assert "There is no /dance; /help lists what there is.\n" in done.stdout
    assert "I am a script" not in done.stdout


def test_the_model_can_be_changed_in_the_middle(tmp_path: Path) -> None:
    lines = "hi\n/model faux\nhi\n/model groq:x\n/model\n"
    done = chat_through_pipe(lines, "-m", script(tmp_path, "From the script."))
    assert "From the script.\n" in done.stdout
    assert "repeat it: hi\n" in done.stdout
    assert "/model: groq needs an API key: set the variable GROQ_API_KEY" in done.stdout
    assert done.stdout.count("faux answers.") == 2


def test_tools_are_listed_and_can_be_allowed(tmp_path: Path) -> None:
    lines = "/tools\n/allow write_file\n/allow nothing\n/tools\nwrite it\n"
    done = chat_through_pipe(lines, "-m", writing(tmp_path), "--cwd", str(tmp_path))
    before, after = done.stdout.split("write_file runs without asking from now on.")
    assert "write_file    Write a text file: a new one, or in place of what is there." in before
    assert before.count("(asks you first)") == 2
    assert "There is no tool 'nothing'" in after
    assert after.count("(asks you first)") == 1
    assert (tmp_path / "new.txt").exists()


def test_a_model_without_tools_has_none() -> None:
    done = chat_through_pipe("/tools\n", "-m", "faux", "--no-tools")
    assert "The model has no tools." in done.stdout


def test_a_reset_forgets(tmp_path: Path) -> None:
    done = chat_through_pipe("one\n/reset\n/usage\n", "-m", "faux")
    assert "Forgotten; we begin anew.\n0 answers: 0 tokens read, 0 written.\n" in done.stdout


def test_a_conversation_is_saved_whole_or_to_be_read_and_never_over_a_file(tmp_path: Path) -> None:
    whole, text = tmp_path / "talk.json", tmp_path / "talk.md"
    lines = f"hello\n/save {whole}\n/save {text}\n/save {text}\n/save\n"
    done = chat_through_pipe(lines, "-m", script(tmp_path, "Hello yourself."))
    assert f"Saved 2 messages to {whole}.\n" in done.stdout
    assert [message["role"] for message in json.loads(whole.read_text("utf-8"))] == ["user", "assistant"]
    assert text.read_text("utf-8") == "## You\n\nhello\n\n## Model\n\nHello yourself.\n"
    assert "/save: [Errno 17] File exists" in done.stdout
    assert "Give the name of a file: /save PATH\n" in done.stdout


# --- stored conversations ----------------------------------------------------------------------


@on_both
def test_a_stored_conversation_goes_on_in_the_next_process(tmp_path: Path, backend: str) -> None:
    where = ("--thread", str(tmp_path / "talk.db"), "--backend", backend)
    first = chat_through_pipe("one\n", "-m", "faux", *where)
    assert "goes on after" not in first.stdout
    second = chat_through_pipe("two\n/usage\n/reset\n/usage\nthree\n", "-m", "faux", *where)
    assert "The conversation goes on after 2 messages.\n" in second.stdout
    assert "2 answers: " in second.stdout
    assert "0 answers: 0 tokens read" in second.stdout
    third = chat_through_pipe("", "-m", "faux", *where)
    assert "The conversation goes on after 2 messages.\n" in third.stdout


def test_a_file_that_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, not a database", encoding="utf-8")
    done = chat_through_pipe("hi\n", "-m", "faux", "--thread", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith("cubepi-anyio chat: ")
    assert "Traceback" not in done.stderr
    assert path.read_text("utf-8") == "these are notes, not a database"


# --- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "faux", "--cwd", "nowhere-at-all"), "no such folder: nowhere-at-all"),
        (("-m", "faux", "--allow", "dance"), "there is no tool 'dance' to allow; there are list_files, read_file"),
        (("-m", "faux", "--max-turns", "0"), "a number here is 1 or more, not '0'"),
        (("-m", "faux", "--think", "much"), "invalid choice: 'much'"),
        (("-m", "anthropic:m"), "anthropic needs an API key: set the variable ANTHROPIC_API_KEY"),
        ((), "give a model with --model; a model is VENDOR:ID"),
    ],
)
def test_arguments_that_cannot_be_used_are_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = run_command("chat", *arguments, ANTHROPIC_API_KEY="", CUBEPI_MODEL="")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_the_model_may_come_from_the_environment() -> None:
    done = subprocess.run(
        [sys.executable, *MODULE, "chat"],
        input="hi\n",
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment(CUBEPI_MODEL="faux"),
    )
    assert "repeat it: hi\n" in done.stdout


# --- the look ----------------------------------------------------------------------------------


@needs_rich
def test_on_a_terminal_thinking_is_dim_and_the_wait_is_drawn(tmp_path: Path) -> None:
    model = script(
        tmp_path,
        {"thinking": "Hm.", "text": "Yes."},
        calls(("run_process", {"command": "echo on; sleep 0.5"})),
        "Done.",
    )
    with at_terminal("chat", "-m", model, "--yes", "--cwd", str(tmp_path), TERM="xterm-256color") as person:
        person.say("is it?")
        person.expect("(")
        assert f"{ESCAPE}[2mHm" in person.output
        assert "\nYes" in person.output
        person.say("run")
        person.expect("Ctrl-C stops it")
        person.expect("exit code 0: echo on; sleep 0.5")
        person.expect("Done.")
        person.expect("> ")
        person.press(CTRL_D)
        assert person.rest() == 0
    assert person.output.rindex(f"{ESCAPE}[?25h") > person.output.rindex(f"{ESCAPE}[?25l")


def test_without_rich_there_are_plain_lines_and_one_hint(tmp_path: Path) -> None:
    program = ("-c", WITHOUT_RICH)
    model = script(tmp_path, {"thinking": "Hm.", "text": "Yes."})
    with at_terminal("chat", "-m", model, program=program, TERM="xterm-256color") as person:
        person.say("is it?")
        person.expect("Hm.\r\nYes.\r\n")
    assert person.output.count("For a live display: pip install 'cubepi-anyio[cli]'") == 1
