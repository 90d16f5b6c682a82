"""What a sweep runs, and what it finds when the run has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ...agent.agent import Agent
from ...events.agent import AgentEvent
from ...providers.faux.provider import FauxProvider
from ...types.messages import Message
from ...types.run import RunOutcome, RunResult

__all__ = ("Check", "EndedRun", "Scenario", "prompt_once")

_ANSWERS_AGAIN = 16
"""Messages still queued when a run is ended are heard by the next one, and each may cost an answer."""


async def prompt_once(agent: Agent) -> RunResult:
    """Prompt the agent and wait for the result."""
    return await agent.prompt("Go.")


@dataclass(kw_only=True)
class Scenario:
    """One agent that is to be run and ended: a fresh one for each ending.

    With a ``FauxProvider`` as ``provider`` nothing else is needed. For another model, or another way to be asked, give
    ``again`` and ``requests``.
    """

    agent: Agent
    provider: FauxProvider | None = None
    run: Callable[[Agent], Awaitable[RunResult | None]] = prompt_once
    """The run that is ended. It returns the result if it has one."""
    outcome: RunOutcome = "completed"
    """How the run ends when nobody ends it."""
    again: Callable[[Agent], Awaitable[RunResult]] | None = None
    """Prompt the agent once more, with a model that answers."""
    requests: Callable[[], Sequence[Sequence[Message]]] | None = None
    """The messages of every request the model has had."""
    stored: Callable[[], Awaitable[Sequence[Message]]] | None = None
    """Reads the thread back from the store, where there is one, as an agent that loads it would."""
    leftovers: Callable[[], Sequence[str]] | None = None
    """What is still alive of the run besides tasks, by name: open connections, child processes, running tools."""
    returned: dict[str, str] = field(default_factory=dict[str, str])
    """Tools may note here, by the id of the call, the text they are about to return; it has to be in the transcript."""
    checks: Sequence[Check] = ()
    """Further checks of this scenario."""

    async def prompt_again(self) -> RunResult:
        """The next prompt after the ending."""
        if self.again is not None:
            return await self.again(self.agent)
        if self.provider is None:
            raise TypeError("a Scenario without a FauxProvider needs again=, to prompt its agent once more")
        self.provider.set_responses(["Yes."] * _ANSWERS_AGAIN)
        return await self.agent.prompt("Are you still there?")

    def all_requests(self) -> Sequence[Sequence[Message]]:
        """The messages of every request the model has had, oldest first."""
        if self.requests is not None:
            return self.requests()
        return [call.messages for call in self.provider.calls] if self.provider is not None else []


@dataclass(kw_only=True)
class EndedRun:
    """How one run of a scenario ended, and what was found afterwards."""

    scenario: Scenario
    ending: str
    at: int
    """The step, or event, at which it was ended; one it did not reach if it ended by itself."""
    was_ended: bool = False
    result: RunResult | None = None
    """What the public call returned."""
    error: BaseException | None = None
    """What left the public call instead."""
    arrived: BaseException | None = None
    """What left the construct that ended the run (the timeout, the task group with the failing sibling)."""
    was_caught: bool = False
    """Whether the cancel scope that ended the run caught its cancellation."""
    was_over: bool = False
    """Whether the first listener had heard ``agent_end`` by then."""
    phase: str = "idle"
    """What the run was doing when it was ended."""
    steps_after: int = 0
    """Steps of the caller's task from the ending to its end."""
    seconds: float = 0.0
    """From the ending to the end."""
    in_time: bool = True
    tasks_left: Sequence[str] = ()
    """Tasks of the run that were alive when the public call ended."""
    cancel_requests: int = 0
    """``Task.cancelling()`` after the ending; 0 on trio."""
    endings: int = 0
    """How often the run was ended."""
    heard: Sequence[Sequence[AgentEvent]] = ()
    """The events, for each listener."""
    messages: Sequence[Message] = ()
    """The transcript after the ending."""
    stored: Sequence[Message] | None = None
    """The thread in the store after the ending."""
    leftovers: Sequence[str] = ()
    bystander_lives: bool = True
    """Whether a task beside the run is unharmed."""
    again: RunResult | BaseException | None = None
    """What the next prompt came to."""
    again_request: Sequence[Message] = ()
    """What the model was sent by the next prompt."""


Check = Callable[[EndedRun], Sequence[str]]
"""Looks at a run that was ended and says what is wrong with it."""
