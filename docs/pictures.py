"""Draws the pictures of the design pages: ``python docs/pictures.py``.

The tree and the timeline come from real runs, on trio with a clock that jumps, so that the same code always gives the
same picture; ``tests/docs`` compares. The lives come from ``lives.py``, whose steps a test traces. The colours are the
page's own, light or dark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import anyio
import trio
from lives import LIVES, Life
from trio.testing import MockClock

from cubepi_anyio import (
    Agent,
    FauxProvider,
    FauxResponse,
    RunLimits,
    faux_assistant_message,
    faux_tool_call,
    tool,
)
from cubepi_anyio.cli.demo.timeline import Bar, Timeline, TimelineRecorder

PICTURES = Path(__file__).resolve().parent / "pictures"

STYLE = """<style>
.cubepi { --fg: var(--md-default-fg-color, #222); --dim: var(--md-default-fg-color--light, #777);
  --line: var(--md-default-fg-color--lightest, #ccc); --good: #2e9e5b; --bad: #d9534f; --stopped: #d98e04;
  --model: #4a7bd0; font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
.cubepi text { fill: var(--fg); } .cubepi .dim { fill: var(--dim); }
.cubepi line, .cubepi path { stroke: var(--line); fill: none; }
.cubepi .scope { fill: none; stroke: var(--dim); stroke-dasharray: 4 3; }
.cubepi .task { fill: none; stroke: var(--model); }
.cubepi .finished { fill: var(--good); } .cubepi .model { fill: var(--model); }
.cubepi .timed_out, .cubepi .cancelled { fill: var(--stopped); } .cubepi .failed { fill: var(--bad); }
.cubepi .name { font: 12px ui-monospace, monospace; }
.cubepi .lane0 { --lane: var(--model); } .cubepi .lane1 { --lane: var(--good); }
.cubepi .lane2 { --lane: var(--stopped); }
.cubepi circle { fill: var(--lane); } .cubepi line.lane0, .cubepi line.lane1, .cubepi line.lane2 { stroke: var(--lane);
  stroke-width: 2; } .cubepi path.turn { stroke: var(--dim); }
.cubepi line.abort { stroke: var(--bad); stroke-width: 2; }
</style>"""


def picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """An SVG without blank lines, which would end it inside a page."""
    head = (
        f'<svg class="cubepi" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


# --- the timeline of a batch that is aborted -------------------------------------------------


@tool
async def search() -> str:
    """Search; it takes 0.8 seconds."""
    await anyio.sleep(0.8)
    return "found"


@tool(timeout=1.0)
async def fetch() -> str:
    """Fetch; nothing comes, and the call has a timeout."""
    await anyio.sleep_forever()
    return ""


@tool
async def upload() -> str:
    """Upload; when cancelled it needs 0.4 seconds to clean up, under a shield."""
    try:
        await anyio.sleep(60)
    finally:
        with anyio.move_on_after(2, shield=True):
            await anyio.sleep(0.4)
    return "uploaded"


@tool
async def watch() -> str:
    """Watch; it never ends by itself."""
    await anyio.sleep_forever()
    return ""


async def aborted_batch() -> Timeline:
    """Four calls at once, and an abort 1.6 seconds after the run began."""
    provider = FauxProvider(tokens_per_second=20, token_size_min=4, token_size_max=4)
    calls = [faux_tool_call(name) for name in ("search", "fetch", "upload", "watch")]
    provider.set_responses([faux_assistant_message(["I look at all four.", *calls])])
    agent = Agent(model=provider.model("m"), tools=[search, fetch, upload, watch])
    recorder = TimelineRecorder()
    agent.subscribe(lambda event: recorder.record(event, anyio.current_time()))

    async def abort() -> None:
        await anyio.sleep(1.6)
        recorder.mark("agent.abort()", anyio.current_time())
        agent.abort()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(abort)
        await agent.prompt("Go.")
    return recorder.timeline


ROW, LEFT, WIDTH, RIGHT = 30, 90, 430, 180


def draw_timeline(timeline: Timeline) -> str:
    """A row for each bar, on one axis of seconds, and the abort as a line through all of them."""
    scale = WIDTH / timeline.total_seconds
    bottom = 34 + ROW * len(timeline.bars)
    parts: list[str] = []
    for tenths in range(0, int(timeline.total_seconds * 10) + 1, 5):
        x = round(LEFT + tenths / 10 * scale, 1)
        parts.append(f'<line x1="{x}" y1="24" x2="{x}" y2="{bottom}"/>')
        parts.append(text(x, 16, f"{tenths / 10:g} s", kind="dim", anchor="middle"))
    for row, bar in enumerate(timeline.bars):
        parts += draw_bar(bar, 34 + ROW * row, scale)
    for mark in timeline.marks:
        x = LEFT + mark.at_seconds * scale
        parts.append(f'<line class="abort" x1="{x:.1f}" y1="24" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(text(round(x, 1), bottom + 18, f"{mark.label} at {mark.at_seconds:g} s", anchor="middle"))
    return picture(LEFT + WIDTH + RIGHT, bottom + 26, "The timeline of a batch that is aborted", parts)


def draw_bar(bar: Bar, y: int, scale: float) -> list[str]:
    """Name, bar, and how it ended."""
    ended = bar.ended_seconds or 0.0
    kind = "model" if bar.kind == "model" else bar.ending
    x, width = LEFT + bar.began_seconds * scale, max((ended - bar.began_seconds) * scale, 1)
    words = f"{bar.ending.replace('_', ' ')} at {ended:.1f} s"
    return [
        text(LEFT - 8, y + 16, bar.name, anchor="end"),
        f'<rect class="{kind}" x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="18" rx="3"/>',
        text(LEFT + WIDTH + 10, y + 16, words, kind="dim"),
    ]


# --- the tree of tasks and scopes ------------------------------------------------------------


@dataclass
class Node:
    """A task or a scope, and what is inside it."""

    kind: str
    label: str
    inside: list[Node] = field(default_factory=list["Node"])


async def while_streaming() -> Node:
    """What there is while the model answers: no task but the one that produces the answer."""
    provider = FauxProvider()
    provider.set_responses([FauxResponse("Let me see.", stall_after_deltas=1)])
    agent = Agent(model=provider.model("m"), limits=RunLimits(run_timeout=60, turn_timeout=20))
    return await snapshot(agent, provider.wait_stalled, lambda tasks: [])


async def while_tools_run() -> Node:
    """What there is while three calls run."""
    ready, waiting = trio.Event(), 0
    at: dict[Any, str] = {}

    async def work(name: str) -> str:
        nonlocal waiting
        at[trio.lowlevel.current_task()] = name
        waiting += 1
        if waiting == 3:
            ready.set()
        await anyio.sleep_forever()
        return ""

    @tool(timeout=5)
    async def search() -> str:
        """Search."""
        return await work("search")

    @tool
    async def fetch() -> str:
        """Fetch."""
        return await work("fetch")

    @tool
    async def upload() -> str:
        """Upload."""
        return await work("upload")

    provider = FauxProvider()
    provider.set_responses([faux_assistant_message([faux_tool_call(n) for n in ("search", "fetch", "upload")])])
    limits = RunLimits(run_timeout=60, turn_timeout=20)
    agent = Agent(model=provider.model("m"), tools=[search, fetch, upload], limits=limits)

    def calls(tasks: Sequence[Any]) -> list[Node]:
        run = agent.state.run
        assert run is not None
        names = {at[task] for task in tasks}
        return [
            Node("task", f"call of {slot.call.name}", [Node("scope", deadline("call", slot.scope))])
            for slot in run.calls.slots
            if slot.call.name in names
        ]

    return await snapshot(agent, ready.wait, calls)


def deadline(what: str, scope: Any) -> str:
    """A scope with the seconds it has left."""
    left = scope.deadline - anyio.current_time()
    return f"scope of the {what}" + (f", {left:.0f} s left" if left < 1e6 else "")


async def snapshot(agent: Agent, wait: Callable[[], Any], inner: Callable[[Sequence[Any]], list[Node]]) -> Node:
    """The tree of a run at the moment for which ``wait`` waits; the run is aborted then.

    The caller's task has the task group of the run, with the producer of the answers in it, and inside the scopes of
    the run and the turn that of a batch. ``inner`` draws the tasks of the latter.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Go.", name="caller")
        await wait()
        [caller] = [task for task in nursery.child_tasks if task.name == "caller"]
        run = agent.state.run
        assert run is not None
        group, *batches = caller.child_nurseries
        [producer] = group.child_tasks
        tasks = [task for batch in batches for task in batch.child_tasks]
        assert not any(task.child_nurseries for task in (producer, *tasks))
        found = inner(tasks)
        assert len(found) == len(tasks), tasks
        scopes = {name: scope for name, scope, _ in run.ending.deadlines}
        turn = Node("scope", deadline("turn", scopes["turn_timeout"]), found)
        whole = Node("scope", deadline("run", scopes["run_timeout"]), [turn])
        idle = "" if run.record.is_streaming else ", idle"
        producing = Node("task", f"the task that produces the model's answers{idle}")
        agent.abort()
    return Node("task", "your task, in agent.prompt()", [producing, whole])


STEP = 30


def draw_trees(trees: Sequence[tuple[str, Node]]) -> str:
    """The trees under each other; a box for a task, a dashed one for a scope."""
    parts: list[str] = []
    y = 8
    for title, tree in trees:
        parts.append(text(4, y + 14, title, kind="dim"))
        y = draw_node(tree, 12, y + 24, parts) + 10
    return picture(560, y, "The tasks and scopes of a run", parts)


def draw_node(node: Node, x: int, y: int, parts: list[str]) -> int:
    """Draw a node and what is inside it; returns the next free line."""
    corner = 11 if node.kind == "task" else 2
    parts.append(f'<rect class="{node.kind}" x="{x}" y="{y}" width="360" height="22" rx="{corner}"/>')
    parts.append(text(x + 12, y + 15, node.label))
    below = y + STEP
    for child in node.inside:
        parts.append(f'<path d="M{x + 14} {y + 22} V{below + 11} H{x + 34}"/>')
        below = draw_node(child, x + 34, below, parts)
    return below


# --- what a thing passes through -------------------------------------------------------------

RAIL, LINE = 22, 24
NAMES, FILES, WORDS = 20, 290, 515


def draw_life(life: Life) -> str:
    """A row for each function, on the rail of the task that it runs in; a bow where the next is in another task."""
    top = 22 + 18 * len(life.lanes)
    names = RAIL * len(life.lanes) + NAMES
    rows = [top + LINE * row for row in range(len(life.steps))]
    parts: list[str] = []
    for lane, whose in enumerate(life.lanes):
        x, own = 12 + RAIL * lane, [y for y, step in zip(rows, life.steps, strict=True) if step.lane == lane]
        parts.append(f'<line class="lane{lane}" x1="{x}" y1="{own[0]}" x2="{x}" y2="{own[-1]}"/>')
        parts.append(f'<circle class="lane{lane}" cx="{names + 4}" cy="{12 + 18 * lane}" r="4"/>')
        parts.append(text(names + 16, 16 + 18 * lane, whose))
    for y, step, after in zip(rows, life.steps, (*life.steps[1:], life.steps[-1]), strict=True):
        x = 12 + RAIL * step.lane
        if after.lane != step.lane:
            to = 12 + RAIL * after.lane
            parts.append(f'<path class="turn" d="M{x} {y} C{x} {y + LINE} {to} {y} {to} {y + LINE}"/>')
        parts.append(f'<circle class="lane{step.lane}" cx="{x}" cy="{y}" r="4"/>')
        parts.append(text(names, y + 4, step.name, kind="name"))
        parts.append(text(FILES, y + 4, step.path, kind="dim"))
        parts.append(text(WORDS, y + 4, step.words))
    return picture(845, rows[-1] + 16, life.title, parts)


# --- all of them -----------------------------------------------------------------------------


def on_a_jumping_clock(function: Callable[[], Any]) -> Any:
    """Run with a clock that jumps to the next deadline whenever all tasks wait."""
    return anyio.run(function, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})


def drawn() -> dict[str, str]:
    """Every picture by the name of its file."""
    streaming, calls = on_a_jumping_clock(while_streaming), on_a_jumping_clock(while_tools_run)
    return {
        "tree.svg": draw_trees([("While the model answers:", streaming), ("While three calls run:", calls)]),
        "aborted-batch.svg": draw_timeline(on_a_jumping_clock(aborted_batch)),
        **{f"{name}.svg": draw_life(life) for name, life in LIVES.items()},
    }


def main() -> None:
    """Write them."""
    PICTURES.mkdir(exist_ok=True)
    for name, svg in drawn().items():
        (PICTURES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
