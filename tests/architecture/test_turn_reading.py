"""What one reads for a turn is short, and the page that lists it lists what a real turn passes through."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cubepi_anyio import Agent
from tests.architecture.turn_reading import (
    ROOMS_OF_A_TURN,
    Function,
    functions_of,
    functions_of_a_turn,
    rooms,
)

BACKENDS = ("asyncio", "trio") if find_spec("trio") else ("asyncio",)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "a-turn.md"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
LINES_TO_READ = 700
LINES_WITH_WHAT_IT_USES = 900


@cache
def functions_to_read() -> dict[tuple[str, str], Function]:
    """The functions of a turn from ``run_loop`` on, by file and name, as far as the page is about them."""
    functions = functions_of_a_turn(BACKENDS, below="run_loop")
    read = [each for each in functions if each.path.startswith(("agent/", "tools/run/", "tools/context"))]
    return {(each.path, each.name): each for each in read}


def listed() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What the page lists: the turn, and what it uses."""
    turn, _, used = PAGE.read_text(encoding="utf-8").partition("\n## What the turn uses\n")
    return ROW.findall(turn), ROW.findall(used)


def test_the_page_lists_the_functions_that_a_turn_runs_through_each_once() -> None:
    turn, used = listed()
    named = [*turn, *used]
    assert len(set(named)) == len(named)
    traced = set(functions_to_read())
    assert (sorted(traced - set(named)), sorted(set(named) - traced)) == ([], [])


def test_what_a_turn_uses_is_five_files_and_the_turn_is_in_others() -> None:
    turn, used = listed()
    files = {path for path, _ in used}
    agent = {f"agent/{name}.py" for name in ("outbox", "ending", "silence", "queues")}
    assert files == {*agent, "tools/run/outcome.py"}
    assert files.isdisjoint(path for path, _ in turn)


def test_one_turn_is_read_in_at_most_700_lines() -> None:
    functions = functions_to_read()
    turn, used = listed()
    lines = sum(functions[name].lines for name in turn)
    assert 0 < lines <= LINES_TO_READ
    assert lines < lines + sum(functions[name].lines for name in used) <= LINES_WITH_WHAT_IT_USES


def test_what_is_below_a_function_leaves_out_what_calls_it() -> None:
    below = {each.name for each in functions_of_a_turn(("asyncio",), below="run_turn")}
    assert {"run_turn", "ask_model", "run_call"} <= below
    assert below.isdisjoint({"Agent.prompt", "run_loop", "settle"})


def test_a_run_passes_through_the_agent_the_stream_and_the_tools() -> None:
    functions = functions_of_a_turn(BACKENDS)
    names = [(each.path, each.name) for each in functions]
    assert ("agent/agent.py", "Agent.prompt") in names
    assert len(set(names)) == len(names)
    assert {*ROOMS_OF_A_TURN, "stream"} <= set(rooms(functions))


def test_a_function_is_as_long_as_its_source_and_what_stands_in_it_is_part_of_it() -> None:
    source, _ = inspect.getsourcelines(Agent.prompt)
    [found] = functions_of([Agent.prompt.__code__, functions_of_a_turn.__code__])
    assert (found.name, found.lines) == ("Agent.prompt", len(source))
    # By the source: newer Pythons take the indentation, and with it the last line, out of ``__doc__``.
    quotes = [number for number, line in enumerate(source) if '"""' in line]
    assert found.docstring_lines == quotes[1] - quotes[0] + 1


def test_a_room_adds_up_its_functions() -> None:
    functions = functions_of([Agent.prompt.__code__, Agent.abort.__code__])
    assert rooms(functions)["agent"] == (
        2,
        sum(each.lines for each in functions),
        sum(each.lines - each.docstring_lines for each in functions),
    )
