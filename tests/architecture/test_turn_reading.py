"""The lines that one reads for a turn are those of the functions that a real turn passes through."""

from __future__ import annotations

import inspect
from importlib.util import find_spec

from cubepi_anyio import Agent
from tests.architecture.turn_reading import ROOMS_OF_A_TURN, functions_of, functions_of_a_turn, rooms

BACKENDS = ("asyncio", "trio") if find_spec("trio") else ("asyncio",)


def test_a_turn_passes_through_the_agent_the_stream_and_the_tools() -> None:
    functions = functions_of_a_turn(BACKENDS)
    names = [(each.path, each.name) for each in functions]
    assert ("agent/agent.py", "Agent.prompt") in names
    assert len(set(names)) == len(names)
    assert {*ROOMS_OF_A_TURN, "stream"} <= set(rooms(functions))


def test_a_function_is_as_long_as_its_source_and_what_stands_in_it_is_part_of_it() -> None:
    source, _ = inspect.getsourcelines(Agent.prompt)
    [found] = functions_of([Agent.prompt.__code__, functions_of_a_turn.__code__])
    assert (found.name, found.lines) == ("Agent.prompt", len(source))
    assert found.docstring_lines == len((Agent.prompt.__doc__ or "").splitlines())


def test_a_room_adds_up_its_functions() -> None:
    functions = functions_of([Agent.prompt.__code__, Agent.abort.__code__])
    assert rooms(functions)["agent"] == (
        2,
        sum(each.lines for each in functions),
        sum(each.lines - each.docstring_lines for each in functions),
    )
