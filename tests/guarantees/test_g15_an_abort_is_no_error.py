"""G15: An abort is never taken for a provider's error: no retry, no fallback, no degraded summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    Agent,
    AgentEvent,
    AssistantMessage,
    BaseProvider,
    FauxProvider,
    FauxResponse,
    MessageDraft,
    MessageStream,
    RunLimits,
    RunResult,
)
from cubepi_anyio.testing import EndedRun, Scenario, sweep

from .scenarios import parallel_tools, text_only

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("at", ["step", "event"])
@pytest.mark.parametrize("make", [text_only, parallel_tools], ids=lambda make: make.__name__)
async def test_an_aborted_run_asks_nobody_again_and_reports_no_error(make: Callable[[], Scenario], at: Any) -> None:
    report = await sweep(
        make,
        ending="abort",
        at=at,
        start=1,
        stride=1 if make is text_only else 3,
        checks={"G15": no_error_and_no_further_call},
    )
    report.raise_for_faults()
    assert report.endings > 1


def no_error_and_no_further_call(ended: EndedRun) -> Sequence[str]:
    result = ended.result
    if result is None or result.outcome != "aborted":
        return []
    faults = [f"the result has the error {result.error!r}"] if result.error is not None else []
    answers = [message for message in result.messages if isinstance(message, AssistantMessage)]
    faults += [f"an answer says {m.error_type}" for m in answers if m.stop_reason == "error" or m.error_type]
    # The prompt after the ending asks once; before, each turn has asked once.
    turns = sum(event.type == "turn_start" for event in ended.heard[0])
    asked = len(ended.scenario.all_requests()) - 1
    return [*faults, *([f"{asked} requests in {turns} turns"] if asked > turns else [])]


class Translating(BaseProvider):
    """A provider that takes its own cancellation for an error of the connection, as a careless one would."""

    def __init__(self) -> None:
        super().__init__(provider_id="translating")
        self.asked = 0

    async def stream(self, *_: Any, **__: Any) -> MessageStream:
        self.asked += 1

        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream)
            await draft.text("Half an answer")
            try:
                await anyio.sleep_forever()
            finally:
                stream.fail(ConnectionError("the connection was lost"))

        return MessageStream(produce)


async def test_a_provider_that_calls_its_cancellation_an_error_does_not_make_it_one() -> None:
    provider = Translating()
    result, heard = await aborted(Agent(model=provider.model("m")))
    assert (result.outcome, result.error, provider.asked) == ("aborted", None, 1)
    assert heard[-1].type == "agent_end"
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason) == ("Half an answer", "aborted")


async def test_an_abort_before_the_first_token_is_no_timeout() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("Never.", stall_before_start=True), "Not asked for."])
    agent = Agent(model=provider.model("m"), limits=RunLimits(first_token_timeout=60))
    result, _ = await aborted(agent)
    assert (result.outcome, result.error, result.limit) == ("aborted", None, None)
    assert (provider.call_count, provider.pending_response_count) == (1, 1)


async def aborted(agent: Agent) -> tuple[RunResult, list[AgentEvent]]:
    """Prompt the agent, abort it when nothing moves any more, and return the result and the events."""
    results: list[RunResult] = []
    heard: list[AgentEvent] = []
    agent.subscribe(heard.append)

    async def prompt() -> None:
        results.append(await agent.prompt("Go."))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await anyio.wait_all_tasks_blocked()
            agent.abort()
    await checkpoint()
    return results[0], heard
