"""An agent between its runs: results, resuming, resetting, waiting, its state, other event loops."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AgentToolResult,
    AssistantMessage,
    FauxProvider,
    FauxResponse,
    Model,
    NothingToResume,
    ProviderOverloaded,
    RunAborted,
    RunResult,
    TextContent,
    Usage,
    UserMessage,
    faux_assistant_message,
)
from tests.conftest import needs_trio
from tests.support.agents import NoParams, assert_well_ended, bench, calling, saying, sleeping, tool_of

pytestmark = pytest.mark.anyio


async def test_a_result_has_the_run_s_id_text_messages_and_usage() -> None:
    first = calling("say").model_copy(update={"usage": Usage(input_tokens=5, output_tokens=2)})
    second = faux_assistant_message("done", usage=Usage(input_tokens=7, output_tokens=3, cache_read_tokens=1))
    made = bench(first, second, tools=[saying("say")])
    result = await made.agent.prompt("hi", run_id="mine")
    assert (result.run_id, result.outcome, result.text) == ("mine", "completed", "done")
    assert result.usage == Usage(input_tokens=12, output_tokens=5, cache_read_tokens=1)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool_result", "assistant"]
    assert result.raise_for_error() is result


async def test_an_aborted_result_raises_with_the_reason() -> None:
    made = bench("text")
    made.agent.subscribe(lambda event: made.agent.abort("not that") if event.type == "turn_start" else None)
    result = await made.agent.prompt("hi")
    with pytest.raises(RunAborted, match="the run was aborted: not that"):
        result.raise_for_error()


# --- terminate -------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "calls"), [([True], 1), ([True, True], 1), ([True, False], 2), ([False, True], 2)])
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_batch_ends_the_run_only_if_every_result_says_so(flags: list[bool], calls: int, mode: Any) -> None:
    async def stop(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("stop", terminate=True)

    names = ["stop" if flag else "say" for flag in flags]
    made = bench(calling(*names), "went on", tools=[tool_of("stop", stop), saying("say")], tool_execution=mode)
    result = await made.agent.prompt("hi")
    assert (result.outcome, made.provider.call_count) == ("completed", calls)
    assert made.labels[-2:] == ["turn_end", "agent_end:completed"]
    await assert_well_ended(made)


async def test_a_failed_call_among_those_that_terminate_lets_the_run_go_on() -> None:
    async def stop(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("stop", terminate=True)

    made = bench(calling("stop", "unknown"), "went on", tools=[tool_of("stop", stop)])
    assert (await made.agent.prompt("hi")).text == "went on"


# --- resume and reset ------------------------------------------------------------------------


async def test_resume_lets_the_model_answer_what_is_unanswered() -> None:
    made = bench(ProviderOverloaded("later"), "now")
    assert (await made.agent.prompt("hi")).outcome == "error"
    result = await made.agent.resume()
    assert (result.outcome, result.text) == ("completed", "now")
    assert made.roles == ["user", "assistant"]
    assert [message.role for message in result.messages] == ["assistant"]
    await assert_well_ended(made)


async def test_resume_after_an_abort_among_tools_goes_on_from_their_results() -> None:
    began = anyio.Event()
    made = bench(calling("say", "sleep"), "went on", tools=[saying("say"), sleeping("sleep", began)])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await began.wait()
            made.agent.abort()
    result = await made.agent.resume()
    assert (result.text, made.roles) == ("went on", ["user", "assistant", "tool_result", "tool_result", "assistant"])


async def test_resume_with_a_given_transcript() -> None:
    provider = FauxProvider()
    provider.set_responses(["welcome back"])
    agent = Agent(model=provider.model("m"), messages=[UserMessage(content=[TextContent(text="hi")])])
    result = await agent.resume(run_id="again")
    assert (result.run_id, result.text) == ("again", "welcome back")


async def test_resume_says_what_is_queued() -> None:
    made = bench("one", "two")
    await made.agent.prompt("hi")
    made.agent.steer("more")
    result = await made.agent.resume()
    assert [message.text for message in result.messages if message.role != "tool_result"] == ["more", "two"]


async def test_resume_with_nothing_to_say_is_refused() -> None:
    made = bench("done", "never")
    with pytest.raises(NothingToResume, match="the transcript is empty"):
        await made.agent.resume()
    await made.agent.prompt("hi")
    with pytest.raises(NothingToResume, match=r"the model has said its last word; use prompt\(\)"):
        await made.agent.resume()
    assert made.provider.call_count == 1
    await assert_well_ended(made)


async def test_reset_makes_a_new_conversation() -> None:
    made = bench(ValueError("no"), "fresh")
    await made.agent.prompt("old")
    made.agent.reset()
    state = made.agent.state
    assert (state.messages, state.error, state.last_outcome) == ([], None, None)
    await made.agent.prompt("new")
    assert [message.role for message in made.asked()] == ["user"]


# --- waiting ---------------------------------------------------------------------------------


async def test_wait_for_idle_returns_at_once_when_idle_and_after_the_run_otherwise() -> None:
    made = bench(FauxResponse("done", stall_before_start=True))
    order: list[str] = []

    async def wait(name: str) -> None:
        await made.agent.wait_for_idle()
        order.append(name)

    with anyio.fail_after(5):
        await wait("idle")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await made.provider.wait_stalled()
            tasks.start_soon(wait, "one")
            tasks.start_soon(wait, "two")
            await anyio.wait_all_tasks_blocked()
            assert order == ["idle"]
            assert made.agent.state.is_running
            made.provider.release_stalls()
    assert sorted(order[1:]) == ["one", "two"]
    assert not made.agent.state.is_running


async def test_wait_for_idle_waits_for_an_aborted_run_to_settle() -> None:
    made = bench(FauxResponse("never", stall_before_start=True))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await made.provider.wait_stalled()
            made.agent.abort()
            await made.agent.wait_for_idle()
            assert made.labels[-1] == "agent_end:aborted"
            made.provider.set_responses(["again"])
            assert (await made.agent.prompt("at once")).text == "again"


async def test_wait_for_idle_is_a_checkpoint() -> None:
    made = bench("x")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await made.agent.wait_for_idle()
    assert scope.cancelled_caught


# --- state -----------------------------------------------------------------------------------


async def test_the_state_says_what_the_run_is_doing() -> None:
    made = bench(calling("look", text="well"), "done", tools=[])
    seen: dict[str, tuple[str, bool, set[str]]] = {}

    async def look(tool_call_id: str, params: NoParams) -> str:
        seen["tool"] = (made.agent.state.phase, made.agent.state.is_streaming, made.agent.state.pending_tool_calls)
        return "ok"

    def listen(event: Any) -> None:
        state = made.agent.state
        name = event.type if event.type != "message_update" else event.stream_event.type
        seen.setdefault(name, (state.phase, state.is_streaming, state.pending_tool_calls))

    made.agent.state.tools = [tool_of("look", look)]
    made.agent.subscribe(listen)
    await made.agent.prompt("hi", run_id="r")
    assert seen["agent_start"] == ("loading", False, set())
    assert seen["text_delta"] == ("streaming", True, set())
    assert seen["tool_execution_start"] == ("tools", False, {"c1"})
    assert seen["tool"] == ("tools", False, {"c1"})
    assert seen["tool_execution_end"] == ("tools", False, set())
    assert made.agent.state.phase == "idle"
    assert made.agent.state.last_outcome == "completed"


async def test_the_message_in_the_making_can_be_looked_at() -> None:
    made = bench(FauxResponse("one two three", stall_after_deltas=2))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            await made.provider.wait_stalled()
            await anyio.wait_all_tasks_blocked()
            message = made.agent.state.streaming_message
            assert isinstance(message, AssistantMessage)
            assert message.text
            assert "one two three".startswith(message.text)
            assert made.agent.state.run_id is not None
            made.provider.release_stalls()
    assert made.agent.state.streaming_message is None


async def test_changing_settings_in_a_run_holds_from_the_next_one_on() -> None:
    made = bench(calling("say"), "one", "two", tools=[saying("say")], system_prompt="old")

    def change(event: Any) -> None:
        if event.type == "tool_execution_start":
            made.agent.state.system_prompt = "new"
            made.agent.state.tools = []

    made.agent.subscribe(change)
    await made.agent.prompt("a")
    await made.agent.prompt("b")
    assert [call.system_prompt for call in made.provider.calls] == ["old", "old", "new"]
    assert [len(call.tools) for call in made.provider.calls] == [1, 1, 0]


async def test_lists_given_out_are_copies() -> None:
    made = bench("ok", tools=[saying("say")])
    await made.agent.prompt("hi")
    made.agent.state.messages.clear()
    made.agent.state.tools.clear()
    assert (len(made.agent.state.messages), len(made.agent.state.tools)) == (2, 1)


async def test_a_given_transcript_is_not_changed() -> None:
    given: list[Any] = [UserMessage(id="u", content=[TextContent(text="hi")])]
    provider = FauxProvider()
    provider.set_responses(["ok"])
    agent = Agent(model=provider.model("m"), messages=given)
    await agent.prompt("more")
    assert len(given) == 1
    assert [message.role for message in agent.state.messages] == ["user", "user", "assistant"]


async def test_model_and_provider_given_apart_are_the_same_as_a_bound_model() -> None:
    provider = FauxProvider()
    provider.set_responses(["ok"])
    agent = Agent(provider=provider, model=Model(id="m", provider="faux"), system_prompt="be brief")
    result = await agent.prompt("hi")
    assert result.text == "ok"
    assert (provider.calls[0].model.id, provider.calls[0].system_prompt) == ("m", "be brief")


async def test_requests_carry_the_agent_s_options() -> None:
    payloads: list[Any] = []
    heads: list[int] = []
    made = bench(
        "ok",
        tools=[saying("say")],
        tool_choice="required",
        on_payload=lambda payload, model: payloads.append(payload),
        on_response=lambda response, model: heads.append(response.status),
    )
    await made.agent.prompt("hi")
    [call] = made.provider.calls
    assert ([tool.name for tool in call.tools], call.tool_choice) == (["say"], "required")
    assert call.options.signal is not None
    assert (len(payloads), heads) == (1, [200])


async def test_an_earlier_request_does_not_change_afterwards() -> None:
    made = bench(calling("say"), "done", tools=[saying("say")])
    await made.agent.prompt("hi")
    assert [len(made.asked(call)) for call in range(2)] == [1, 3]


@needs_trio
def test_an_agent_may_be_made_outside_a_loop_and_used_in_one_after_another() -> None:
    provider = FauxProvider()
    agent = Agent(model=provider.model("m"), tools=[saying("say")])
    agent.steer("early")
    for backend in ("asyncio", "trio", "asyncio"):
        provider.append_responses([calling("say"), backend])
        result: RunResult = anyio.run(agent.prompt, "hi", backend=backend)
        assert (result.outcome, result.text) == ("completed", backend)
    assert agent.state.messages[0].role == "user"
    assert len(agent.state.messages) == 13


async def test_nothing_of_a_run_is_kept_alive_by_the_agent() -> None:
    class Payload:
        pass

    refs: list[weakref.ref[Payload]] = []

    async def work(tool_call_id: str, params: NoParams, *, on_update: Any) -> str:
        payload = Payload()
        refs.append(weakref.ref(payload))
        on_update(payload)
        return "ok"

    made = bench(calling("work"), "done", tools=[tool_of("work", work)], heard=False)
    made.agent.subscribe(lambda event: None)
    await made.agent.prompt("hi")
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        gc.collect()
    assert [ref() for ref in refs] == [None]


@pytest.mark.parametrize("ending", ["completed", "aborted", "error", "cancelled"])
async def test_an_agent_that_nobody_holds_any_more_is_freed(ending: str) -> None:
    async def use() -> list[weakref.ref[Any]]:
        response: Any = {"completed": "ok", "error": ValueError("no")}.get(
            ending, FauxResponse("never", stall_before_start=True)
        )
        made = bench(response, tools=[saying("say")])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.agent.prompt, "hi")
            if ending in ("aborted", "cancelled"):
                await made.provider.wait_stalled()
                made.agent.abort() if ending == "aborted" else tasks.cancel_scope.cancel()
        return [weakref.ref(made.agent), weakref.ref(made.provider), weakref.ref(made.agent.state)]

    refs = await use()
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


async def test_resuming_after_an_answer_that_was_cut_asks_the_model_to_go_on() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("half of it", stall_after_deltas=1), "and the rest"])
    agent = Agent(model=provider.model("m"))
    async with anyio.create_task_group() as tasks:

        async def abort() -> None:
            await provider.wait_stalled()
            agent.abort()

        tasks.start_soon(abort)
        await agent.prompt("go")
    result = await agent.resume()
    assert result.text == "and the rest"
    shown = provider.calls[-1].messages
    assert [message.role for message in shown] == ["user", "assistant", "user"]
    assert shown[-1].metadata["synthetic_source"] == "resume"
