"""The sweep: end a run at its first scheduler step, then at its second, until it ends by itself.

::

    def scenario() -> Scenario:
        provider = FauxProvider()
        provider.set_responses([faux_tool_call("search", {"query": "pi"}), "3.14"])
        return Scenario(agent=Agent(model=provider.model("m"), tools=[search]), provider=provider)


    async def test_every_ending_is_clean() -> None:
        for ending in endings_here():
            (await sweep(scenario, ending=ending)).raise_for_faults()

The theory: what cancellation can break is what lies between two checkpoints, and a run is a finite number of steps
from one checkpoint of a task to its next. So all places at which it can be ended are swept by counting::

    position   0   1   2   3   4   5   6   …   n            a fresh scenario for each position, run to its end
    run        ✗                                            ended before its first step
               ──▶ ✗                                        ended after step 1
               ──▶ ──▶ ✗                                    …
               ──▶ ──▶ ──▶ ──▶ ──▶ ──▶ ──▶ … ──▶ done       position n + 1 is not reached: the sweep is over

It stands on four things:

* *Runs repeat.* Equal scenarios make equal steps. asyncio runs tasks in the order in which they are ready, trio in a
  random order that is seeded (``seeds``). A scenario that reads a clock or shares state sweeps some steps twice and
  others never.
* *Steps of all tasks of the run count*, whoever starts them (``steps.py``); those of the sweep itself do not.
* *The ending comes from outside*, between two steps, when no task of the run is running (``asyncio_steps.py``,
  ``trio_steps.py``). From inside, the task that ends the run would be spared by its own cancellation.
* *Everything that can be seen is looked at after each ending*: the public call, the tasks, the transcript, the store,
  the events, a bystander, and a second prompt. The guarantees of ``guarantees.py`` judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Literal

import anyio
from anyio.lowlevel import checkpoint

from ...concurrency import native_cancel_requests
from ...events.agent import AgentEndEvent, AgentEvent
from ...foreign.trio_scheduler import seed_scheduler
from ..guarantees import GUARANTEES
from .asyncio_steps import run_on_asyncio
from .endings import ENDINGS, Ending, endings_of
from .scenario import Check, EndedRun, Scenario
from .steps import StepWatch
from .trio_steps import run_on_trio

__all__ = ("Fault", "MakeScenario", "SweepReport", "endings_here", "sweep")

MakeScenario = Callable[[], Scenario | AbstractAsyncContextManager[Scenario]]
"""Makes a fresh scenario: as it is, or in an async context manager that also takes its surroundings away again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One guarantee that did not hold after one ending."""

    guarantee: str
    at: int
    seed: int
    phase: str
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee} at {self.at} (seed {self.seed}, {self.phase}): {self.text}"


@dataclass(slots=True)
class SweepReport:
    """What a sweep came to."""

    ending: Ending
    endings: int = 0
    """How many runs were ended."""
    steps: int = 0
    """How many steps, or events, the longest run had that ended by itself."""
    slowest_seconds: float = 0.0
    """The longest time from an ending to the end of its run."""
    phases: dict[str, int] = field(default_factory=dict[str, int])
    """How often a run was ended in each phase."""
    faults: list[Fault] = field(default_factory=list[Fault])

    def raise_for_faults(self, *, shown: int = 20) -> None:
        """Raise ``AssertionError`` with the first ``shown`` faults, if there are any."""
        if not self.faults:
            return
        lines = "\n".join(f"  {fault}" for fault in self.faults[:shown])
        raise AssertionError(f"{len(self.faults)} faults in {self.endings} endings by {self.ending}:\n{lines}")


def endings_here() -> list[Ending]:
    """The endings there are on the backend this task runs on."""
    return endings_of(_backend())


async def sweep(
    make: MakeScenario,
    *,
    ending: Ending,
    at: Literal["step", "event"] = "step",
    listener: Literal["plain", "async", "none"] = "plain",
    seeds: Sequence[int] = (0,),
    checks: Mapping[str, Check] = GUARANTEES,
    bound_seconds: float = 5.0,
    start: int = 0,
    stride: int = 1,
    again_after: int | None = None,
) -> SweepReport:
    """End the run of a scenario at each of its steps and check what is left.

    ``at="event"`` ends it from within a listener at each event instead. ``listener`` says what hears the events that
    are checked; ``seeds`` repeat the sweep with different orders of trio's scheduler (asyncio has one order, and takes
    the first). A run that has not ended ``bound_seconds`` after its ending is cancelled, and a fault. ``stride``
    leaves out endings in between. ``again_after`` ends each run once more, that many steps after the first time, if it
    still goes on: as somebody who is impatient. A checkpoint.
    """
    needed, _ = ENDINGS[ending]
    if needed not in (None, _backend()):
        raise ValueError(f"ending={ending!r} needs {needed}; endings_here() says what there is")
    report = SweepReport(ending)
    options = _Options(ending, at, listener, checks, bound_seconds, again_after)
    for seed in seeds if _backend() == "trio" else seeds[:1]:
        for position in count(start, stride):
            if _backend() == "trio":
                seed_scheduler(seed)
            ended, steps = await _run_and_end(make, options, position)
            _report(report, ended, checks, seed)
            if not ended.was_ended and position >= 1:  # the run was over before this position
                report.steps = max(report.steps, steps)
                break
    await checkpoint()
    return report


@dataclass(frozen=True, slots=True)
class _Options:
    ending: Ending
    at: Literal["step", "event"]
    listener: Literal["plain", "async", "none"]
    checks: Mapping[str, Check]
    bound_seconds: float
    again_after: int | None = None


def _backend() -> Literal["asyncio", "trio"]:
    module = anyio.get_cancelled_exc_class().__module__
    return "trio" if module.startswith("trio") else "asyncio"


def _report(report: SweepReport, ended: EndedRun, checks: Mapping[str, Check], seed: int) -> None:
    if ended.was_ended:
        report.endings += 1
        report.slowest_seconds = max(report.slowest_seconds, ended.seconds)
        report.phases[ended.phase] = report.phases.get(ended.phase, 0) + 1
    own = {f"scenario check {number}": check for number, check in enumerate(ended.scenario.checks)}
    for name, check in {**checks, **own}.items():
        report.faults.extend(Fault(name, ended.at, seed, ended.phase, text) for text in check(ended))


# --- one run ---------------------------------------------------------------------------------


async def _run_and_end(make: MakeScenario, options: _Options, position: int) -> tuple[EndedRun, int]:
    made = make()
    async with nullcontext(made) if isinstance(made, Scenario) else made as scenario:
        run = _SweptRun(scenario, options, position)
        await run.drive()
        if isinstance(run.ended.arrived, KeyboardInterrupt):
            raise run.ended.arrived  # it is meant for the sweep
        await run.look_at_what_is_left()
        return run.ended, run.heard_count if options.at == "event" else run.watch.count


class _SweptRun:
    """One run of a scenario: driven, ended at its position, and looked at."""

    def __init__(self, scenario: Scenario, options: _Options, position: int) -> None:
        self.scenario, self.options, self.position = scenario, options, position
        self.watch = StepWatch(position if options.at == "step" else None, options.again_after)
        self.ended = EndedRun(scenario=scenario, ending=options.ending, at=position)
        self.heard_count = 0
        self._ended_at_seconds = monotonic()
        self._bystander_lives = True
        self._unsubscribe: list[Callable[[], None]] = []

    async def drive(self) -> None:
        """Run the scenario beside a bystander, and end it."""
        ended = self.ended
        ended.heard = self._listen()
        run = run_on_trio if _backend() == "trio" else run_on_asyncio
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stand_by)
            ended.in_time = await run(self._work, self.watch, self.options.bound_seconds)
            ended.bystander_lives = self._bystander_lives  # asked before the sweep itself cancels it
            tasks.cancel_scope.cancel()
        self.watch.closed = True

    async def _stand_by(self) -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - its last word, whoever cancelled it
            self._bystander_lives = False

    async def _work(self) -> None:
        ended = self.ended
        _, arm = ENDINGS[self.options.ending]
        try:
            async with arm(ended, self.watch):
                self._arm()
                await self._call()
        except BaseException as error:  # noqa: ASYNC103 - what arrives here is what is looked at; the task is the sweep's own
            ended.arrived = error
        ended.cancel_requests = native_cancel_requests()

    def _arm(self) -> None:
        act = self.watch.act
        assert act is not None

        def end_it() -> None:
            ended = self.ended
            ended.endings += 1
            if not ended.was_ended:
                ended.was_ended = True
                ended.phase = self.scenario.agent.state.phase
                ended.was_over = any(isinstance(event, AgentEndEvent) for events in ended.heard for event in events)
                self._ended_at_seconds = monotonic()
            act()

        self.watch.act = end_it
        if self.position == 0:
            self.watch.fire()

    async def _call(self) -> None:
        """The public call, and what is true at the moment it ends."""
        try:
            self.ended.result = await self.scenario.run(self.scenario.agent)
        except BaseException as error:
            self.ended.error = error
            raise
        finally:
            self.watch.closed = True
            self.ended.tasks_left = self.watch.others()
            self.ended.seconds = monotonic() - self._ended_at_seconds
            if self.scenario.leftovers is not None:
                self.ended.leftovers = self.scenario.leftovers()

    # --- listening ---------------------------------------------------------------------------

    def _listen(self) -> list[list[AgentEvent]]:
        """Subscribe two listeners; an async one comes first, so that the plain one depends on it."""
        kind, agent = self.options.listener, self.scenario.agent
        if kind == "none":
            if self.options.at == "event":
                raise ValueError("to end a run at an event somebody has to hear it: listener='plain' or 'async'")
            return []
        first: list[AgentEvent] = []
        second: list[AgentEvent] = []

        def hear(event: AgentEvent) -> None:
            first.append(event)
            self._count_event()

        async def hear_slowly(event: AgentEvent) -> None:
            first.append(event)
            await checkpoint()
            self._count_event()
            await checkpoint()

        self._unsubscribe = [agent.subscribe(hear_slowly if kind == "async" else hear), agent.subscribe(second.append)]
        return [first, second]

    def _count_event(self) -> None:
        self.heard_count += 1
        if self.options.at == "event" and self.heard_count == self.position:
            self.watch.fire()

    # --- afterwards --------------------------------------------------------------------------

    async def look_at_what_is_left(self) -> None:
        """Note the transcript, then prompt the agent once more."""
        ended, scenario = self.ended, self.scenario
        ended.steps_after = self.watch.steps_after
        ended.messages = scenario.agent.state.messages
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        already = len(scenario.all_requests())
        try:
            with anyio.fail_after(self.options.bound_seconds):
                if scenario.stored is not None:
                    ended.stored = await scenario.stored()
                ended.again = await scenario.prompt_again()
        except Exception as error:
            ended.again = error
        requests = scenario.all_requests()
        ended.again_request = requests[-1] if len(requests) > already else ()
