"""An agent of its own making that keeps the guarantees, or breaks the one it is told to: what a sweep has to catch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint

from cubepi_anyio import (
    Agent,
    AgentEndEvent,
    AgentStartEvent,
    AgentState,
    AgentToolResult,
    AssistantMessage,
    FauxProvider,
    Message,
    MessageEndEvent,
    MessageStartEvent,
    RunResult,
    TextContent,
    ToolCall,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolResultMessage,
    TurnEndEvent,
    TurnStartEvent,
    UserMessage,
)
from cubepi_anyio.testing import Scenario

CALL = ToolCall(id="call", name="tool")


class _State(AgentState):
    phase_now = "idle"

    @property
    def phase(self) -> Any:
        return self.phase_now


class LooseAgent(Agent):
    """One turn with one call, by hand. ``fault`` says which guarantee it breaks; "" breaks none."""

    def __init__(self, fault: str) -> None:
        model = FauxProvider().model("m")
        super().__init__(model=model)
        self.own_state = _State(model=model, system_prompt="", tools=(), reasoning=None, messages=[])
        self.state = self.own_state
        self.fault = fault
        self.ears: list[Callable[[Any], object]] = []
        self.scope: anyio.CancelScope | None = None
        self.requests: list[list[Message]] = []
        self.next_id = 0

    def subscribe(self, listener: Callable[[Any], object]) -> Callable[[], None]:
        self.ears.append(listener)
        return lambda: self.ears.remove(listener)

    def abort(self, reason: str | None = None) -> None:
        if self.scope is not None and self.fault != "is deaf to abort":
            self.scope.cancel()

    def say(self, event: Any) -> None:
        for ear in list(self.ears):
            ear(event)

    def add(self, message: Any) -> Any:
        self.next_id += 1
        message = message.model_copy(update={"id": str(self.next_id)})
        self.state.transcript.append(message)
        self.say(MessageStartEvent(message))
        self.say(MessageEndEvent(message))
        return message

    async def prompt(self, prompt: Any, *, run_id: str | None = None, settings: Any = None) -> RunResult:
        if self.fault == "stays busy" and self.requests:
            raise RuntimeError("busy for ever")
        first_new = len(self.state.transcript)
        self.own_state.phase_now = "tools"
        answer: AssistantMessage | None = None
        self.say(AgentStartEvent("run"))
        self.say(TurnStartEvent(1))
        result = RunResult(run_id="run", outcome="completed")
        try:
            with anyio.CancelScope() as self.scope:
                self.add(UserMessage(content=[TextContent(text="Go.")]))
                self.requests.append(list(self.state.transcript))
                await checkpoint()
                answer = self.add(AssistantMessage(content=[CALL], stop_reason="tool_use"))
                self.say(ToolExecutionStartEvent(CALL.id, CALL.name, {}))
                await self.work()
            result.outcome = "aborted" if self.scope.cancelled_caught else "completed"
        except anyio.get_cancelled_exc_class():
            result.outcome = "aborted"
            if self.fault != "swallows the cancellation":
                raise
        finally:
            self.settle(answer, first_new, result)
            self.own_state.phase_now, self.scope = "idle", None
        return result

    async def work(self) -> None:
        if self.fault == "leaves a task":
            leave_a_task()
        if self.fault == "does not end":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)
        if self.fault == "uncancels":
            await uncancel_once()
        await checkpoint()
        await checkpoint()

    def settle(self, answer: AssistantMessage | None, first_new: int, result: RunResult) -> None:
        results: list[ToolResultMessage] = []
        if answer is not None:
            text = "" if self.fault == "keeps an empty text" else "done"
            content = AgentToolResult(text)
            if self.fault != "forgets an end":
                self.say(ToolExecutionEndEvent(CALL.id, CALL.name, content))
            if self.fault != "forgets the result":
                said = "other" if self.fault == "stores another result" else text
                message = ToolResultMessage(tool_call_id=CALL.id, tool_name=CALL.name, content=[TextContent(text=said)])
                results.append(self.add(message))
        self.say(TurnEndEvent(answer if answer is not None else AssistantMessage(), results))
        end = AgentEndEvent(self.state.transcript[first_new:], result.outcome)
        self.say(end)
        if self.fault == "ends twice":
            self.say(end)


async def uncancel_once() -> None:
    """Swallow one native cancellation, take its request back, and raise it again."""
    try:
        await checkpoint()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        raise


def leave_a_task() -> None:
    """Start a task that goes on for a few steps after the run."""
    if anyio.get_cancelled_exc_class().__module__.startswith("trio"):
        import trio  # noqa: PLC0415 - trio is optional

        trio.lowlevel.spawn_system_task(go_on, context=copy_context())
    else:
        KEPT.add(asyncio.get_running_loop().create_task(go_on()))


KEPT: set[object] = set()


async def go_on() -> None:
    for _ in range(5):
        await cancel_shielded_checkpoint()


def loose(fault: str) -> Callable[[], Scenario]:
    """A scenario whose agent breaks what ``fault`` says."""

    def make() -> Scenario:
        agent = LooseAgent(fault)
        return Scenario(agent=agent, again=lambda agent: agent.prompt("Again."), requests=lambda: agent.requests)

    return make
