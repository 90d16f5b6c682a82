from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from cubepi_anyio import __version__
from cubepi_anyio.cli.main import main
from tests.cli.child import run_command


def test_the_module_is_the_command() -> None:
    done = run_command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cubepi-anyio {__version__}\n", "")


def test_the_installed_command_is_the_same_function() -> None:
    (script,) = entry_points(group="console_scripts", name="cubepi-anyio")
    assert script.load() is main


def test_help_names_the_commands_and_is_no_failure() -> None:
    done = run_command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout
    assert "--no-color" in run_command("demo", "--help").stdout


@pytest.mark.parametrize("arguments", [(), ("dance",), ("--loud",)])
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    done = run_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: cubepi-anyio")


def test_loading_the_command_loads_no_event_loop_and_no_rich() -> None:
    program = ("-c", "import sys, cubepi_anyio.cli.main; print(*({'trio', 'asyncio', 'rich'} & set(sys.modules)))")
    done = run_command(program=program)
    assert (done.stdout, done.stderr) == ("\n", "")
