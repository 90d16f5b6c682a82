"""Each bound of ``RunLimits``: what it ends, what is kept, and that the agent goes on afterwards."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AssistantMessage,
    BaseProvider,
    FauxProvider,
    FauxResponse,
    MessageStream,
    RunLimitReached,
    RunLimits,
    StreamEvent,
    Usage,
    faux_assistant_message,
)
from tests.support.agents import (
    Bench,
    NoParams,
    assert_well_ended,
    bench,
    calling,
    running_tasks,
    saying,
    sleeping,
    tool_of,
)

pytestmark = pytest.mark.anyio


async def limited(made: Bench, limit: str, bound: float) -> None:
    """Prompt, and check that this limit ends the run and that everything is in order afterwards."""
    before = running_tasks()
    with anyio.fail_after(1000):
        result = await made.agent.prompt("hi")
    assert running_tasks() == before
    assert (result.outcome, result.limit, result.limit_value, result.error) == ("limit", limit, bound, None)
    with pytest.raises(RunLimitReached) as caught:
        result.raise_for_error()
    assert (caught.value.limit, caught.value.bound) == (limit, bound)
    assert made.labels[-1] == "agent_end:limit"
    made.agent.limits = RunLimits()
    await assert_well_ended(made)


async def test_run_timeout_while_the_model_is_silent() -> None:
    made = bench(FauxResponse("one two", stall_after_deltas=1), limits=RunLimits(run_timeout=0.05))
    await limited(made, "run_timeout", 0.05)
    assert isinstance(made.agent.state.messages[1], AssistantMessage)


async def test_run_timeout_while_tools_run() -> None:
    made = bench(calling("say", "sleep"), tools=[saying("say"), sleeping("sleep")], limits=RunLimits(run_timeout=0.3))
    await limited(made, "run_timeout", 0.3)
    assert made.texts[0] == "say"
    assert "run_timeout" in made.texts[1]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_turn_timeout_while_tools_run(mode: Any) -> None:
    made = bench(
        calling("say", "sleep", "say"),
        tools=[saying("say"), sleeping("sleep")],
        tool_execution=mode,
        limits=RunLimits(turn_timeout=0.3),
    )
    await limited(made, "turn_timeout", 0.3)
    assert made.texts[0] == "say"
    assert "turn_timeout" in made.texts[1]
    assert "turn_timeout" in made.texts[2] if mode == "sequential" else made.texts[2] == "say"


@pytest.mark.virtual_clock
async def test_turn_timeout_is_for_each_turn() -> None:
    async def slow(tool_call_id: str, params: NoParams) -> str:
        await anyio.sleep(8)
        return "ok"

    made = bench(*[calling("slow")] * 3, "done", tools=[tool_of("slow", slow)], limits=RunLimits(turn_timeout=10))
    assert (await made.agent.prompt("hi")).outcome == "completed"
    assert anyio.current_time() >= 24


@pytest.mark.virtual_clock
async def test_first_token_timeout_counts_from_the_request() -> None:
    made = bench(FauxResponse("never", stall_before_start=True), limits=RunLimits(first_token_timeout=20))
    began = anyio.current_time()
    await limited(made, "first_token_timeout", 20)
    assert anyio.current_time() - began == pytest.approx(20)


@pytest.mark.virtual_clock
async def test_the_head_of_an_answer_is_no_token() -> None:
    """The time is not begun anew when the answer starts without saying anything."""

    class Hesitant(BaseProvider):
        async def stream(self, model: Any, messages: Any, **_: Any) -> MessageStream:
            async def produce(stream: MessageStream) -> None:
                await anyio.sleep(15)
                await stream.send(StreamEvent("start"))
                await anyio.sleep_forever()

            await anyio.sleep(3)
            return MessageStream(produce)

    agent = Agent(model=Hesitant().model("m"), limits=RunLimits(first_token_timeout=20))
    began = anyio.current_time()
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "first_token_timeout")
    assert anyio.current_time() - began == pytest.approx(20)
    assert [message.role for message in agent.state.messages] == ["user"]


@pytest.mark.virtual_clock
async def test_first_token_timeout_holds_for_a_provider_that_does_not_return_at_once() -> None:
    class Blocking(BaseProvider):
        async def stream(self, model: Any, messages: Any, **_: Any) -> MessageStream:
            await anyio.sleep_forever()
            raise AssertionError

    agent = Agent(model=Blocking().model("m"), limits=RunLimits(first_token_timeout=20))
    began = anyio.current_time()
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "first_token_timeout")
    assert anyio.current_time() - began == pytest.approx(20)


@pytest.mark.virtual_clock
async def test_idle_timeout_is_between_two_events_and_keeps_what_had_arrived() -> None:
    made = bench(
        FauxResponse("one two three", stall_after_deltas=2), limits=RunLimits(first_token_timeout=5, idle_timeout=30)
    )
    began = anyio.current_time()
    await limited(made, "idle_timeout", 30)
    assert 30 <= anyio.current_time() - began + 1e-6 <= 30.051
    answer = made.agent.state.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.stop_reason == "aborted"
    assert answer.text
    assert "one two three".startswith(answer.text)


@pytest.mark.virtual_clock
async def test_a_slow_answer_that_keeps_coming_is_not_idle() -> None:
    provider = FauxProvider(tokens_per_second=0.5)
    provider.set_responses(["a long answer that takes its time, a token every two seconds"])
    agent = Agent(model=provider.model("m"), limits=RunLimits(first_token_timeout=3, idle_timeout=3))
    result = await agent.prompt("hi")
    assert result.outcome == "completed"
    assert anyio.current_time() > 10


@pytest.mark.virtual_clock
async def test_a_slow_listener_does_not_make_the_model_idle() -> None:
    made = bench("one two three", limits=RunLimits(idle_timeout=3, first_token_timeout=3))

    async def slow(event: Any) -> None:
        await anyio.sleep(10)

    made.agent.subscribe(slow)
    assert (await made.agent.prompt("hi")).outcome == "completed"


@pytest.mark.virtual_clock
async def test_tool_timeout_ends_the_call_alone_and_a_tool_s_own_timeout_wins() -> None:
    tools = [sleeping("slow"), sleeping("patient", timeout=50), saying("say")]
    made = bench(calling("slow", "patient", "say"), "done", tools=tools, limits=RunLimits(tool_timeout=7))
    began = anyio.current_time()
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    assert anyio.current_time() - began == pytest.approx(50)
    assert made.texts == [
        "The call timed out: it was cancelled after 7 seconds.",
        "The call timed out: it was cancelled after 50 seconds.",
        "say",
    ]
    assert [result.is_error for result in made.results] == [True, True, False]
    assert "tool_execution_end:c1:timed_out" in made.labels
    await assert_well_ended(made)


async def test_max_turns_keeps_the_work_and_answers_every_call() -> None:
    made = bench(*[calling("say")] * 5, tools=[saying("say")], limits=RunLimits(max_turns=2))
    await limited(made, "max_turns", 2)
    assert made.texts == ["say", "say"]


async def test_a_run_that_needs_exactly_max_turns_completes() -> None:
    made = bench(calling("say"), "done", tools=[saying("say")], limits=RunLimits(max_turns=2))
    assert (await made.agent.prompt("hi")).outcome == "completed"


async def test_what_was_queued_when_max_turns_is_reached_stays_queued() -> None:
    made = bench(calling("say"), "heard", tools=[saying("say")], limits=RunLimits(max_turns=1))
    made.agent.subscribe(lambda event: made.agent.steer("stop it") if event.type == "tool_execution_start" else None)
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "max_turns")
    assert [message.text for message in made.agent.queued_messages if message.role == "user"] == ["stop it"]
    result = await made.agent.resume()
    assert [message.text for message in made.asked() if message.role == "user"] == ["hi", "stop it"]
    assert result.outcome == "completed"


async def test_follow_ups_beyond_max_turns_stay_queued() -> None:
    made = bench("one", limits=RunLimits(max_turns=1))
    made.agent.follow_up("and then?")
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "max_turns")
    assert len(made.agent.queued_messages) == 1


async def test_max_tool_calls_runs_none_of_the_calls_of_the_message_that_exceeds_it() -> None:
    ran: list[str] = []

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ok"

    made = bench(
        calling("note", "note"),
        calling("note", "note"),
        tools=[tool_of("note", note)],
        limits=RunLimits(max_tool_calls=3),
    )
    await limited(made, "max_tool_calls", 3)
    assert sorted(ran) == ["c1", "c2"]
    assert [result.is_error for result in made.results] == [False, False, True, True]
    assert "max_tool_calls" in made.texts[2]


async def test_max_total_tokens_is_counted_after_each_answer_and_runs_no_further_calls() -> None:
    ran: list[str] = []

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ok"

    def answer(tokens: int) -> AssistantMessage:
        return calling("note").model_copy(update={"usage": Usage(input_tokens=tokens, output_tokens=10)})

    made = bench(answer(10), answer(90), tools=[tool_of("note", note)], limits=RunLimits(max_total_tokens=100))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "max_total_tokens")
    assert result.usage == Usage(input_tokens=100, output_tokens=20)
    assert ran == ["c1"]
    assert "max_total_tokens" in made.texts[1]
    made.agent.limits = RunLimits()
    await assert_well_ended(made)


async def test_a_last_answer_that_exceeds_max_total_tokens_is_still_an_answer() -> None:
    answer = faux_assistant_message("done", usage=Usage(input_tokens=1000))
    made = bench(answer, limits=RunLimits(max_total_tokens=10))
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")


async def test_a_limited_run_may_be_resumed_without_running_anything_twice() -> None:
    ran: list[str] = []

    async def note(tool_call_id: str, params: NoParams) -> str:
        ran.append(tool_call_id)
        return "ok"

    made = bench(calling("note"), "done", tools=[tool_of("note", note)], limits=RunLimits(max_turns=1))
    assert (await made.agent.prompt("hi")).outcome == "limit"
    made.agent.limits = RunLimits(max_turns=5)
    result = await made.agent.resume()
    assert (result.outcome, result.text, ran) == ("completed", "done", ["c1"])


@pytest.mark.parametrize("name", ["run_timeout", "max_turns", "idle_timeout", "settle_timeout", "max_parallel_tools"])
@pytest.mark.parametrize("value", [0, -1, True])
async def test_a_bound_that_is_not_positive_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"RunLimits\.{name} must be positive or None, not {value}"):
        RunLimits(**{name: value})


@pytest.mark.virtual_clock
async def test_the_defaults_stop_a_silent_model_and_a_model_that_never_stops_calling() -> None:
    made = bench(FauxResponse("never", stall_before_start=True))
    assert (await made.agent.prompt("hi")).limit == "first_token_timeout"
    made = bench(FauxResponse("one two three", stall_after_deltas=1))
    assert (await made.agent.prompt("hi")).limit == "idle_timeout"
    made = bench(*[calling("say")] * 1001, tools=[saying("say")])
    result = await made.agent.prompt("hi")
    assert (result.limit, made.provider.call_count) == ("max_turns", 1000)


@pytest.mark.parametrize("listens", ["nobody", "a function", "an async function"])
@pytest.mark.parametrize("last_word", ["error", "done"])
async def test_a_silence_is_the_limit_whatever_the_provider_makes_of_its_cancellation(
    last_word: Literal["error", "done"], listens: str
) -> None:
    class Stubborn(BaseProvider):
        async def stream(self, *_: Any, **__: Any) -> MessageStream:
            async def produce(stream: MessageStream) -> None:
                stream.push(StreamEvent("text_delta", 0, "half"))
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    stream.push(StreamEvent(last_word, error_message="the connection is gone"))

            return MessageStream(produce)

    async def listen(event: object) -> None:
        await anyio.lowlevel.checkpoint()

    agent = Agent(model=Stubborn().model("m"), limits=RunLimits(idle_timeout=0.02))
    if listens != "nobody":
        agent.subscribe(listen if listens == "an async function" else lambda event: None)
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit, result.error) == ("limit", "idle_timeout", None)
    answer = agent.state.messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.stop_reason) == ("half", "aborted")
