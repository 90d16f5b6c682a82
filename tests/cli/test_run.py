from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("signals and terminals are those of POSIX", allow_module_level=True)

from tests.cli.child import DEADLINE_SECONDS, MODULE, Running, environment, run_command
from tests.cli.talking import at_terminal, calls, on_both, script
from tests.recordings import replay_server

SECRET = "sk-ant-very-secret-0123456789"
WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; from cubepi_anyio.cli.main import main; sys.exit(main())"


def events_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


# --- the answer --------------------------------------------------------------------------------


@on_both
def test_only_the_last_answer_goes_into_a_pipe_and_the_way_there_to_standard_error(
    tmp_path: Path, backend: str
) -> None:
    (tmp_path / "notes.txt").write_text("one\n", encoding="utf-8")
    model = script(
        tmp_path,
        {"thinking": "Hm.", **calls(("read_file", {"path": "notes.txt"}), text="I will look.")},
        "One line.\nNo more.",
    )
    done = run_command("run", "-m", model, "--backend", backend, "--cwd", str(tmp_path), "what is in my notes?")
    assert (done.returncode, done.stdout) == (0, "One line.\nNo more.\n")
    assert "read_file         started  path=notes.txt\n" in done.stderr
    assert "notes.txt: 1 line\n" in done.stderr
    assert "Hm." not in done.stderr


def test_quiet_says_nothing_of_the_way_there(tmp_path: Path) -> None:
    model = script(tmp_path, calls(("list_files", {})), "Done.")
    done = run_command("run", "-q", "-m", model, "--cwd", str(tmp_path), "look")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")


@on_both
def test_on_a_terminal_the_answer_is_written_as_it_comes(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, {"text": "It begins so and ends never", "stall_after_deltas": 3})
    with at_terminal("run", "-m", model, "--backend", backend, "say it") as person:
        person.expect("It begins s")
        person.send(signal.SIGINT)
        person.expect("Interrupted: stopping the run.")
        assert person.rest() == 130


def test_the_prompt_may_come_from_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, *MODULE, "run", "-m", "faux", "-"],
        input=b"hello\nthere\n",
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"I am a script and no model, so I can only repeat it: hello\nthere\n"


def test_an_answer_that_the_encoding_lacks_characters_for_is_printed_all_the_same(tmp_path: Path) -> None:
    done = run_command("run", "-m", script(tmp_path, "naïve"), "hi", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "na?ve\n")


# --- JSON --------------------------------------------------------------------------------------


@on_both
def test_events_and_the_result_can_be_had_as_json_lines(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, calls(("list_files", {})), "Done.")
    done = run_command("run", "--json", "-m", model, "--backend", backend, "--cwd", str(tmp_path), "look")
    assert (done.returncode, done.stderr) == (0, "")
    events = events_of(done.stdout)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["agent_start", "turn_start"]
    assert kinds[-2:] == ["agent_end", "result"]
    assert {"message_update", "tool_execution_start", "tool_execution_end", "turn_end"} <= set(kinds)
    (ended,) = (event for event in events if event["type"] == "tool_execution_end")
    assert (ended["tool_name"], ended["ending"], ended["result"]["details"]) == ("list_files", "finished", ".: 1 entry")
    deltas = [event["event"].get("delta", "") for event in events if event["type"] == "message_update"]
    assert "".join(deltas).endswith("Done.")
    result = events[-1]
    assert (result["outcome"], result["text"], result["error"], result["limit"]) == ("completed", "Done.", None, None)
    assert result["usage"]["output_tokens"] > 0


def test_a_failure_is_json_too(tmp_path: Path) -> None:
    done = run_command("run", "--json", "-m", script(tmp_path, {"error": "too much to do"}), "hi")
    assert done.returncode == 1
    result = events_of(done.stdout)[-1]
    assert result["outcome"] == "error"
    assert result["error"] == {"type": "ProviderUnavailable", "message": "[faux/script] too much to do"}


# --- exit codes --------------------------------------------------------------------------------


@on_both
def test_a_model_that_fails_is_exit_code_1(tmp_path: Path, backend: str) -> None:
    done = run_command("run", "-m", script(tmp_path, {"error": "too much to do"}), "--backend", backend, "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "cubepi-anyio run: the model could not answer: [faux/script] too much to do\n"


@on_both
@pytest.mark.parametrize(
    ("option", "limit"), [(("--max-turns", "1"), "max_turns=1"), (("--timeout", "0.5"), "run_timeout=0.5")]
)
def test_a_limit_is_exit_code_3(tmp_path: Path, backend: str, option: tuple[str, str], limit: str) -> None:
    model = script(tmp_path, calls(("list_files", {})), {"text": "Half an answer", "stall_after_deltas": 2})
    done = run_command("run", "-m", model, "--backend", backend, *option, "--cwd", str(tmp_path), "look")
    assert done.returncode == 3
    assert f"the run was ended by its limit {limit}\n" in done.stderr


@on_both
def test_ctrl_c_is_exit_code_130_and_what_had_been_said_is_kept(tmp_path: Path, backend: str) -> None:
    model = script(tmp_path, {"text": "Half an answer", "stall_after_deltas": 2})
    with Running("run", "-m", model, "--json", "--backend", backend, "hi") as command:
        command.lines_until('"content_index": 0, "delta"')
        command.lines_until('"delta"')
        command.send(signal.SIGINT)
        code, lines, _ = command.rest()
    assert code == 130
    result = json.loads(lines[-1])
    assert result["outcome"] == "aborted"
    assert "Half an answer".startswith(result["text"])
    assert result["text"]


def test_a_termination_has_its_own_exit_code(tmp_path: Path) -> None:
    model = script(tmp_path, {"text": "Half an answer", "stall_after_deltas": 2})
    with Running("run", "-m", model, "--json", "hi") as command:
        command.lines_until('"delta"')
        command.send(signal.SIGTERM)
        assert command.rest()[0] == 143


@on_both
def test_a_reader_that_goes_away_ends_the_run_without_a_complaint(tmp_path: Path, backend: str) -> None:
    command_line = [sys.executable, *MODULE, "run", "--json", "-m", "faux", "--backend", backend, "word " * 20_000]
    with subprocess.Popen(
        command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), encoding="utf-8"
    ) as command:
        head = subprocess.run(
            ["head", "-n", "1"], stdin=command.stdout, capture_output=True, timeout=DEADLINE_SECONDS, check=True
        )
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        assert command.stderr.read() == ""
        assert command.wait(DEADLINE_SECONDS) == 1
    assert json.loads(head.stdout)["type"] == "agent_start"


# --- what cannot be used -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hi",), "give a model with --model"),
        (("-m", "faux", ""), "the prompt is empty"),
        (("-m", "faux", "--timeout", "0", "hi"), "a time is a number of seconds, more than 0, not '0'"),
        (("-m", "faux", "--timeout", "soon", "hi"), "not 'soon'"),
        (("-m", "faux:nowhere.json", "hi"), "cannot read the script nowhere.json"),
        (("-m", "openai:m", "hi"), "openai needs an API key: set the variable OPENAI_API_KEY"),
        (("-m", "dance", "hi"), "there is no model 'dance'; a model is VENDOR:ID, with one of the vendors anthropic,"),
        (("-m", "ollama", "hi"), "ollama serves many models: give the id of one, as ollama:ID"),
    ],
)
def test_arguments_that_cannot_be_used_are_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = run_command("run", *arguments, OPENAI_API_KEY="", CUBEPI_MODEL="")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_trio_that_is_not_installed_is_a_usage_error() -> None:
    done = run_command("run", "-m", "faux", "--backend", "trio", "hi", program=("-c", WITHOUT_TRIO))
    assert done.returncode == 2
    assert done.stderr == "cubepi-anyio run: error: trio is not installed: pip install 'cubepi-anyio[trio]'\n"


# --- consent -----------------------------------------------------------------------------------


def test_programs_run_only_where_they_are_allowed(tmp_path: Path) -> None:
    model = script(tmp_path, calls(("run_process", {"command": "echo made > made.txt"})), "Done.")
    refused = run_command("run", "-m", model, "--cwd", str(tmp_path), "make it")
    assert (refused.returncode, refused.stdout) == (0, "Done.\n")
    assert "✗ refused" in refused.stderr
    assert not (tmp_path / "made.txt").exists()
    allowed = run_command("run", "-m", model, "--cwd", str(tmp_path), "--allow", "run_process", "make it")
    assert "✓ finished" in allowed.stderr
    assert (tmp_path / "made.txt").read_text("utf-8") == "made\n"


def test_on_a_terminal_the_person_is_asked(tmp_path: Path) -> None:
    model = script(tmp_path, calls(("write_file", {"path": "new.txt", "text": "words"})), "Done.")
    with at_terminal("run", "-m", model, "--cwd", str(tmp_path), "write it") as person:
        person.expect("yes, no or edit [y/n/e]: ")
        person.type("y\n")
        person.expect("wrote new.txt: 5 bytes")
        person.expect("Done.\r\n")
        assert person.rest() == 0


# --- a real conversation over HTTP -------------------------------------------------------------


@on_both
def test_a_recorded_model_answers_over_http(backend: str) -> None:
    with replay_server() as replay:
        base = replay.url("anth-anthropic-multi-turn-streaming-tools-3", chunk="event")
        arguments = ("-m", "anthropic:claude-test", "--backend", backend, "--json", "hello")
        done = run_command("run", *arguments, ANTHROPIC_API_KEY=SECRET, ANTHROPIC_BASE_URL=base)
    assert (done.returncode, done.stderr) == (0, "")
    events = events_of(done.stdout)
    deltas = [event["event"] for event in events if event["type"] == "message_update"]
    text = "".join(delta.get("delta", "") for delta in deltas if delta["type"] == "text_delta")
    assert text
    assert events[-1]["text"] == text
    assert events[-1]["usage"]["output_tokens"] > 0
    assert SECRET not in done.stdout


def test_a_key_that_is_refused_is_told_of_with_its_variable_and_without_the_key() -> None:
    with replay_server() as replay:
        base = replay.url("anth-anthropic-auth-rejection-carries-identity")
        done = run_command(
            "run", "-m", "anthropic:claude-test", "hello", ANTHROPIC_API_KEY=SECRET, ANTHROPIC_BASE_URL=base
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert SECRET not in done.stderr


def test_a_server_that_is_not_there_is_told_of() -> None:
    done = run_command("run", "-m", "ollama:some", "--base-url", "http://127.0.0.1:9/v1", "hello")
    assert done.returncode == 1
    assert "the model could not answer: [ollama/some]" in done.stderr
    assert "Traceback" not in done.stderr
