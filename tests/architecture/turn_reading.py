# ruff: noqa: T201 - also a program, which prints
"""What one has to read to understand a turn: the functions that a real one passes through, and their lines.

A run with one tool call and one listener is made on each backend, by a model that says a script, and watched by
Python's profiler. ``python tests/architecture/turn_reading.py`` prints every function and the sums; the package that is
installed is the one that is read. With ``run_loop`` behind it, only what that calls.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio

from cubepi_anyio import (
    Agent,
    AgentEvent,
    BaseProvider,
    Message,
    MessageDraft,
    MessageStream,
    Model,
    StreamOptions,
    ToolDefinition,
    tool,
)

ROOMS_OF_A_TURN = ("agent", "tools")
"""Where a turn is decided. What stands behind the doors of the other rooms can be believed."""
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


@dataclass(frozen=True, order=True)
class Function:
    """A function of the package: its file below the package's folder, its name in it, and how long it is."""

    path: str
    name: str
    first_line: int
    last_line: int
    docstring_lines: int

    @property
    def lines(self) -> int:
        """Lines of source, from the decorators to the end."""
        return self.last_line - self.first_line + 1


class OneCall(BaseProvider):
    """A model that calls a tool once and then has done."""

    def __init__(self) -> None:
        super().__init__(provider_id="script")
        self._asked = 0

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        self._asked += 1
        answer = self._asked

        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream, model)
            if answer == 1:
                call = await draft.tool_call("a", "add")
                await draft.arguments(call, '{"x": 1}')
                await draft.end_block(call)
            else:
                await draft.text("done")
            await draft.done()

        return MessageStream(produce)


@tool
async def add(x: int) -> str:
    """Add one."""
    return str(x + 1)


def is_below(frame: FrameType | None, name: str) -> bool:
    """Whether a frame is that of the package's function of this name, or was called by it, or by what it called."""
    while frame is not None:
        if frame.f_code.co_qualname == name and frame.f_globals.get("__name__", "").startswith("cubepi_anyio."):
            return True
        frame = frame.f_back
    return False


def functions_of_a_turn(backends: Iterable[str] = ("asyncio", "trio"), *, below: str | None = None) -> list[Function]:
    """The package's functions that a run with one call passes through, on any of the backends; each once.

    ``below`` names the function from which on they count: it, what it calls, and so on, in its own task. A function
    that stands inside another that was passed through is part of it. Making the agent is not watched.
    """
    passed: set[CodeType] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code not in passed and (below is None or is_below(frame, below)):
            passed.add(frame.f_code)

    async def main() -> None:
        heard: list[str] = []

        def listener(event: AgentEvent) -> None:
            heard.append(event.type)

        agent = Agent(model=OneCall().model("m"), tools=[add], system_prompt="Add.")
        agent.subscribe(listener)
        sys.setprofile(watch)
        try:
            result = await agent.prompt("go")
        finally:
            sys.setprofile(None)
        result.raise_for_error()
        assert heard.count("tool_execution_end") == 1, heard
        assert heard.count("turn_end") == 2, heard

    for backend in backends:
        anyio.run(main, backend=backend)
    return functions_of(passed)


def functions_of(passed: Iterable[CodeType]) -> list[Function]:
    """The package's functions among some code, without those that stand inside another of them."""
    import cubepi_anyio  # noqa: PLC0415 - the module, beside the names from it

    root = Path(cubepi_anyio.__file__).parent
    lines_of: defaultdict[Path, set[int]] = defaultdict(set)
    for code in passed:
        path = Path(code.co_filename)
        if root in path.parents and code.co_name not in COMPREHENSIONS:
            lines_of[path].add(code.co_firstlineno)
    return sorted(
        function
        for path, first_lines in lines_of.items()
        for function in _outermost(
            ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(root)), first_lines
        )
    )


def _outermost(tree: ast.AST, path: str, first_lines: set[int], prefix: str = "") -> Iterable[Function]:
    """Functions that begin at one of the lines; what stands inside one is not looked for."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _outermost(node, path, first_lines, prefix)
            continue
        first = min((each.lineno for each in node.decorator_list), default=node.lineno)
        if isinstance(node, ast.ClassDef) or first not in first_lines:
            yield from _outermost(node, path, first_lines, f"{prefix}{node.name}.")
            continue
        head = node.body[0]
        has_docstring = ast.get_docstring(node, clean=False) is not None
        docstring_lines = (head.end_lineno or head.lineno) - head.lineno + 1 if has_docstring else 0
        yield Function(path, prefix + node.name, first, node.end_lineno or first, docstring_lines)


def rooms(functions: Iterable[Function]) -> dict[str, tuple[int, int, int]]:
    """For each room of the package: how many functions, their lines, and their lines without docstrings."""
    found: dict[str, tuple[int, int, int]] = {}
    for each in functions:
        room = each.path.partition("/")[0]
        number, lines, bare = found.get(room, (0, 0, 0))
        found[room] = (number + 1, lines + each.lines, bare + each.lines - each.docstring_lines)
    return found


def main() -> None:
    functions = functions_of_a_turn(below=sys.argv[1] if len(sys.argv) > 1 else None)
    for each in functions:
        print(f"{each.lines:>5}{each.lines - each.docstring_lines:>5}  {each.path}:{each.first_line} {each.name}")
    print(f"\n{'room':<20}{'functions':>10}{'lines':>8}{'without docstrings':>20}")
    by_room = rooms(functions)
    total = tuple(sum(numbers) for numbers in zip(*by_room.values(), strict=True))
    turn = tuple(sum(numbers) for numbers in zip(*(by_room[room] for room in ROOMS_OF_A_TURN), strict=True))
    for room, (number, lines, bare) in [*by_room.items(), ("all", total), (" + ".join(ROOMS_OF_A_TURN), turn)]:
        print(f"{room:<20}{number:>10}{lines:>8}{bare:>20}")


if __name__ == "__main__":
    main()
