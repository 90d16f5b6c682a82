"""One demo: find files, run the agent over them, show it, and account for what is left.

The model is a stand-in that plays a script; everything else is real: the tools, the files, the loop, the
cancellation. A run that is interrupted settles first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import from_thread, to_thread

from ... import Agent, AgentEvent, RunResult, tool_cycle_faults
from ..screen.interrupts import Interrupts, beside_interrupts, exit_code_of
from ..screen.leaving import LEFT_AT_ONCE
from ..screen.live import RunView
from ..screen.screen import Reader, Screen
from ..screen.text import BLANK, Line, Span, as_line, counted, printable, seconds_text
from .chart import draw_timeline, ending_style, ending_words
from .files import MAX_ENTRIES, FileSet, find_text_files
from .model import demo_model
from .timeline import TimelineRecorder
from .tools import Pace, demo_tools

__all__ = (
    "FAILED",
    "OK",
    "PROMPT",
    "DemoRun",
    "DemoSettings",
    "run_demo",
)

OK = 0
"""Exit code of a demo that came to its end."""

FAILED = 1
"""Exit code of a demo that could not."""

PROMPT = "What is in these files?"
"""What the demo asks."""
_REDRAW_SECONDS = 1 / 12
_SYSTEM_PROMPT = "You look at files with the tools you have, several at once, and say what you found."


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What a person may choose."""

    path: Path
    backend: str
    pace: Pace
    max_files: int
    search: str


class DemoRun:
    """One demo on one screen. Made where the event loop runs."""

    def __init__(self, screen: Screen, settings: DemoSettings) -> None:
        self._screen = screen
        self._settings = settings
        self._recorder = TimelineRecorder()
        self._view = RunView(self._recorder, screen.glyphs, has_region=screen.is_live)
        self._scope = anyio.CancelScope()
        self._interrupts = Interrupts(self._give_up, self._leave)
        self._interrupted_at = 0.0
        self._reader = Reader()

    async def run(self) -> int:
        """Do it all and return the exit code: ``OK``, ``FAILED``, or that of the signal that stopped it. A checkpoint.

        Raises what the screen raises, ``BrokenPipeError`` if nobody reads any more.
        """
        redraw = self._redraw if self._screen.is_live else None
        return await beside_interrupts(self._interrupts, self._in_scope, redraw=redraw)

    async def _in_scope(self) -> int:
        with self._scope:
            return await self._find_and_run()
        return self._exit_code_of_signal()

    async def _redraw(self) -> None:
        """Keep the region of a live screen up to date."""
        while True:
            self._screen.show(self._view.region(time.monotonic(), self._screen.width))
            await anyio.sleep(_REDRAW_SECONDS)

    async def _find_and_run(self) -> int:
        files = await self._find_files()
        if not files.files:
            self._screen.print(as_line(Span("There are no text files; give the PATH of some.", "bad")))
            return FAILED
        provider = demo_model(files, self._settings.pace, self._settings.search)
        agent = Agent(
            model=provider.model("script"), tools=demo_tools(files, self._settings.pace), system_prompt=_SYSTEM_PROMPT
        )
        result, left_tasks = await self._run_agent(agent)
        self._screen.show(())
        self._screen.print(*self._account(agent, result, left_tasks), *self._timeline(result))
        if result.outcome == "aborted":
            return self._exit_code_of_signal()
        return OK if result.outcome == "completed" else FAILED

    def _exit_code_of_signal(self) -> int:
        received = self._interrupts.received
        return FAILED if received is None else exit_code_of(received)

    # --- the files -----------------------------------------------------------------------------

    async def _find_files(self) -> FileSet:
        path, max_files = self._settings.path, self._settings.max_files
        where = printable(str(path.absolute()))
        self._screen.print(as_line(Span(f"Looking for text files in {where}", "dim")))
        search = partial(find_text_files, path, max_files=max_files, check_cancelled=from_thread.check_cancelled)
        files = await to_thread.run_sync(search)
        self._screen.print(*self._introduction(files), BLANK)
        return files

    def _introduction(self, files: FileSet) -> Iterator[Line]:
        found = f"Found {counted(len(files.files), 'file')} among {counted(files.entries, 'entry', 'entries')}"
        left_out = f", {files.left_out:,} left out (binary, large or unreadable)" if files.left_out else ""
        yield as_line(Span(f"{found}{left_out}.", "dim"))
        if files.is_cut:
            bound = f"--max-files {self._settings.max_files}, or {MAX_ENTRIES:,} entries"
            yield as_line(Span(f"There may be more: the search ended at its bound ({bound}).", "late"))
        yield as_line(Span(f"A script plays the model; the rest is real, on {self._settings.backend}.", "dim"))
        if self._screen.hint:
            yield as_line(Span(self._screen.hint, "dim"))

    # --- the run -------------------------------------------------------------------------------

    async def _run_agent(self, agent: Agent) -> tuple[RunResult, list[str]]:
        """Run the agent to its end; returns also the names of tasks it left behind, of which there are none."""
        agent.subscribe(self._hear)
        self._interrupts.on_first = partial(self._stop, agent.abort)
        known = {task.id for task in anyio.get_running_tasks()}
        result = await agent.prompt(PROMPT)
        left = [task.name or "unnamed" for task in anyio.get_running_tasks() if task.id not in known]
        return result, left

    def _hear(self, event: AgentEvent) -> None:
        lines = self._view.hear(event, time.monotonic())
        if lines and self._reader.is_there:
            with self._reader:
                self._screen.print(*lines)

    def _stop(self, abort: Callable[[str], None]) -> None:
        """The first signal: end the run, which settles before it returns."""
        self._interrupted_at = time.monotonic()
        self._recorder.mark("interrupted", self._interrupted_at)
        self._screen.print(as_line(Span("Interrupted: stopping the run. Once more leaves at once.", "stopped")))
        abort("interrupted")

    def _give_up(self) -> None:
        """The first signal, before there is a run."""
        self._screen.print(as_line(Span("Interrupted: nothing had begun.", "stopped")))
        self._scope.cancel()

    def _leave(self) -> None:
        """The second signal: last words before the process ends."""
        self._screen.close()
        self._screen.print(LEFT_AT_ONCE)

    # --- afterwards ----------------------------------------------------------------------------

    def _account(self, agent: Agent, result: RunResult, left_tasks: list[str]) -> Iterator[Line]:
        """What a run that did not complete left behind."""
        if result.outcome == "completed":
            return
        if result.outcome == "aborted":
            settled = seconds_text(time.monotonic() - self._interrupted_at)
            yield as_line(Span(f"Stopped {settled} after the interruption. What is left:", "strong"))
        else:
            yield as_line(Span(f"The run ended: {result.outcome}. {printable(str(result.error or ''))}", "bad"))
        messages = agent.state.messages
        faults = tool_cycle_faults(messages)
        valid = "; ".join(faults) if faults else "every call is answered, a model can go on from here"
        yield as_line("  transcript  ", f"{counted(len(messages), 'message')}: {printable(valid)}")
        by_ending: dict[str, list[str]] = {}
        for bar in self._recorder.timeline.bars:
            if bar.kind == "tool":
                by_ending.setdefault(bar.ending, []).append(bar.name)
        for ending, names in by_ending.items():
            yield as_line(f"  {ending_words(ending):<12}", Span(", ".join(names), ending_style(ending)))
        yield as_line("  tasks       ", printable(", ".join(left_tasks)) or "none is running")
        yield BLANK

    def _timeline(self, result: RunResult) -> Iterator[Line]:
        screen = self._screen
        yield as_line(Span("Timeline", "strong"))
        yield from draw_timeline(self._recorder.timeline, width=screen.width, glyphs=screen.glyphs)
        usage = result.usage
        yield as_line(Span(f"  {usage.context_tokens:,} tokens read, {usage.output_tokens:,} written", "dim"))
        if self._settings.pace.speed:
            yield as_line(Span("  Slowed down to be watched; --speed 0 shows how long it really takes.", "dim"))


async def run_demo(screen: Screen, settings: DemoSettings) -> int:
    """Do one demo from start to end; returns the exit code, as ``DemoRun.run`` does. A checkpoint."""
    return await DemoRun(screen, settings).run()
