"""What the benchmarks ask of a library: a scripted model, one tool, and the works made of them.

Nothing here imports a library under measurement, so that every one of them runs the same works in an environment of
its own. A work is an async function of a library and a size; it returns how many units it did and checks that they
were done.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

import anyio

PEERS = ("cubeloop", "cubepi", "pydantic_ai", "openai_agents", "langgraph", "agno", "strands")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says next: calls as (id, name, arguments), or deltas of text, or deltas of one call's arguments.

    A model that sends deltas lets others run before every eighth of them. ``silent`` means: never ends.
    """

    calls: Sequence[tuple[str, str, dict[str, Any]]] = ()
    text: Iterable[str] | None = None
    argument_deltas: Sequence[str] | None = None
    silent: bool = False


Script = Callable[[int], Answer]
"""The answer number i; a run ends with the first answer without calls."""
ToolBody = Callable[[int], Awaitable[str]]


class Library(Protocol):
    """One library, ready to be measured."""

    name: str
    backends: tuple[str, ...]

    def tool(self, body: ToolBody) -> Any:
        """A tool ``noop(x: int = 0, s: str = "")`` that awaits ``body(x)``."""
        ...

    async def run(
        self,
        script: Script,
        tool: Any,
        *,
        on_delta: Callable[[str], None] | None = None,
        wait_delta: Callable[[str], Awaitable[None]] | None = None,
        store: Any = None,
        on_abort: Callable[[Callable[[], object]], object] | None = None,
    ) -> object:
        """Make an agent of the model, the tool and the system prompt "sys", say "go" and run until it is idle.

        ``on_delta`` is told of each delta, ``wait_delta`` is awaited for each. ``on_abort`` is given the function that
        aborts the run, if the library has one.
        """
        ...


def module_of(name: str) -> Any:
    """The module of the library called ``name``: ``ours``, ``floor`` or one of ``PEERS``, which need their packages."""
    if name not in ("ours", "floor", *PEERS):
        raise SystemExit(f"no library {name!r}; there are: ours, floor, {', '.join(PEERS)}")
    return import_module(name if name in ("ours", "floor") else f"peers.with_{name}")


def load(name: str) -> Library:
    """The library called ``name``."""
    return cast("Library", module_of(name).LIBRARY)


def tool_loop(turns: int, width: int) -> Script:
    """``turns`` answers with ``width`` calls each, then a last word."""

    def script(index: int) -> Answer:
        if index < turns:
            return Answer(calls=[(f"c{index}_{k}", "noop", {"x": k}) for k in range(width)])
        return Answer(text=("done",))

    return script


class Counting:
    """A tool's body that answers at once and counts how often it was run."""

    def __init__(self) -> None:
        self.ran = 0

    async def __call__(self, x: int) -> str:
        self.ran += 1
        return "ok"


@lru_cache(maxsize=8)
def counting_tool(library: Library) -> tuple[Any, Counting]:
    """A tool of the library and its body. Made once, as in a program: no question here asks what making it costs."""
    body = Counting()
    return library.tool(body), body


async def run_calls(library: Library, turns: int, width: int, store: Any = None) -> int:
    """The tool loop without a listener; counts calls."""
    tool, body = counting_tool(library)
    body.ran = 0
    await library.run(tool_loop(turns, width), tool, store=store)
    assert body.ran == turns * width, (body.ran, turns, width)
    return body.ran


def words(count: int) -> Iterable[str]:
    """``count`` deltas of four characters, made as they are asked for."""
    return (f"{number % 1000:03d} " for number in range(count))


async def run_deltas(library: Library, deltas: int) -> int:
    """One answer of ``deltas`` text deltas to a listener; counts deltas."""
    heard = 0

    def on_delta(delta: str) -> None:
        nonlocal heard
        heard += len(delta)

    await library.run(lambda index: Answer(text=words(deltas)), counting_tool(library)[0], on_delta=on_delta)
    assert heard == 4 * deltas, (heard, deltas)
    return deltas


async def run_slow_listener(library: Library, deltas: int) -> int:
    """The same with a listener that lets everybody else run three times for each delta; counts deltas."""
    heard = 0

    async def wait_delta(delta: str) -> None:
        nonlocal heard
        heard += len(delta)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()

    await library.run(lambda index: Answer(text=words(deltas)), counting_tool(library)[0], wait_delta=wait_delta)
    assert heard == 4 * deltas, (heard, deltas)
    return deltas


@lru_cache(maxsize=8)
def argument_deltas(size_bytes: int) -> list[str]:
    """The arguments of one call, ``size_bytes`` of JSON cut into deltas of 16 bytes."""
    text = json.dumps({"x": 1, "s": "a" * (size_bytes - 18)})
    return [text[at : at + 16] for at in range(0, len(text), 16)]


async def run_arguments(library: Library, size_bytes: int) -> int:
    """One call whose arguments arrive as ``size_bytes`` of JSON in deltas of 16 bytes, to a listener; counts deltas."""
    deltas = argument_deltas(size_bytes)
    heard = 0

    def on_delta(delta: str) -> None:
        nonlocal heard
        heard += len(delta)

    def script(index: int) -> Answer:
        return Answer(argument_deltas=deltas) if index == 0 else Answer(text=("done",))

    await library.run(script, counting_tool(library)[0], on_delta=on_delta)
    assert heard >= size_bytes, (heard, size_bytes)
    return len(deltas)


async def run_many(library: Library, agents: int) -> int:
    """``agents`` runs at once, each with one call; all of them wait in their tools at the same moment. Counts runs."""
    waiting = 0
    all_wait = anyio.Event()

    async def body(x: int) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == agents:
            all_wait.set()
        await all_wait.wait()
        return "ok"

    tool = library.tool(body)

    async def one() -> None:
        await library.run(tool_loop(1, 1), tool)

    async with anyio.create_task_group() as runs:
        for _ in range(agents):
            runs.start_soon(one)
    assert waiting == agents, (waiting, agents)
    return agents
