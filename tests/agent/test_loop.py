"""``run_agent_loop``: a run whose transcript the caller keeps."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import PrivateAttr

from cubepi_anyio import (
    AgentEvent,
    FauxProvider,
    FauxResponse,
    Message,
    ReasoningControl,
    RunLimits,
    StreamOptions,
    TextContent,
    UserMessage,
    run_agent_loop,
)
from tests.support.agents import balance_faults, bench, calling, label, saying, sleeping, transcript_faults

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


def model_of(*responses: Any) -> tuple[FauxProvider, Any]:
    provider = FauxProvider()
    provider.set_responses(responses)
    return provider, provider.model("m")


@pytest.mark.parametrize("is_async", [False, True])
async def test_it_appends_to_the_transcript_it_was_given_and_tells_of_everything(is_async: bool) -> None:
    provider, model = model_of(calling("say"), "done")
    messages: list[Message] = [UserMessage(id="old", content=[TextContent(text="before")])]
    events: list[AgentEvent] = []

    async def emit(event: AgentEvent) -> None:
        events.append(event)

    result = await run_agent_loop(
        "hi", messages, model, emit=emit if is_async else events.append, tools=[saying("say")], system_prompt="be brief"
    )
    assert (result.outcome, result.text) == ("completed", "done")
    assert [message.role for message in messages] == ["user", "user", "assistant", "tool_result", "assistant"]
    assert result.messages == messages[1:]
    assert balance_faults(events) == []
    assert label(events[-1]) == "agent_end:completed"
    assert provider.calls[0].system_prompt == "be brief"
    assert transcript_faults(messages) == []


async def test_it_passes_its_options_on() -> None:
    provider, model = model_of("ok")
    seen: list[Any] = []
    reasoning = ReasoningControl(mode="on", effort="high")
    options = StreamOptions(reasoning=reasoning, on_payload=lambda payload, model: seen.append(payload))
    await run_agent_loop("hi", [], model, stream_options=options, tools=[saying("say")], tool_choice="say")
    assert provider.calls[0].options.reasoning == reasoning
    assert provider.calls[0].tool_choice == "say"
    assert len(seen) == 1


async def test_a_cancelled_loop_returns_the_real_results_that_were_reached_in_the_transcript() -> None:
    began = anyio.Event()
    _, model = model_of(calling("say", "sleep"), "went on")
    messages: list[Message] = []
    tools = [saying("say"), sleeping("sleep", began)]
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: run_agent_loop("hi", messages, model, tools=tools))
            await began.wait()
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert transcript_faults(messages) == []
    results = [message for message in messages if message.role == "tool_result"]
    assert [result.is_error for result in results] == [False, True]
    assert results[0].text == "say"
    result = await run_agent_loop("go on", messages, model)
    assert result.text == "went on"


async def test_a_bug_of_the_listener_leaves_as_itself_and_the_results_are_kept() -> None:
    _, model = model_of(calling("say", "say"))
    messages: list[Message] = []

    def emit(event: AgentEvent) -> None:
        if event.type == "turn_end":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_agent_loop("hi", messages, model, emit=emit, tools=[saying("say")])
    assert [message.role for message in messages] == ["user", "assistant", "tool_result", "tool_result"]


async def test_it_keeps_limits() -> None:
    _, model = model_of(FauxResponse("never", stall_before_start=True))
    result = await run_agent_loop("hi", [], model, limits=RunLimits(run_timeout=0.01))
    assert (result.outcome, result.limit) == ("limit", "run_timeout")


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_its_mode_of_execution_is_the_caller_s_choice(mode: Any) -> None:
    _, model = model_of(calling("say", "say"), "done")
    events: list[AgentEvent] = []
    await run_agent_loop("hi", [], model, emit=events.append, tools=[saying("say")], tool_execution=mode)
    batch = [label(event) for event in events if event.type.startswith("tool_execution")]
    starts = [name.startswith("tool_execution_start") for name in batch]
    assert starts == ([True, True, False, False] if mode == "parallel" else [True, False, True, False])


async def test_a_message_of_a_class_of_your_own_keeps_what_it_has_besides() -> None:
    class Noted(UserMessage):
        _note: str = PrivateAttr(default="")

    made = bench("done")
    message = Noted(content=[TextContent(text="hi")])
    message._note = "mine"
    await made.agent.prompt(message)
    [said, _] = made.agent.state.messages
    assert isinstance(said, Noted)
    assert said._note == "mine"
