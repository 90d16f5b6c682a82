"""What a program or a model gets wrong ends clearly, and never in a hang."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AgentBusy,
    AssistantMessage,
    BaseProvider,
    DuplicateToolName,
    EmptyPrompt,
    FauxProvider,
    FauxQueueEmpty,
    FauxResponse,
    ImageContent,
    IncompleteStream,
    MessageStream,
    Model,
    ProviderError,
    RateLimited,
    StreamEvent,
    TextContent,
    UserMessage,
    faux_assistant_message,
    faux_thinking,
    faux_tool_call,
    run_agent_loop,
)
from tests.support.agents import (
    NoParams,
    Word,
    assert_well_ended,
    balance_faults,
    bench,
    calling,
    label,
    saying,
    sleeping,
    tool_of,
    transcript_faults,
)

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


# --- prompts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", " \n\t", [], [""], ["hi", ""], UserMessage(), [UserMessage(content=[])]])
async def test_an_empty_prompt_is_refused_before_anything_happens(prompt: Any) -> None:
    made = bench("ok")
    with pytest.raises(EmptyPrompt, match="the prompt is empty; give a text"):
        await made.agent.prompt(prompt)
    with pytest.raises(EmptyPrompt):
        made.agent.stream(prompt)
    assert (made.events, made.agent.state.messages, made.provider.call_count) == ([], [], 0)
    await assert_well_ended_after_nothing(made)


async def assert_well_ended_after_nothing(made: Any) -> None:
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    await assert_well_ended(made)


@pytest.mark.parametrize(
    ("prompt", "name"),
    [(None, "NoneType"), (7, "int"), ({"role": "user"}, "dict"), (b"hi", "int"), ([None], "NoneType")],
)
async def test_a_prompt_of_a_wrong_type_is_a_type_error(prompt: Any, name: str) -> None:
    made = bench("ok")
    with pytest.raises(TypeError, match=f"a prompt is a string, a message or a list of them, not {name}"):
        await made.agent.prompt(prompt)
    await assert_well_ended_after_nothing(made)


async def test_an_image_alone_is_a_prompt() -> None:
    made = bench("a cat")
    result = await made.agent.prompt(UserMessage(content=[ImageContent(source="aGk=", media_type="image/png")]))
    assert result.outcome == "completed"


async def test_a_list_of_texts_and_messages_is_a_prompt() -> None:
    made = bench("ok")
    await made.agent.prompt(["one", UserMessage(content=[TextContent(text="two")])])
    assert [message.text for message in made.asked() if message.role == "user"] == ["one", "two"]


# --- two runs at once ------------------------------------------------------------------------


async def test_a_second_prompt_at_once_is_refused_and_the_first_goes_on() -> None:
    made = bench(FauxResponse("first", stall_before_start=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "one")
        await made.provider.wait_stalled()
        for attempt in (made.agent.prompt("two"), made.agent.resume()):
            with pytest.raises(AgentBusy, match="wait for it with wait_for_idle"):
                await attempt
        with pytest.raises(AgentBusy, match=r"stream\(\)"):
            async with made.agent.stream("three"):
                pass
        with pytest.raises(AgentBusy, match=r"reset\(\)"):
            made.agent.reset()
        assert made.agent.state.is_running
        made.provider.release_stalls()
    assert [message.text for message in made.agent.state.messages if message.role != "tool_result"] == ["one", "first"]
    await assert_well_ended(made)


async def test_a_tool_that_prompts_its_own_agent_gets_an_error_result() -> None:
    async def recurse(tool_call_id: str, params: NoParams) -> str:
        await made.agent.prompt("deeper")
        return "never"

    made = bench(calling("recurse"), "done", tools=[tool_of("recurse", recurse)])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert "in the middle of a run" in made.texts[0]
    await assert_well_ended(made)


# --- the agent's settings --------------------------------------------------------------------


async def test_a_model_without_its_provider_and_one_with_two_are_refused() -> None:
    provider = FauxProvider()
    with pytest.raises(TypeError, match="a Model needs its provider"):
        Agent(model=Model(id="m"))
    with pytest.raises(TypeError, match="bound to its provider already"):
        Agent(provider=provider, model=provider.model("m"))


async def test_tools_that_share_a_name_or_are_none_are_refused() -> None:
    provider = FauxProvider()
    with pytest.raises(DuplicateToolName, match="'twice'"):
        Agent(model=provider.model("m"), tools=[saying("twice"), saying("twice")])
    with pytest.raises(TypeError, match="a tool is an AgentTool, not function"):
        Agent(model=provider.model("m"), tools=[lambda: None])  # type: ignore[list-item]
    agent = Agent(model=provider.model("m"), tools=[saying("one")])
    with pytest.raises(DuplicateToolName):
        agent.state.tools = [saying("two"), saying("two")]
    assert [tool.name for tool in agent.state.tools] == ["one"]


async def test_an_unknown_mode_of_execution_is_refused() -> None:
    with pytest.raises(ValueError, match="'parallel' or 'sequential', not 'both'"):
        bench("ok", tool_execution="both")


# --- calls that are wrong --------------------------------------------------------------------


async def test_an_unknown_tool_is_answered_with_the_names_of_those_there_are() -> None:
    made = bench(calling("serch", "search"), "done", tools=[saying("search"), saying("fetch")])
    result = await made.agent.prompt("hi")
    assert result.outcome == "completed"
    assert made.texts == ["There is no tool named 'serch'. The tools are: search, fetch.", "search"]
    assert [result.is_error for result in made.results] == [True, False]
    await assert_well_ended(made)


async def test_a_call_although_there_are_no_tools_is_answered() -> None:
    made = bench(calling("search"), "done")
    await made.agent.prompt("hi")
    assert made.texts == ["There is no tool named 'search'. The tools are: none."]


async def test_arguments_that_are_no_json_are_answered_with_what_came() -> None:
    ran: list[str] = []

    async def echo(tool_call_id: str, params: Word) -> str:
        ran.append(params.word)
        return params.word

    call = faux_tool_call("echo", '{"word": "x', id="c1")
    fine = faux_tool_call("echo", {"word": "fine"}, id="c2")
    made = bench(faux_assistant_message([call, fine]), "done", tools=[tool_of("echo", echo, parameters=Word)])
    await made.agent.prompt("hi")
    assert ran == ["fine"]
    assert made.results[0].is_error
    assert made.texts == ['The arguments are not a JSON object: {"word": "x', "fine"]
    await assert_well_ended(made)


async def test_arguments_that_do_not_fit_are_answered_with_a_line_for_each_field() -> None:
    class Range(Word):
        limit: int

    call = faux_tool_call("echo", {"limit": "many"}, id="c1")
    made = bench(faux_assistant_message([call]), "done", tools=[saying("echo", parameters=Range)])
    await made.agent.prompt("hi")
    [text] = made.texts
    lines = text.splitlines()
    assert sorted(line.split(":")[0] for line in lines) == ["limit", "word"]
    assert "Range" not in text
    assert "http" not in text


# --- answers that are wrong ------------------------------------------------------------------


async def test_a_failing_model_is_an_outcome_with_the_typed_error() -> None:
    error = RateLimited("slow down", provider="faux", status_code=429, retry_after_seconds=3)
    made = bench(FauxResponse(fail_with=error))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.error, result.text) == ("error", error, "")
    with pytest.raises(RateLimited):
        result.raise_for_error()
    assert made.agent.state.error is error
    assert made.roles == ["user"]
    assert made.labels[-1] == "agent_end:error"
    await assert_well_ended(made)
    assert made.agent.state.error is None


async def test_a_model_that_fails_in_the_middle_keeps_its_text_and_signed_thinking_and_runs_nothing() -> None:
    answer = faux_assistant_message(
        [faux_thinking("thought", "signed"), "partial text", faux_tool_call("say", {}, id="c1")], stop_reason="tool_use"
    )
    made = bench(
        FauxResponse(answer, fail_with=ProviderError("cut"), fail_after_deltas=1000), "ok", tools=[saying("say")]
    )
    result = await made.agent.prompt("hi")
    assert (result.outcome, str(result.error)) == ("error", "cut")
    [_, kept, answered] = made.agent.state.messages
    assert isinstance(kept, AssistantMessage)
    assert (kept.text, kept.stop_reason, kept.error_type) == ("partial text", "error", "ProviderError")
    assert kept.content[0] == faux_thinking("thought", "signed")
    assert answered.role == "tool_result"
    assert "did not run" in made.texts[0]
    assert made.provider.call_count == 1
    await assert_well_ended(made)


async def test_unsigned_thinking_of_a_broken_answer_is_not_kept() -> None:
    made = bench(FauxResponse([faux_thinking("half a thought")], fail_with=ProviderError("cut"), fail_after_deltas=2))
    await made.agent.prompt("hi")
    assert made.roles == ["user"]
    await assert_well_ended(made)


async def test_a_call_that_was_cut_is_dropped_and_a_whole_one_is_answered() -> None:
    calls = [faux_tool_call("say", {}, id="whole"), faux_tool_call("say", '{"a": 1, "b', id="cut")]
    made = bench(faux_assistant_message(["text", *calls], stop_reason="length"), "shorter now", tools=[saying("say")])
    result = await made.agent.prompt("hi")
    answer = made.agent.state.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert [call.id for call in answer.tool_calls] == ["whole"]
    assert made.texts == ["The call did not run: the message that made it was cut because it grew too long."]
    assert made.results[0].is_error
    assert (result.outcome, result.text) == ("completed", "shorter now")
    await assert_well_ended(made)


async def test_calls_decide_and_not_the_stop_reason() -> None:
    """``stop`` together with calls runs them; ``tool_use`` without any ends the run."""
    made = bench(
        calling("say").model_copy(update={"stop_reason": "stop"}),
        faux_assistant_message("no calls", stop_reason="tool_use"),
        tools=[saying("say")],
    )
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, made.texts) == ("completed", "no calls", ["say"])


async def test_a_stop_reason_nobody_knows_is_kept() -> None:
    made = bench(faux_assistant_message("ok", stop_reason="model_context_window_exceeded"))
    await made.agent.prompt("hi")
    answer = made.agent.state.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.stop_reason == "model_context_window_exceeded"


async def test_an_empty_answer_does_not_enter_the_transcript() -> None:
    made = bench(faux_assistant_message([]))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, made.roles) == ("completed", "", ["user"])
    assert balance_faults(made.events) == []
    await assert_well_ended(made)


async def test_a_stream_that_just_ends_is_an_error_and_runs_nothing() -> None:
    made = bench(FauxResponse(calling("say", text="look"), end_after_deltas=1000), tools=[saying("say")])
    result = await made.agent.prompt("hi")
    assert result.outcome == "error"
    assert isinstance(result.error, IncompleteStream)
    assert not any(result.is_error is False for result in made.results)
    await assert_well_ended(made)


async def test_an_empty_queue_of_the_faux_model_is_an_error_that_says_so() -> None:
    made = bench()
    result = await made.agent.prompt("hi")
    assert result.outcome == "error"
    assert isinstance(result.error, FauxQueueEmpty)


# --- providers that are wrong ----------------------------------------------------------------


class Custom(BaseProvider):
    """A provider with a producer, or something else to return in place of a stream."""

    def __init__(self, produce: Any = None, *, returns: Any = None, raises: Exception | None = None) -> None:
        super().__init__(provider_id="custom")
        self.produce, self.returns, self.raises = produce, returns, raises

    async def stream(self, model: Any, messages: Any, **_: Any) -> Any:
        if self.raises is not None:
            raise self.raises
        return MessageStream(self.produce) if self.produce is not None else self.returns


async def outcome_of(provider: Custom) -> tuple[Any, list[str], Agent]:
    agent = Agent(model=provider.model("m"))
    events: list[Any] = []
    agent.subscribe(events.append)
    result = await agent.prompt("hi")
    assert balance_faults(events) == []
    assert transcript_faults(agent.state.messages) == []
    return result, [label(event) for event in events], agent


@pytest.mark.parametrize("returns", [None, "text", AssistantMessage()])
async def test_a_provider_that_returns_no_stream_is_an_error(returns: Any) -> None:
    result, labels, _ = await outcome_of(Custom(returns=returns))
    assert result.outcome == "error"
    assert isinstance(result.error, TypeError)
    assert str(result.error) == f"a model's stream() returns a MessageStream, not {type(returns).__name__}"
    assert labels[-1] == "agent_end:error"


async def test_a_provider_that_raises_at_the_call_is_an_error_like_any_other() -> None:
    error = ConnectionRefusedError("nobody there")
    result, _, _ = await outcome_of(Custom(raises=error))
    assert (result.outcome, result.error) == ("error", error)


async def test_an_event_of_an_unknown_type_is_an_error_or_passed_over_but_no_hang() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("start"))
        await stream.send(StreamEvent("text_start", 0))
        await stream.send(StreamEvent("text_delta", 0, "hello"))
        await stream.send(StreamEvent("audio_delta", 1, "beep"))  # type: ignore[arg-type]
        await stream.send(StreamEvent("text_end", 0))
        await stream.send(StreamEvent("done"))

    result, labels, _ = await outcome_of(Custom(produce))
    assert (result.outcome, result.text) == ("completed", "hello")
    assert labels[-1] == "agent_end:completed"


async def test_a_provider_that_pushes_what_is_no_event_fails_its_answer() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.push("text")  # type: ignore[arg-type]

    result, _, _ = await outcome_of(Custom(produce))
    assert result.outcome == "error"
    assert isinstance(result.error, AttributeError | TypeError)


async def test_a_missing_result_is_what_the_stream_kept() -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("start"))
        await stream.send(StreamEvent("text_start", 0))
        await stream.send(StreamEvent("text_delta", 0, "kept"))
        await stream.send(StreamEvent("done"))

    result, _, _ = await outcome_of(Custom(produce))
    assert (result.outcome, result.text) == ("completed", "kept")


@pytest.mark.parametrize("after", [0, 1])
async def test_a_producer_that_raises_is_an_error_with_what_had_arrived(after: int) -> None:
    error = OSError("the wire broke")

    async def produce(stream: MessageStream) -> None:
        if after:
            await stream.send(StreamEvent("start"))
            await stream.send(StreamEvent("text_start", 0))
            await stream.send(StreamEvent("text_delta", 0, "half"))
        raise error

    result, _, agent = await outcome_of(Custom(produce))
    assert (result.outcome, result.error) == ("error", error)
    assert [message.role for message in agent.state.messages] == ["user", "assistant"][: 1 + after]


async def test_a_provider_that_says_aborted_by_itself_is_an_error() -> None:
    async def produce(stream: MessageStream) -> None:
        stream.set_result(AssistantMessage(content=[TextContent(text="half")], stop_reason="aborted"))

    result, _, agent = await outcome_of(Custom(produce))
    assert (result.outcome, result.text) == ("error", "half")
    assert isinstance(result.error, ProviderError)
    assert agent.state.last_outcome == "error"


# --- the loop without an agent ---------------------------------------------------------------


async def test_the_loop_refuses_the_same_mistakes() -> None:
    model = FauxProvider().model("m")
    with pytest.raises(EmptyPrompt):
        await run_agent_loop("", [], model)
    with pytest.raises(DuplicateToolName):
        await run_agent_loop("hi", [], model, tools=[saying("a"), saying("a")])
    with pytest.raises(TypeError, match="a listener is a function"):
        await run_agent_loop("hi", [], model, emit=3)  # type: ignore[arg-type]


async def test_an_abort_of_an_unknown_call_says_so() -> None:
    began = anyio.Event()
    made = bench(calling("sleep"), "done", tools=[sleeping("sleep", began)])
    assert made.agent.abort_tool_call("c1") is False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.agent.prompt, "hi")
        await began.wait()
        assert made.agent.abort_tool_call("nothing") is False
        assert made.agent.abort_tool_call("c1") is True
        assert made.agent.abort_tool_call("c1", "again") in (True, False)
    assert made.agent.abort_tool_call("c1") is False
    await assert_well_ended(made)
