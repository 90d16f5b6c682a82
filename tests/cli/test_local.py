"""A real small model, in a process of its own; skipped where it is not installed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from cubepi_anyio.cli.local_model import missing_for_local
from tests.cli.child import Running, run_command
from tests.cli.talking import CTRL_C, CTRL_D, at_terminal, has_ended, on_both

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_local()), reason=missing_for_local()),
    pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals are those of POSIX"),
]


def server_of(process: subprocess.Popen[Any]) -> int:
    """The id of the model's process, which the command has started."""
    listed = subprocess.run(
        ["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, encoding="utf-8", check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    (pid,) = (int(pid) for pid, parent, args in rows if int(parent) == process.pid and "local_server.py" in args)
    return pid


@on_both
def test_a_real_model_answers(backend: str) -> None:
    done = run_command("run", "-m", "local", "--json", "--max-tokens", "24", "--backend", backend, "Say hello.")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    deltas = [event["event"] for event in events if event["type"] == "message_update"]
    said = "".join(step.get("delta", "") for step in deltas if step["type"] == "text_delta")
    assert said.strip()
    assert events[-1]["outcome"] == "completed"
    assert events[-1]["text"] == said
    assert 0 < events[-1]["usage"]["output_tokens"] <= 24
    assert events[-1]["usage"]["input_tokens"] > 0


@on_both
def test_a_real_answer_can_be_interrupted_and_the_conversation_goes_on(backend: str) -> None:
    with at_terminal("chat", "-m", "local", "--max-tokens", "400", "--backend", backend) as person:
        person.expect("Starting the local model ...")
        person.say("Write a long story about the sea.")
        while len(person.output.split("about the sea.\r\n")[-1]) < 20:
            person.expect(" ")
        server = server_of(person._process)
        person.press(CTRL_C)
        person.expect("Aborted; the conversation goes on.")
        person.say("Say hello.")
        person.expect(" tokens read, ")
        person.expect("> ")
        person.press(CTRL_D)
        assert person.rest() == 0
    assert has_ended(server)


def test_the_model_ends_with_a_process_that_was_interrupted() -> None:
    with Running("run", "-m", "local", "--json", "Write a long story about the sea.") as command:
        command.lines_until('"delta"')
        server = server_of(command._process)
        command.send(signal.SIGINT)
        assert command.rest()[0] == 130
    assert has_ended(server)
