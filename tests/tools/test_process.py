"""``run_process``: how a program ended is a value, and nothing of it is alive afterwards, however the call ended."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio.tools.process import ProcessOutput, ProcessResult, run_process
from tests.support.agents import NoParams, assert_well_ended, bench, calling, running_tasks, tool_of
from tests.support.backends import on_asyncio
from tests.support.processes import is_alive

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(20)]

PYTHON = sys.executable
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


def program(source: str, *arguments: str) -> list[str]:
    return [PYTHON, "-c", source, *arguments]


def of_group(group: int) -> list[int]:
    """The processes of a group that do anything."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in ("Z", "X"):
            found.append(int(stat.parent.name))
    return found


def marked(mark: str) -> list[int]:
    """The processes whose environment has ``CUBEPI_MARK=mark``, and that do anything."""
    found: list[int] = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            has_mark = f"CUBEPI_MARK={mark}".encode() in environ.read_bytes().split(b"\0")
        except OSError:
            continue
        if has_mark and is_alive(int(environ.parent.name)):
            found.append(int(environ.parent.name))
    return found


class Heard:
    """Collects the updates of a program; ``until`` waits for a text in them."""

    def __init__(self) -> None:
        self.text = ""
        self._changed = anyio.Event()

    async def __call__(self, piece: Any) -> None:
        self.text += piece
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, text: str) -> str:
        while text not in self.text:
            await self._changed.wait()
        return self.text


# --- how it ended ----------------------------------------------------------------------------


async def test_output_and_errors_come_in_the_order_they_were_written() -> None:
    result = await run_process("echo one; echo two >&2; echo three; exit 3")
    assert result == ProcessResult(exit_code=3, output="one\ntwo\nthree\n")


async def test_a_list_is_a_program_with_its_arguments_and_no_shell() -> None:
    result = await run_process(program("import sys; print(sys.argv[1:])", "$HOME; exit 1", "*"))
    assert result == ProcessResult(exit_code=0, output="['$HOME; exit 1', '*']\n")


async def test_the_signal_that_ended_it_is_its_exit_code() -> None:
    assert (await run_process("kill -9 $$")).exit_code == -9


async def test_it_reads_what_it_is_given_and_otherwise_nothing() -> None:
    assert (await run_process("cat", stdin=b"hello")).output == "hello"
    assert (await run_process("cat")).output == ""


async def test_a_program_need_not_read_what_it_is_given() -> None:
    result = await run_process("echo done", stdin=b"x" * 1_000_000)
    assert (result.exit_code, result.output) == (0, "done\n")


async def test_where_and_with_what_it_runs_is_the_callers_choice(tmp_path: Path) -> None:
    result = await run_process("pwd; echo $WORD", cwd=tmp_path, env={"WORD": "w", "PATH": os.environ["PATH"]})
    assert result.output == f"{tmp_path}\nw\n"


@pytest.mark.parametrize(
    ("command", "options", "error", "text"),
    [
        (["no-such-program-here"], {}, FileNotFoundError, "No such file"),
        (["/"], {}, PermissionError, "Permission"),
        ("true", {"cwd": "/no/such/folder"}, FileNotFoundError, "No such file"),
        ([], {}, ValueError, "the command is empty"),
        ("", {}, ValueError, "the command is empty"),
        ([""], {}, ValueError, "the command is empty"),
        ("echo a\0; echo b", {}, ValueError, "NUL"),
        (["echo", "a\0b"], {}, ValueError, "NUL"),
    ],
)
async def test_a_command_that_cannot_be_run_is_an_error(
    command: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        await run_process(command, **options)
    assert type(caught.value) is error


async def test_a_command_the_shell_does_not_know_is_its_own_exit_code() -> None:
    result = await run_process("no-such-program-here")
    assert result.exit_code == 127
    assert "not found" in result.output


async def test_a_timeout_ends_it_and_keeps_what_it_had_written() -> None:
    result = await run_process("echo before; sleep 60; echo after", timeout=0.5)
    assert result == ProcessResult(exit_code=-15, output="before\n", timed_out=True)


async def test_a_program_that_ignores_the_request_to_end_is_killed() -> None:
    result = await run_process(program(DEAF), timeout=1.0, terminate_seconds=0.2)
    assert result == ProcessResult(exit_code=-9, output="deaf\n", timed_out=True)


async def test_what_a_program_says_when_it_is_asked_to_end_is_kept() -> None:
    source = """
import signal, sys, time
def leave(*_):
    print("bye", flush=True)
    sys.exit(4)
signal.signal(signal.SIGTERM, leave)
print("hi", flush=True)
time.sleep(60)
"""
    result = await run_process(program(source), timeout=1.0)
    assert result == ProcessResult(exit_code=4, output="hi\nbye\n", timed_out=True)


# --- its output ------------------------------------------------------------------------------


async def test_pieces_arrive_while_it_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    heard = Heard()
    result: ProcessResult | None = None
    async with anyio.create_task_group() as tasks:

        async def open_gate() -> None:
            await heard.until("ready")
            gate.touch()

        tasks.start_soon(open_gate)
        script = f"echo ready; while [ ! -e '{gate}' ]; do sleep 0.01; done; echo passed"
        result = await run_process(script, on_update=heard)
    assert result is not None
    assert (heard.text, result.output) == ("ready\npassed\n", "ready\npassed\n")


async def test_a_character_that_is_cut_between_two_pieces_is_whole_in_an_update() -> None:
    heard = Heard()
    source = (
        "import os, sys\n"
        "for byte in 'häß→😀'.encode():\n"
        "    os.write(1, bytes([byte])); sys.stdin.buffer.raw.read(0)\n"
        "    import time; time.sleep(0.01)\n"
        "os.write(1, b'\\xe2\\x82')\n"
    )
    result = await run_process(program(source), on_update=heard)
    assert heard.text == result.output == "häß→😀\ufffd"


async def test_too_much_output_keeps_its_beginning_and_its_end() -> None:
    output = ProcessOutput(max_bytes=100)
    result = await run_process(program("print('a' * 60 + 'b' * 5_000_000 + 'c' * 59)"), output=output)
    assert result.is_cut
    assert result.output == "a" * 50 + "\n[... 5000020 bytes left out ...]\n" + "c" * 49 + "\n"
    assert output.total_bytes == 5_000_120
    assert len(output._head) + len(output._tail) <= 200


async def test_output_of_just_the_bound_is_whole() -> None:
    output = ProcessOutput(max_bytes=10)
    for chunk in (b"01", b"2345678", b"9"):
        output.add(chunk)
    assert (output.text, output.is_cut) == ("0123456789", False)
    output.add(b"!")
    assert (output.text, output.is_cut) == ("01234\n[... 1 bytes left out ...]\n6789!", True)


async def test_a_listener_that_waits_holds_the_program_back_and_loses_nothing() -> None:
    pieces: list[str] = []
    largest = 0

    async def slow(piece: Any) -> None:
        nonlocal largest
        pieces.append(piece)
        largest = max(largest, len(piece))
        await anyio.sleep(0.02)

    result = await run_process(program("print('x' * 1_500_000)"), on_update=slow)
    assert sum(map(len, pieces)) == 1_500_001
    assert largest <= 262_144
    assert result.is_cut


async def test_an_error_of_the_listener_ends_the_program_and_leaves_as_itself() -> None:
    async def fail(piece: Any) -> None:
        raise LookupError(piece)

    output = ProcessOutput()
    with pytest.raises(LookupError) as caught:
        await run_process("echo $$; exec sleep 60", on_update=fail, output=output)
    assert type(caught.value) is LookupError
    assert not is_alive(int(output.text))


@pytest.mark.parametrize("exit_class", [KeyboardInterrupt, SystemExit])
async def test_an_exit_from_the_listener_leaves_as_itself(exit_class: type[BaseException]) -> None:
    async def leave(piece: Any) -> None:
        raise exit_class("enough")

    output = ProcessOutput()
    with pytest.raises(exit_class) as caught:
        await run_process("echo $$; exec sleep 60", on_update=leave, output=output)
    assert type(caught.value) is exit_class
    assert not is_alive(int(output.text))


# --- what it leaves --------------------------------------------------------------------------


async def test_it_returns_when_the_program_ends_although_a_child_of_it_holds_the_pipe() -> None:
    with anyio.fail_after(5):
        result = await run_process("sleep 60 & echo $!; exit 0")
    assert result.exit_code == 0
    assert not is_alive(int(result.output))


async def test_what_ignores_the_request_to_end_in_its_group_is_killed() -> None:
    source = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
    result = await run_process(program(source), terminate_seconds=0.2)
    assert not is_alive(int(result.output))


async def test_what_has_left_the_group_and_writes_on_does_not_hold_the_call() -> None:
    source = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    try:
        while True:
            os.write(1, b"y" * 4096)
    except OSError:
        os._exit(0)
"""
    with anyio.fail_after(10):
        result = await run_process(program(source), output=ProcessOutput(100))
    assert result.exit_code == 0
    daemon = int(result.output.split("\n")[0])
    with anyio.fail_after(5):  # its pipe is closed, so its next write fails
        while is_alive(daemon):  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize("terminate_seconds", [0.2, 5.0])
async def test_a_cancelled_call_ends_the_whole_group_and_keeps_the_output(terminate_seconds: float) -> None:
    output, heard = ProcessOutput(), Heard()
    script = "echo $$; sleep 60 & sleep 60 & echo ready; wait"
    group = 0
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await run_process(script, on_update=heard, output=output, terminate_seconds=terminate_seconds)

        tasks.start_soon(run)
        group = int((await heard.until("ready")).split()[0])
        assert len(of_group(group)) == 3
        tasks.cancel_scope.cancel()
    assert of_group(group) == []
    assert output.text == f"{group}\nready\n"


async def test_a_cancelled_program_that_does_not_listen_is_killed_in_time() -> None:
    heard, group, began = Heard(), 0, 0.0
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await run_process(program(f"import os; print(os.getpid()); {DEAF}"), on_update=heard, terminate_seconds=0.3)

        tasks.start_soon(run)
        group = int((await heard.until("deaf")).split()[0])
        began = anyio.current_time()
        tasks.cancel_scope.cancel()
    assert 0.25 <= anyio.current_time() - began < 15
    assert of_group(group) == []


@on_asyncio
async def test_native_cancels_one_after_the_other_do_not_break_off_the_cleanup() -> None:
    heard = Heard()
    source = program(f"import os; print(os.getpid()); {DEAF}")

    async def run() -> None:
        await run_process(source, on_update=heard, terminate_seconds=0.3)

    task = asyncio.create_task(run())
    group = int((await heard.until("deaf")).split()[0])
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.01)
    assert task.cancelled()
    assert of_group(group) == []


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
async def test_a_call_that_is_cancelled_right_after_its_start_leaves_nothing(seconds: float, tmp_path: Path) -> None:
    mark = f"{tmp_path}-{os.getpid()}"
    before = running_tasks()
    with anyio.move_on_after(seconds) as scope:
        await run_process("sleep 60 & sleep 60 & wait", env={**os.environ, "CUBEPI_MARK": mark})
    assert scope.cancelled_caught
    assert marked(mark) == []
    assert running_tasks() == before


async def test_a_call_in_a_cancelled_scope_starts_nothing(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_process(f"touch '{tmp_path}/began'")
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == []


# --- in a run --------------------------------------------------------------------------------


def shell(heard: Heard, **options: Any) -> Any:
    async def execute(tool_call_id: str, params: NoParams) -> str:
        script = "echo $$; sleep 60 & sleep 60 & echo ready; wait"
        return (await run_process(script, on_update=heard, terminate_seconds=0.3)).output

    return tool_of("shell", execute, **options)


@pytest.mark.parametrize("way", ["abort", "scope", "abort_tool_call"])
async def test_no_process_of_a_run_is_left_when_it_has_ended(way: str) -> None:
    heard = Heard()
    made = bench(calling("shell"), "done", tools=[shell(heard)])
    group = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        group = int((await heard.until("ready")).split()[0])
        ends: dict[str, Callable[[], Any]] = {
            "abort": made.agent.abort,
            "scope": tasks.cancel_scope.cancel,
            "abort_tool_call": lambda: made.agent.abort_tool_call("c1"),
        }
        ends[way]()
    assert of_group(group) == []
    assert made.results[0].details["ending"] == ("aborted" if way == "abort_tool_call" else "cancelled")
    await assert_well_ended(made)


@on_asyncio
async def test_no_process_of_a_run_is_left_when_its_task_is_cancelled() -> None:
    heard = Heard()
    made = bench(calling("shell"), "done", tools=[shell(heard)])
    task = asyncio.create_task(made.agent.prompt("hi"))
    group = int((await heard.until("ready")).split()[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert of_group(group) == []
    await assert_well_ended(made)
