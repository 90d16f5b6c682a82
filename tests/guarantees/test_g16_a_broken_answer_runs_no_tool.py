"""G16: A cut, garbled or failed answer runs no tool."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import (
    Agent,
    AgentTool,
    FauxProvider,
    FauxResponse,
    IncompleteStream,
    ProviderError,
    ProviderUnavailable,
    RunResult,
    ToolResultMessage,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.testing import check_transcript

from .scenarios import Count

pytestmark = pytest.mark.anyio

PARTS = [
    faux_thinking("Let me see.", signature="signed"),
    faux_text("Two calls."),
    faux_tool_call("count", {"times": 12345}, id="a"),
    faux_tool_call("count", {"times": 67890}, id="b"),
]


class Ran:
    """A tool that notes with what it was run."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def agent(self, *responses: Any) -> Agent:
        async def count(tool_call_id: str, params: Count) -> str:
            self.times.append(params.times)
            return "counted"

        provider = FauxProvider()
        provider.set_responses(responses)
        return Agent(model=provider.model("m"), tools=[AgentTool("count", "Counts.", Count, count)])


async def prompted(response: FauxResponse) -> tuple[RunResult, list[int]]:
    ran = Ran()
    agent = ran.agent(response, "Done.")
    result = await agent.prompt("Go.")
    assert check_transcript(agent.state.messages) == []
    return result, ran.times


async def deltas_of_the_whole() -> int:
    agent = Ran().agent(FauxResponse(PARTS), "Done.")
    seen: list[str] = []
    agent.subscribe(lambda event: seen.append(event.stream_event.type) if event.type == "message_update" else None)
    await agent.prompt("Go.")
    return sum(kind.endswith("_delta") for kind in seen) + 1


async def test_the_whole_answer_runs_both_calls() -> None:
    result, ran = await prompted(FauxResponse(PARTS))
    assert (result.outcome, sorted(ran)) == ("completed", [12345, 67890])


async def test_an_answer_that_breaks_off_anywhere_runs_no_tool() -> None:
    for position in range(await deltas_of_the_whole()):
        result, ran = await prompted(FauxResponse(PARTS, end_after_deltas=position))
        assert (result.outcome, ran) == ("error", []), position
        assert isinstance(result.error, IncompleteStream), position


async def test_an_answer_that_fails_anywhere_runs_no_tool() -> None:
    error = ProviderUnavailable("the line is dead")
    for position in range(await deltas_of_the_whole()):
        result, ran = await prompted(FauxResponse(PARTS, fail_with=error, fail_after_deltas=position))
        assert (result.outcome, result.error, ran) == ("error", error, []), position


async def test_calls_that_were_complete_when_it_failed_are_answered_and_not_run() -> None:
    result, ran = await prompted(FauxResponse(PARTS, fail_with=ProviderError("lost"), fail_after_deltas=10_000))
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (result.outcome, ran) == ("error", [])
    assert [(r.tool_call_id, r.is_error) for r in results] == [("a", True), ("b", True)]
    assert all("did not run" in r.text for r in results)


@pytest.mark.parametrize("stop_reason", ["length", "error", "aborted"])
async def test_a_message_that_says_it_is_not_whole_runs_no_tool(stop_reason: str) -> None:
    message = faux_assistant_message(PARTS, stop_reason=stop_reason, error_message="cut")
    result, ran = await prompted(FauxResponse(message))
    assert ran == []
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert all(r.is_error for r in results)


async def test_a_call_with_garbled_arguments_is_answered_and_not_run() -> None:
    result, ran = await prompted(FauxResponse(PARTS, garble_arguments=True))
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (result.outcome, ran) == ("completed", [])
    assert [(r.tool_call_id, r.is_error) for r in results] == [("a", True), ("b", True)]
    assert all("JSON" in r.text for r in results)


async def test_a_cut_message_keeps_what_was_said_and_signed() -> None:
    result, _ = await prompted(FauxResponse(PARTS, end_after_deltas=10))
    answer = result.messages[1]
    assert [block.type for block in answer.content][:1] == ["thinking"]
    assert result.text.startswith("Two")
