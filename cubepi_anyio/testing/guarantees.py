"""The guarantees of a run, as checks of one that was ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import anyio

from ..events.agent import AgentEndEvent, AgentEvent, AgentStartEvent, ToolExecutionEndEvent
from ..types.messages import ToolResultMessage
from ..types.run import RunResult
from .event_order import check_events
from .sweeps.endings import SiblingFailed
from .sweeps.scenario import Check, EndedRun
from .transcript import check_transcript

__all__ = (
    "GUARANTEES",
    "agent_is_usable",
    "announced_is_kept",
    "cancellation_leaves",
    "events_balance",
    "nothing_outlives",
    "returns_in_time",
    "siblings_are_untouched",
    "transcript_is_valid",
)


def nothing_outlives(ended: EndedRun) -> Sequence[str]:
    """No task of the run, and nothing the scenario can name, is alive when the public call has ended."""
    return [
        *(f"task {name} outlived the run" for name in ended.tasks_left),
        *(f"{name} outlived the run" for name in ended.leftovers),
    ]


def cancellation_leaves(ended: EndedRun) -> Sequence[str]:
    """A cancellation from outside leaves the public call as itself, and the counts of ``uncancel()`` are balanced."""
    if not ended.was_ended or ended.ending == "abort":
        return []
    faults: list[str] = []
    if ended.error is None:
        # The call may have been past its last checkpoint. Then nothing of it was cut.
        if not _completed_by_itself(ended):
            faults.append(f"the cancellation was turned into the result {_outcome(ended.result)!r}")
    elif not isinstance(ended.error, anyio.get_cancelled_exc_class()):
        faults.append(f"instead of the cancellation, {ended.error!r} left the call")
    expected = ended.endings if ended.ending == "task_cancel" else 0
    # asyncio.TaskGroup itself leaves a request behind if a task fails when its body is through.
    if ended.cancel_requests != expected and (ended.error is not None or ended.ending != "asyncio_sibling"):
        faults.append(f"Task.cancelling() is {ended.cancel_requests}, not {expected}")
    return [*faults, *_arrival_faults(ended)]


def _arrival_faults(ended: EndedRun) -> list[str]:
    """What the construct around the call made of the cancellation."""
    arrived = ended.arrived
    match ended.ending:
        case "asyncio_timeout":
            is_right = isinstance(arrived, TimeoutError)
        case "asyncio_sibling" | "trio_sibling":
            is_right = _is_only_the_sibling(arrived)
        case "task_cancel":
            is_right = arrived is None or isinstance(arrived, anyio.get_cancelled_exc_class())
        case _:
            is_right = arrived is None
    return [] if is_right or ended.error is None else [f"around the call arrived {arrived!r}"]


def _is_only_the_sibling(arrived: BaseException | None) -> bool:
    if not isinstance(arrived, BaseExceptionGroup):
        return False
    errors: Sequence[BaseException] = cast("BaseExceptionGroup[BaseException]", arrived).exceptions
    return [type(error) for error in errors] == [SiblingFailed]


def returns_in_time(ended: EndedRun) -> Sequence[str]:
    """The run ends within the bound, and an abort is a result."""
    if not ended.in_time:
        return [f"the run had not ended after {ended.seconds:.1f} s"]
    if ended.error is not None and (ended.ending == "abort" or not ended.was_ended):
        return [f"{ended.error!r} left {'an aborted run' if ended.was_ended else 'a run that nobody had ended'}"]
    if ended.result is None or (ended.was_ended and ended.ending != "abort"):
        return []
    wanted = "aborted" if ended.was_ended else ended.scenario.outcome
    if ended.result.outcome == wanted or (ended.was_ended and _completed_by_itself(ended)):
        return []
    return [f"the outcome is {ended.result.outcome!r}, not {wanted!r}"]


def _completed_by_itself(ended: EndedRun) -> bool:
    """Whether the run was over, or had done its last waiting, when it was ended, so that it came to its own end."""
    if ended.ending == "abort" and (ended.was_over or ended.phase == "idle"):
        return _outcome(ended.result) == ended.scenario.outcome
    # asyncio passes the word of a timeout or sibling on in a callback; trio's sibling has to wake up to fail.
    hops = 2 if ended.ending in ("asyncio_timeout", "asyncio_sibling", "trio_sibling") else 1
    return ended.steps_after <= hops and _outcome(ended.result) in (ended.scenario.outcome, None)


def _outcome(result: RunResult | None) -> str | None:
    return result.outcome if result is not None else None


def transcript_is_valid(ended: EndedRun) -> Sequence[str]:
    """The transcript is one that any model accepts, in memory and in the store."""
    return [*check_transcript(ended.messages), *(f"stored: {fault}" for fault in check_transcript(ended.stored or ()))]


def announced_is_kept(ended: EndedRun) -> Sequence[str]:
    """A result whose ``tool_execution_end`` was heard is in the transcript, and so is what a tool has returned.

    Where there is a store, it holds what the transcript holds.
    """
    kept = {message.tool_call_id: message for message in ended.messages if isinstance(message, ToolResultMessage)}
    faults: list[str] = []
    for event in ended.heard[0] if ended.heard else ():
        if isinstance(event, ToolExecutionEndEvent):
            message = kept.get(event.tool_call_id)
            if message is None or (message.content, message.is_error) != (event.result.content, event.is_error):
                faults.append(f"the announced result of call {event.tool_call_id!r} is not in the transcript")
    for call_id, text in ended.scenario.returned.items():
        if call_id not in kept or kept[call_id].text != text:
            faults.append(f"call {call_id!r} had returned {text!r}, and the transcript has {kept.get(call_id)!r}")
    if ended.stored is not None and list(ended.stored) != list(ended.messages):
        faults.append(
            f"the store has {[m.role for m in ended.stored]}, the transcript {[m.role for m in ended.messages]}"
        )
    return faults


def events_balance(ended: EndedRun) -> Sequence[str]:
    """Every listener heard every start with its end, in one order, and ``agent_end`` last, once, and true."""
    faults: list[str] = []
    for number, events in enumerate(ended.heard):
        runs = _split_runs(events)
        faults.extend(f"listener {number}: {fault}" for run in runs for fault in check_events(run))
        if len(runs) != 1 and (runs or not ended.was_ended):
            faults.append(f"listener {number} heard of {len(runs)} runs")
        if [id(event) for event in events] != [id(event) for event in ended.heard[0]]:
            faults.append(f"listeners 0 and {number} heard different events")
    last = ended.heard[0][-1] if ended.heard and ended.heard[0] else None
    if isinstance(last, AgentEndEvent) and ended.in_time and ended.result is not None:
        said, told = last.outcome, ended.result.outcome
        if said != told:
            faults.append(f"agent_end says {said!r}, the result {told!r}")
    return faults


def _split_runs(events: Sequence[AgentEvent]) -> list[list[AgentEvent]]:
    runs: list[list[AgentEvent]] = []
    for event in events:
        if isinstance(event, AgentStartEvent) or not runs:
            runs.append([])
        runs[-1].append(event)
    return runs


def agent_is_usable(ended: EndedRun) -> Sequence[str]:
    """The agent is idle, the next prompt is answered, and its request contains nothing that a vendor refuses."""
    if not isinstance(ended.again, RunResult):
        return [f"the next prompt raised {ended.again!r}"]
    faults = [f"the next request: {fault}" for fault in check_transcript(ended.again_request)]
    if ended.again.outcome != "completed":
        faults.append(f"the next prompt ended with {ended.again.outcome!r}: {ended.again.error!r}")
    if ended.scenario.agent.state.phase != "idle" or ended.scenario.agent.state.is_running:
        faults.append("the agent is not idle")
    return [
        *faults,
        *(f"after the next prompt: {fault}" for fault in check_transcript(ended.scenario.agent.state.messages)),
    ]


def siblings_are_untouched(ended: EndedRun) -> Sequence[str]:
    """A task beside the run is not cancelled with it."""
    return [] if ended.bystander_lives else ["a task beside the run was cancelled"]


GUARANTEES: dict[str, Check] = {
    "G1": nothing_outlives,
    "G2": cancellation_leaves,
    "G3": returns_in_time,
    "G4": transcript_is_valid,
    "G5": announced_is_kept,
    "G6": events_balance,
    "G7": agent_is_usable,
    "G8": siblings_are_untouched,
}
"""What is checked after each ending, by the name of the guarantee."""
