"""What retrying, falling back and racing have in common: the answer arrives as from the model itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AgentTool,
    BaseProvider,
    FauxResponse,
    IncompleteStream,
    MessageDraft,
    MessageStream,
    ProviderAuthFailed,
    ProviderUnavailable,
    RateLimited,
    RunResult,
    StreamOptions,
    Usage,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.concurrency import AbortSource
from cubepi_anyio.providers.base import BoundModel, StreamingModel
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from cubepi_anyio.testing import Scenario, endings_here, sweep
from tests.support.agents import NoParams, running_tasks
from tests.support.backends import on_asyncio

from .asking import ASK, Heard, ask, faux, notes_of

pytestmark = pytest.mark.anyio

Compose = Callable[[BoundModel], StreamingModel]

AT_ONCE = RetryPolicy(initial_delay_seconds=0)
COMPOSED: list[Compose] = [
    lambda model: RetryModel(model, AT_ONCE),
    lambda model: FallbackModel([model, faux(id="spare")[1]]),
    lambda model: RaceModel([model]),
    lambda model: RaceModel([model, faux(FauxResponse("Never.", stall_before_start=True), id="spare")[1]]),
    lambda model: RetryModel(FallbackModel([RaceModel([model])]), AT_ONCE),
]
composed = pytest.mark.parametrize("compose", COMPOSED, ids=["retry", "fallback", "alone", "race", "nested"])

THINKING = faux_assistant_message(
    [faux_thinking("Let me see.", "signed"), "Two calls: ", faux_tool_call("add", {"a": 1, "b": [2]}, id="c1"), "done"]
)
ANSWERS: dict[str, Any] = {
    "text": "Hello, this is an answer of some length.",
    "thinking and calls": THINKING,
    "empty": "",
    "cut in the middle": FauxResponse(THINKING, end_after_deltas=9),
    "failed in the middle": FauxResponse(THINKING, fail_after_deltas=5, fail_with=ProviderUnavailable("gone")),
    "garbled arguments": FauxResponse(faux_tool_call("add", {"a": 1}, id="c1"), garble_arguments=True),
    "a call without arguments": faux_tool_call("look", {}, id="c1"),
    "whole messages and no result": FauxResponse("Written by hand.", forget_result=True),
    "too long": faux_assistant_message("Too lo", stop_reason="length"),
    "an answer that is an error": faux_assistant_message("Half an", error_message="overheated"),
}


def facts(heard: Heard) -> list[Any]:
    """All that a consumer can see of an answer, but for the identity of its errors."""
    events = [
        (e.type, e.content_index, e.delta, e.stop_reason, e.usage, e.error_message, e.partial, e.preview_arguments())
        for e in heard.events
    ]
    return [*events, heard.message, type(heard.error), str(heard.error)]


@composed
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_arrives_as_from_the_model_itself(compose: Compose, answer: Any) -> None:
    plain = await ask(faux(answer)[1])
    provider, model = faux(answer)
    heard = await ask(compose(model))
    assert facts(heard) == facts(plain)
    assert provider.call_count == 1


@pytest.mark.parametrize("compose", COMPOSED[:3], ids=["retry", "fallback", "alone"])
@pytest.mark.parametrize(
    "answer",
    [
        FauxResponse("Lost.", fail_after_deltas=0, fail_with=ProviderAuthFailed("the key has expired")),
        faux_assistant_message([], error_message="overheated", usage=Usage(input_tokens=3)),
    ],
    ids=["failed after its head", "an error and nothing else"],
)
async def test_a_failure_that_is_passed_on_keeps_what_had_arrived(compose: Compose, answer: Any) -> None:
    plain = await ask(faux(answer)[1])
    heard = await ask(compose(faux(answer)[1]))
    assert facts(heard) == facts(plain)
    assert heard.types == ["start", "error"]
    assert heard.message.response_id == "faux_1"


@composed
async def test_a_consumer_that_reads_partials_as_they_come_sees_the_same(compose: Compose) -> None:
    async def texts(model: StreamingModel) -> list[str]:
        seen: list[str] = []
        async with await model.stream(ASK) as stream:
            async for event in stream:
                assert event.partial is not None
                assert stream.message == event.partial or event.is_terminal
                seen.append(event.partial.text)
        return seen

    plain = await texts(faux(THINKING)[1])
    assert plain[-1] == "Two calls: done"
    assert await texts(compose(faux(THINKING)[1])) == plain


@composed
async def test_a_snapshot_that_an_observer_has_read_changes_nothing(compose: Compose) -> None:
    provider, model = faux(THINKING)
    seen: list[str] = []
    provider.subscribe_chunk(lambda event, _: seen.append(event.partial.text if event.partial else "?"))
    heard = await ask(compose(model))
    assert facts(heard) == facts(await ask(faux(THINKING)[1]))
    assert seen == [event.partial.text for event in heard.events if event.partial is not None]


@composed
async def test_the_options_and_tools_of_a_call_reach_the_model(compose: Compose) -> None:
    provider, model = faux("Yes.")
    options = StreamOptions(max_output_tokens=7)
    asked = compose(model)
    assert (asked.spec, asked.provider) == (model.spec, provider)
    message = await asked.generate(ASK, system_prompt="Be brief.", tools=[], tool_choice="none", options=options)
    assert message.text == "Yes."
    call = provider.calls[0]
    assert (call.messages, call.system_prompt, call.tool_choice, call.options) == (ASK, "Be brief.", "none", options)


@composed
async def test_an_answer_that_has_begun_is_not_asked_for_again(compose: Compose) -> None:
    cut = FauxResponse("Half an answer", fail_after_deltas=1, fail_with=RateLimited("slow down"))
    provider, model = faux(cut, "Another.")
    heard = await ask(compose(model))
    assert provider.call_count == 1
    assert heard.types == ["start", "text_start", "text_delta", "error"]
    assert isinstance(heard.error, RateLimited)
    assert heard.message.stop_reason == "error"
    assert heard.message.text == heard.events[2].delta


@composed
async def test_a_stream_that_is_never_entered_asks_nobody(compose: Compose) -> None:
    provider, model = faux("Not asked for.")
    await compose(model).stream(ASK)
    assert (provider.call_count, provider.pending_response_count) == (0, 1)


@composed
async def test_leaving_the_stream_leaves_nothing(compose: Compose) -> None:
    provider, model = faux(FauxResponse("Half an answer", stall_after_deltas=2))
    before = running_tasks()
    stream = await compose(model).stream(ASK)
    async with stream:
        async for event in stream:
            if event.type == "text_delta":
                await provider.wait_stalled()
                break
    assert (provider.stalled_count, running_tasks()) == (0, before)
    assert (await stream.result()).stop_reason == "aborted"


@composed
async def test_a_consumer_that_does_not_read_holds_the_model_back(compose: Compose) -> None:
    provider, model = faux("x" * 4000, token_size_min=1, token_size_max=1)
    sent: list[str] = []
    provider.subscribe_chunk(lambda event, _: sent.append(event.type))
    async with await compose(model).stream(ASK) as stream:
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
        # 64 events wait in each of the streams between the model and its consumer: two, or four where it is nested.
        assert 64 < len(sent) <= 4 * 64 + 16
        assert (await stream.result()).text == "x" * 4000


@composed
@pytest.mark.parametrize("error", [RateLimited("slow down"), ValueError("a bug"), IncompleteStream("cut")])
async def test_an_error_after_the_signal_is_no_reason_to_ask_again(compose: Compose, error: Exception) -> None:
    """A provider may end with an error of its own when it sees the signal, before it is cancelled."""
    signal = AbortSource()
    asked: list[int] = []

    def answer() -> FauxResponse:
        asked.append(1)
        signal.set()
        return FauxResponse(fail_with=error)

    _, model = faux(answer, "Not asked for.")
    heard = await ask(compose(model), options=StreamOptions(signal=signal))
    assert (len(asked), heard.types, heard.error) == (1, ["error"], error)
    assert not notes_of(error)


@composed
async def test_an_answer_that_says_it_was_aborted_is_passed_on(compose: Compose) -> None:
    provider, model = faux(faux_assistant_message([], stop_reason="aborted"), "Not asked for.")
    heard = await ask(compose(model))
    assert (provider.call_count, heard.message.stop_reason) == (1, "aborted")


class Raising(BaseProvider):
    """Raises where it should return a stream."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(provider_id="raising")
        self.error = error

    async def stream(self, *_: Any, **__: Any) -> MessageStream:
        raise self.error


async def test_an_error_of_the_call_itself_is_a_failure_like_any_other() -> None:
    error = ProviderUnavailable("no connection")
    model, spare = Raising(error).model("m"), faux("Here.")[1]
    assert (await ask(FallbackModel([model, spare]))).message.text == "Here."
    assert (await ask(RaceModel([model, faux("Here.")[1]]))).message.text == "Here."
    for alone in (RetryModel(model, AT_ONCE), FallbackModel([model]), RaceModel([model])):
        heard = await ask(alone)
        assert (heard.types, heard.error) == (["error"], error)


async def test_a_bug_is_not_retried_and_arrives_as_itself() -> None:
    error = ZeroDivisionError("a bug")
    model, (spare, _) = Raising(error).model("m"), faux("Not asked for.")
    for asked in (RetryModel(model, AT_ONCE), FallbackModel([model, spare.model("m")]), RaceModel([model])):
        assert (await ask(asked)).error is error
    assert spare.call_count == 0


async def test_a_call_that_returns_no_stream_is_the_callers_to_hear_of() -> None:
    class Wrong(BaseProvider):
        async def stream(self, *_: Any, **__: Any) -> Any:
            return "not a stream"

    heard = await ask(RetryModel(Wrong().model("m")))
    assert str(heard.error) == "a model's stream() returns a MessageStream, not str"


@on_asyncio
async def test_a_provider_that_cancels_itself_has_failed() -> None:
    for composition in (FallbackModel, RaceModel):
        heard = await ask(composition([Raising(asyncio.CancelledError()).model("m"), faux("Here.")[1]]))
        assert heard.message.text == "Here."
        heard = await ask(composition([Raising(asyncio.CancelledError()).model("m")]))
        assert str(heard.error) == "the provider cancelled itself"


class Translating(BaseProvider):
    """Takes its own cancellation for an error of the connection."""

    def __init__(self) -> None:
        super().__init__(provider_id="translating")
        self.asked = 0
        self.waiting = anyio.Event()

    async def stream(self, *_: Any, **__: Any) -> MessageStream:
        self.asked += 1

        async def produce(stream: MessageStream) -> None:
            MessageDraft(stream).writer.start()
            self.waiting.set()
            try:
                await anyio.sleep_forever()
            finally:
                stream.fail(ProviderUnavailable("the connection was lost"))

        return MessageStream(produce)


@composed
async def test_an_abort_is_no_reason_to_ask_again_whatever_a_provider_takes_it_for(compose: Compose) -> None:
    provider = Translating()
    agent = Agent(model=compose(provider.model("m")))
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await agent.prompt("Go."))

    before = running_tasks()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await provider.waiting.wait()
            await anyio.wait_all_tasks_blocked()
            agent.abort()
    assert (results[0].outcome, results[0].error, provider.asked) == ("aborted", None, 1)
    assert running_tasks() == before


# --- the sweep -------------------------------------------------------------------------------


LOOK = faux_assistant_message([faux_text("I look."), faux_tool_call("look", {}, id="c1")])
SEEN = "I have looked."


def scenario(
    compose: Callable[[BoundModel, BoundModel], StreamingModel], answers: list[Any], spare_answers: list[Any]
) -> Scenario:
    """Two turns with a tool between, asked of a model that fails now and then, and of another."""
    first, model = faux(*answers, id="first")
    second, spare = faux(*spare_answers, id="second")

    async def look(tool_call_id: str, params: NoParams) -> str:
        return "seen"

    async def again(agent: Agent) -> RunResult:
        for provider in (first, second):
            provider.set_responses(["Yes."] * 16)
        return await agent.prompt("Are you still there?")

    def requests() -> list[Any]:
        return [call.messages for provider in (first, second) for call in provider.calls]

    agent = Agent(model=compose(model, spare), tools=[AgentTool("look", "Looks.", NoParams, look)])
    return Scenario(agent=agent, again=again, requests=requests)


def retried() -> Scenario:
    answers = [RateLimited("slow down"), LOOK, IncompleteStream("cut"), SEEN]
    return scenario(lambda model, _: RetryModel(model, AT_ONCE), answers, [])


def fallen_back() -> Scenario:
    answers = [RateLimited("slow down"), IncompleteStream("cut")]
    return scenario(lambda model, spare: FallbackModel([model, spare], sticky=False), answers, [LOOK, SEEN])


def raced() -> Scenario:
    answers = [RateLimited("slow down"), FauxResponse("Never.", stall_before_start=True)]
    return scenario(lambda model, spare: RaceModel([model, spare]), answers, [LOOK, SEEN])


@pytest.mark.deadline(120)
@pytest.mark.parametrize("make", [retried, fallen_back, raced], ids=lambda make: make.__name__)
async def test_a_run_may_be_ended_at_any_step(make: Callable[[], Scenario]) -> None:
    stride = 1 if os.environ.get("CUBEPI_ANYIO_THOROUGH_SWEEPS") else 5
    for number, ending in enumerate(endings_here()):
        report = await sweep(make, ending=ending, start=1 + number % stride, stride=stride)
        report.raise_for_faults()
        assert report.endings > 3
