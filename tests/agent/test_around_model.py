"""``around_model_call`` and ``around_model_try``: around a turn's request, and around each try that asks a provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    AssistantMessage,
    BoundModel,
    ContextLengthExceeded,
    FauxProvider,
    FauxResponse,
    Message,
    Middleware,
    ModelSettings,
    ProviderUnavailable,
    RateLimited,
    RunLimits,
    RunResult,
    TextContent,
    TurnAction,
    Usage,
    UsageError,
)
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.errors import IncompleteStream
from cubepi_anyio.hooks.around import Proceed
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from cubepi_anyio.providers.model_call import ModelOutcome, StreamingModel
from tests.support.agents import Bench, assert_well_ended, bench, calling, saying
from tests.support.backends import on_asyncio
from tests.support.onions import Onions, Swallowing, only
from tests.tools.ways import end_call

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

AT_ONCE = RetryPolicy(initial_delay_seconds=0)


def saying_so(text: str, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=[TextContent(text=text)], **fields)


def bench_of(model: StreamingModel, provider: FauxProvider, **options: Any) -> Bench:
    """An agent with a model that asks others; ``provider`` answers what comes afterwards."""
    made = Bench(provider, Agent(model=model, **options))
    made.agent.subscribe(made.events.append)
    return made


# --- order and number ------------------------------------------------------------------------


async def test_a_request_is_around_its_transforms_and_its_tries_and_what_is_heard_of_the_answer() -> None:
    log: list[str] = []

    class Hooks(Middleware):
        async def transform_context(self, messages: list[Message], *, ctx: Any, signal: Any) -> list[Message]:
            log.append("transform")
            return messages

        async def after_model_response(self, response: AssistantMessage, *, ctx: Any, signal: Any) -> None:
            log.append("after")

    middleware = [Hooks(), Onions("a", log), Onions("b", log)]
    made = bench("done", middleware=middleware)
    made.agent.subscribe(lambda event: log.append(event.type) if event.type.startswith("message_") else None)
    await made.agent.prompt("hi")
    heard = [entry for entry in log if not entry.endswith("run") and "update" not in entry]
    assert heard == [
        *("message_start", "message_end"),  # the prompt
        *("a<call", "b<call", "transform", "a<try", "b<try", "message_start", "b>try", "a>try"),
        *("after", "b>call", "a>call", "message_end"),
    ]
    await assert_well_ended(made)


async def test_each_turn_has_one_request_and_each_try_its_own() -> None:
    provider, other = FauxProvider(), FauxProvider(provider_id="other")
    provider.set_responses([RateLimited("wait"), ProviderUnavailable("down"), calling("say"), "done"])
    other.set_responses([ProviderUnavailable("down"), ProviderUnavailable("down")])
    model = RetryModel(FallbackModel([provider.model("m"), other.model("o")], sticky=False), AT_ONCE)
    onions = Onions()
    made = bench_of(model, provider, tools=[saying("say")], middleware=[onions])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "done")
    assert (onions.faults, onions.closed["call"], onions.closed["run"]) == ([], 2, 1)
    ends = [type(outcome.error).__name__ for outcome in onions.of("try")]
    assert (
        ends == ["RateLimited", "ProviderUnavailable", "ProviderUnavailable", "ProviderUnavailable"] + ["NoneType"] * 2
    )
    assert [outcome.error for outcome in onions.of("call")] == [None, None]
    await assert_well_ended(made)


async def test_the_legs_of_a_race_have_one_each_at_the_same_time() -> None:
    slow, quick = FauxProvider(provider_id="slow"), FauxProvider(provider_id="quick")
    slow.set_responses([FauxResponse("never", stall_before_start=True)])
    quick.set_responses(["first"])
    onions = Onions()
    made = bench_of(RaceModel([slow.model("s"), quick.model("q")]), quick, middleware=[onions])
    assert (await made.agent.prompt("hi")).text == "first"
    assert (onions.faults, onions.closed["try"]) == ([], 2)
    assert sorted(outcome.message.text for outcome in onions.of("try")) == ["", "first"]


# --- once, whatever the ending ---------------------------------------------------------------


@pytest.mark.parametrize("kind", [Onions, Swallowing])
@pytest.mark.parametrize("stall", [{"stall_before_start": True}, {"stall_after_deltas": 2}])
@pytest.mark.parametrize("way", ["abort", "scope"])
async def test_both_close_once_when_the_run_is_ended(way: str, stall: dict[str, Any], kind: type[Onions]) -> None:
    await end_while_it_answers(way, stall, kind())


@on_asyncio
async def test_both_close_once_when_the_task_is_cancelled() -> None:
    for kind in (Onions, Swallowing):
        await end_while_it_answers("native", {"stall_after_deltas": 2}, kind())


def heard_what_came(made: Bench) -> Callable[[], Awaitable[None]]:
    """Waits until the model says nothing more, and all that it has said was read."""

    async def wait() -> None:
        await made.provider.wait_stalled()
        await anyio.wait_all_tasks_blocked()

    return wait


async def end_while_it_answers(way: str, stall: dict[str, Any], onions: Onions) -> None:
    made = bench(FauxResponse("one two three", **stall), "never", middleware=[onions])
    result = await end_call(way, made, heard_what_came(made))
    assert (result.outcome if result is not None else None) == ("aborted" if way == "abort" else None)
    assert onions.faults == []
    assert (onions.closed["run"], onions.closed["call"], onions.closed["try"]) == (1, 1, 1)
    (tried,) = onions.of("try")
    assert (tried.message.stop_reason, tried.error) == ("aborted", None)
    assert tried.said is ("stall_after_deltas" in stall)
    await assert_well_ended(made)


async def test_what_had_come_of_an_answer_is_known_when_the_request_is_cancelled() -> None:
    onions = Onions()
    made = bench(FauxResponse("one two three", stall_after_deltas=2), middleware=[onions])
    await end_call("abort", made, heard_what_came(made))
    (asked,), (tried,) = onions.of("call"), onions.of("try")
    assert (asked.message.stop_reason, asked.said, asked.error) == ("aborted", True, None)
    assert made.agent.state.messages[-1].text == asked.message.text == tried.message.text != ""
    await assert_well_ended(made)


@pytest.mark.virtual_clock
async def test_a_limit_on_the_answer_is_an_outcome_of_the_request_and_it_is_not_asked_for_again() -> None:
    seen: list[ModelOutcome] = []

    async def insist(proceed: Proceed[ModelOutcome]) -> ModelOutcome:
        seen.append(await proceed())
        seen.append(await proceed())
        return seen[-1]

    made = bench(
        FauxResponse("never", stall_before_start=True),
        "asked again",
        limits=RunLimits(first_token_timeout=3),
        middleware=[only("around_model_call", insist)],
    )
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.limit, made.provider.call_count) == ("limit", "first_token_timeout", 1)
    assert [outcome.message.stop_reason for outcome in seen] == ["aborted", "aborted"]


async def test_a_failing_model_is_an_outcome_and_the_run_ends_with_its_error() -> None:
    onions, error = Onions(), RateLimited("slow down")
    made = bench(error, middleware=[onions])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.error) == ("error", error)
    assert [(outcome.error, outcome.said) for outcome in onions.of("call")] == [(error, False)]
    await assert_well_ended(made)


@pytest.mark.parametrize("kind", [Onions, Swallowing])
@pytest.mark.parametrize("hook", ["transform_context", "transform_system_prompt", "after_model_response"])
async def test_a_bug_of_a_hook_further_in_leaves_the_run_through_its_onion(hook: str, kind: type[Onions]) -> None:
    async def fail(value: Any) -> Any:
        raise ZeroDivisionError("a hook's bug")

    onions = kind()
    made = bench("answer", middleware=[onions, only(hook, fail)])
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    assert onions.faults == []
    assert made.events[-1].type == "agent_end"


@pytest.mark.parametrize("kind", [Onions, Swallowing])
async def test_a_bug_of_a_listener_leaves_through_them_while_the_model_answers(kind: type[Onions]) -> None:
    onions = kind()
    made = bench("one two three", middleware=[onions])

    def fail(event: Any) -> None:
        if event.type == "message_update":
            raise LookupError("a listener's bug")

    unsubscribe = made.agent.subscribe(fail)
    with pytest.raises(LookupError):
        await made.agent.prompt("hi")
    unsubscribe()
    assert onions.faults == []
    await assert_well_ended(made)


# --- answering in its place ------------------------------------------------------------------


@pytest.mark.parametrize("seam", ["around_model_call", "around_model_try"])
async def test_not_going_on_answers_in_the_model_s_place_and_nobody_is_asked(seam: str) -> None:
    async def answer(*arguments: Any) -> AssistantMessage:
        return saying_so("from the cache", usage=Usage(output_tokens=2))

    made = bench("never", middleware=[only(seam, answer)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, made.provider.call_count) == ("completed", "from the cache", 0)
    assert result.usage.output_tokens == 2
    assert made.roles == ["user", "assistant"]
    assert made.labels.count("message_start:assistant") == made.labels.count("message_end:assistant") == 1


async def test_an_answer_in_the_model_s_place_may_call_tools_and_runs_no_transform() -> None:
    asked: list[str] = []

    class Hooks(Middleware):
        async def transform_context(self, messages: list[Message], *, ctx: Any, signal: Any) -> list[Message]:
            asked.append("transform")
            return messages

        async def after_model_response(self, response: AssistantMessage, *, ctx: Any, signal: Any) -> None:
            asked.append("after")

    async def answer(proceed: Proceed[ModelOutcome], *, ctx: Any) -> AssistantMessage:
        return calling("say") if ctx.turn == 1 else saying_so("done")

    made = bench(tools=[saying("say")], middleware=[only("around_model_call", answer), Hooks()])
    result = await made.agent.prompt("hi")
    assert (result.text, made.texts, asked) == ("done", ["say"], [])


async def test_a_message_that_is_returned_takes_the_place_of_the_answer_and_costs_what_was_asked() -> None:
    async def censor(proceed: Proceed[ModelOutcome]) -> AssistantMessage:
        await proceed()
        return saying_so("[censored]")

    plain = await bench("a rude word").agent.prompt("hi")
    made = bench("a rude word", middleware=[only("around_model_call", censor)])
    result = await made.agent.prompt("hi")
    assert result.text == made.agent.state.messages[-1].text == "[censored]"
    assert result.usage == plain.usage
    assert result.usage.output_tokens > 0


async def test_an_answer_that_a_hook_replaces_costs_what_was_asked() -> None:
    class Censor(Middleware):
        async def after_model_response(self, response: AssistantMessage, *, ctx: Any, signal: Any) -> TurnAction:
            return TurnAction(response=saying_so("[censored]"))

    plain = await bench("a rude word").agent.prompt("hi")
    result = await bench("a rude word", middleware=[Censor()]).agent.prompt("hi")
    assert (result.text, result.usage) == ("[censored]", plain.usage)


async def test_a_message_in_place_of_a_failure_is_the_answer() -> None:
    async def excuse(proceed: Proceed[ModelOutcome]) -> ModelOutcome | AssistantMessage:
        outcome = await proceed()
        return saying_so("sorry") if outcome.error is not None else outcome

    made = bench(RateLimited("slow down"), middleware=[only("around_model_call", excuse)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, result.error) == ("completed", "sorry", None)
    await assert_well_ended(made)


async def test_a_message_that_says_it_failed_ends_the_run_as_a_failing_model_does() -> None:
    async def refuse(proceed: Proceed[ModelOutcome]) -> AssistantMessage:
        return AssistantMessage(stop_reason="error", error_message="over budget")

    made = bench(middleware=[only("around_model_call", refuse)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, str(result.error)) == ("error", "over budget")
    assert made.roles == ["user"]


async def test_of_a_try_a_message_counts_only_where_nothing_was_said() -> None:
    async def replace(model: BoundModel, proceed: Proceed[ModelOutcome]) -> AssistantMessage:
        await proceed()
        return saying_so("instead")

    assert (await bench("said", middleware=[only("around_model_try", replace)]).agent.prompt("hi")).text == "said"
    failing = bench(RateLimited("no"), middleware=[only("around_model_try", replace)])
    result = await failing.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "instead")


@pytest.mark.parametrize("seam", ["around_model_call", "around_model_try"])
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("returned", ["a text", 7, ModelOutcome(message="text")])  # pyright: ignore[reportArgumentType]
async def test_anything_else_is_a_type_error_and_the_model_s_answer_is_what_is_kept(
    returned: Any, goes_on: bool, seam: str
) -> None:
    async def layer(*given: Any) -> Any:
        if goes_on:
            await given[-1]()
        return returned

    made = bench("said", middleware=[only(seam, layer)])
    with pytest.raises(TypeError, match="around the model returned"):
        await made.agent.prompt("hi")
    assert [message.text for message in made.agent.state.messages] == ["hi", *(["said"] if goes_on else [])]
    assert made.labels[-1] == "agent_end:error"


async def test_none_without_going_on_is_a_type_error() -> None:
    async def nothing(proceed: Proceed[ModelOutcome]) -> None: ...

    with pytest.raises(TypeError, match="returned NoneType"):
        await bench("said", middleware=[only("around_model_call", nothing)]).agent.prompt("hi")


@pytest.mark.parametrize("seam", ["around_model_call", "around_model_try"])
async def test_what_a_layer_raises_after_the_answer_ends_the_run_and_the_whole_answer_stands(seam: str) -> None:
    async def fail(*given: Any) -> None:
        await given[-1]()
        raise ZeroDivisionError("the layer's bug")

    async with MemoryCheckpointer() as store:
        text = "a long answer of several words"
        made = bench(text, "never", middleware=[only(seam, fail)], checkpointer=store, thread_id="t")
        with pytest.raises(ZeroDivisionError):
            await made.agent.prompt("hi")
        answer = made.agent.state.messages[-1]
        assert isinstance(answer, AssistantMessage)
        assert (answer.text, answer.stop_reason, made.provider.call_count) == (text, "stop", 1)
        record = await store.load("t")
        assert record is not None
        assert [message.text for message in record.messages] == ["hi", text]
        assert made.labels[-1] == "agent_end:error"


@pytest.mark.parametrize("seam", ["around_model_call", "around_model_try"])
async def test_what_a_layer_raises_before_ends_the_run_and_asks_no_other_model(seam: str) -> None:
    async def fail(*given: Any) -> None:
        raise ZeroDivisionError("the layer's bug")

    first, second = FauxProvider(), FauxProvider(provider_id="second")
    first.set_responses(["never"])
    second.set_responses(["never"])
    model = RetryModel(FallbackModel([first.model("m"), second.model("m")]), AT_ONCE)
    made = bench_of(model, first, middleware=[only(seam, fail)])
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    assert (first.call_count, second.call_count, made.labels[-1]) == (0, 0, "agent_end:error")


async def test_calls_of_an_answer_are_answered_when_a_layer_failed_after_it() -> None:
    async def fail(proceed: Proceed[ModelOutcome]) -> None:
        await proceed()
        raise ZeroDivisionError("the layer's bug")

    made = bench(calling("say"), tools=[saying("say")], middleware=[only("around_model_call", fail)])
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    assert made.texts == ["The call was cancelled before it began."]


# --- asking again ----------------------------------------------------------------------------


class Compacting(Middleware):
    """Shows the model all of the transcript, and where that is too long, its end."""

    def __init__(self) -> None:
        self.shown: int | None = None
        self.outcomes: list[ModelOutcome] = []

    async def transform_context(self, messages: list[Message], *, ctx: Any, signal: Any) -> list[Message]:
        return messages[-self.shown :] if self.shown is not None else messages

    async def around_model_call(self, proceed: Proceed[ModelOutcome], *, ctx: Any) -> ModelOutcome:
        outcome = await proceed()
        self.outcomes.append(outcome)
        if isinstance(outcome.error, ContextLengthExceeded) and not outcome.said:
            self.shown = 1
            return await proceed()
        return outcome


async def test_a_compaction_shows_less_when_the_context_was_too_long() -> None:
    compacting = Compacting()
    made = bench("first", ContextLengthExceeded("too long"), "second", middleware=[compacting])
    await made.agent.prompt("one")
    result = await made.agent.prompt("two")
    assert (result.outcome, result.text, result.error) == ("completed", "second", None)
    assert [len(call.messages) for call in made.provider.calls] == [1, 3, 1]
    assert made.roles == ["user", "assistant"] * 2
    assert made.labels.count("message_start:assistant") == 2
    compacting.shown = None
    await assert_well_ended(made)


async def test_an_answer_of_which_only_the_head_came_is_asked_for_again_and_what_it_cost_is_counted() -> None:
    too_long = ContextLengthExceeded("too long")
    compacting = Compacting()
    failed = FauxResponse(saying_so("never said"), fail_after_deltas=0, fail_with=too_long)
    made = bench(failed, "second", middleware=[compacting])
    result = await made.agent.prompt("hi")
    (first,), answer = compacting.outcomes, made.agent.state.messages[-1]
    assert (result.text, first.error, first.said) == ("second", too_long, False)
    assert isinstance(answer, AssistantMessage)
    assert first.message.usage is not None
    assert answer.usage is not None
    assert result.usage == first.message.usage + answer.usage != answer.usage
    assert made.labels.count("message_start:assistant") == made.labels.count("message_end:assistant") == 1
    compacting.shown = None
    await assert_well_ended(made)


async def test_asking_again_once_something_was_said_is_misuse_and_the_answer_stands() -> None:
    async def twice(proceed: Proceed[ModelOutcome]) -> ModelOutcome:
        await proceed()
        return await proceed()

    made = bench("said", "never", middleware=[only("around_model_call", twice)])
    with pytest.raises(UsageError, match="once something of its answer was said"):
        await made.agent.prompt("hi")
    assert ([message.text for message in made.agent.state.messages], made.provider.call_count) == (["hi", "said"], 1)


async def test_a_try_may_not_be_made_twice_by_its_layer() -> None:
    async def twice(model: BoundModel, proceed: Proceed[ModelOutcome]) -> ModelOutcome:
        await proceed()
        return await proceed()

    made = bench(RateLimited("no"), "never", middleware=[only("around_model_try", twice)])
    with pytest.raises(UsageError, match="once around a try"):
        await made.agent.prompt("hi")
    assert made.provider.call_count == 1


async def test_a_run_that_is_ended_while_it_is_asked_again_closes_everything() -> None:
    again = FauxResponse("never", stall_before_start=True)
    made = bench("zero", ContextLengthExceeded("too long"), again, middleware=[Onions(), Compacting(), Onions()])
    await made.agent.prompt("before")
    await end_call("abort", made, made.provider.wait_stalled)
    assert made.roles == ["user", "assistant", "user"]


# --- a layer that waits ----------------------------------------------------------------------


class Waiting(Middleware):
    """Waits for ever, before it goes on or after, at one of the seams."""

    def __init__(self, when: str, seam: str) -> None:
        self.when, self.seam = when, seam
        self.waits = anyio.Event()

    async def around_model_call(self, proceed: Proceed[ModelOutcome], *, ctx: Any) -> ModelOutcome:
        return await self._around("call", proceed)

    async def around_model_try(self, model: BoundModel, proceed: Proceed[ModelOutcome], *, ctx: Any) -> ModelOutcome:
        return await self._around("try", proceed)

    async def _around(self, seam: str, proceed: Proceed[ModelOutcome]) -> ModelOutcome:
        if (seam, self.when) == (self.seam, "before"):
            await self._wait()
        outcome = await proceed()
        if (seam, self.when) == (self.seam, "after"):
            await self._wait()
        return outcome

    async def _wait(self) -> None:
        self.waits.set()
        self.seam = "none"
        await anyio.sleep_forever()


@pytest.mark.parametrize("way", ["abort", "scope"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("seam", ["call", "try"])
async def test_a_layer_that_waits_ends_with_the_run_and_an_answer_that_was_whole_stands(
    seam: str, when: str, way: str
) -> None:
    waiting = Waiting(when, seam)
    made = bench("said", middleware=[waiting])
    await end_call(way, made, waiting.waits.wait)
    assert [message.text for message in made.agent.state.messages] == ["hi", *(["said"] if when == "after" else [])]
    await assert_well_ended(made)


class TimeOut(Middleware):
    """Gives the model so many seconds, and says something in its place when they are over."""

    def __init__(self, seconds: float, instead: AssistantMessage | None, *, times: int = 1) -> None:
        self.seconds, self.instead, self.times = seconds, instead, times

    async def around_model_call(
        self, proceed: Proceed[ModelOutcome], *, ctx: Any
    ) -> ModelOutcome | AssistantMessage | None:
        for _ in range(self.times):
            with anyio.move_on_after(self.seconds):
                return await proceed()
        return self.instead


@pytest.mark.virtual_clock
@pytest.mark.parametrize("stall", [{"stall_before_start": True}, {"stall_after_deltas": 1}])
async def test_a_layer_may_give_the_model_its_time_and_answer_in_its_place(stall: dict[str, Any]) -> None:
    made = bench(FauxResponse("one two", **stall), middleware=[Onions(), TimeOut(3, saying_so("too slow"))])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "too slow")
    assert [message.text for message in made.agent.state.messages] == ["hi", "too slow"]
    assert made.labels.count("message_start:assistant") == made.labels.count("message_end:assistant") == 1


@pytest.mark.virtual_clock
async def test_a_layer_may_cut_an_answer_off_and_keep_what_had_come_which_is_an_error() -> None:
    made = bench(FauxResponse("one two", stall_after_deltas=1), middleware=[TimeOut(3, None)])
    result = await made.agent.prompt("hi")
    assert result.outcome == "error"
    assert type(result.error) is IncompleteStream
    assert "cut off by what stood around it" in str(result.error)
    answer = made.agent.state.messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert answer.stop_reason == "aborted"
    assert "one two".startswith(answer.text)


@pytest.mark.virtual_clock
async def test_a_layer_may_ask_again_what_took_too_long_before_anything_was_said() -> None:
    slow = FauxResponse("never", stall_before_start=True)
    made = bench(slow, slow, "at last", middleware=[TimeOut(3, None, times=3)])
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.text, made.provider.call_count) == ("completed", "at last", 3)


@pytest.mark.parametrize("raises", ["before", "after"])
async def test_a_bug_around_one_leg_of_a_race_ends_the_run_and_every_leg_is_closed(raises: str) -> None:
    slow, quick = FauxProvider(provider_id="slow"), FauxProvider(provider_id="quick")
    slow.set_responses([FauxResponse("never", stall_before_start=True)])
    quick.set_responses(["first"])

    async def fail(model: BoundModel, proceed: Proceed[ModelOutcome]) -> None:
        if model.spec.id == "q" and raises == "before":
            raise ZeroDivisionError("the layer's bug")
        await proceed()
        raise ZeroDivisionError("the layer's bug")

    onions = Onions()
    model = RaceModel([slow.model("s"), quick.model("q")])
    made = bench_of(model, quick, middleware=[onions, only("around_model_try", fail)])
    with pytest.raises(ZeroDivisionError):
        await made.agent.prompt("hi")
    assert onions.faults == []
    assert [message.text for message in made.agent.state.messages[1:]] == (["first"] if raises == "after" else [])


# --- examples --------------------------------------------------------------------------------


class Cache(Middleware):
    """Answers what was asked before with what was answered then."""

    def __init__(self) -> None:
        self.known: dict[str, AssistantMessage] = {}

    async def around_model_call(
        self, proceed: Proceed[ModelOutcome], *, ctx: Any
    ) -> ModelOutcome | AssistantMessage | None:
        key = "\n".join(f"{message.role}: {message.text}" for message in ctx.messages)
        if key in self.known:
            return self.known[key].model_copy(update={"usage": None})
        outcome = await proceed()
        if outcome.error is None:
            self.known[key] = outcome.message
        return outcome


async def test_a_cache_answers_the_same_conversation_without_the_model() -> None:
    cache = Cache()
    results: list[RunResult] = []
    for responses in (["the answer"], []):
        made = bench(*responses, middleware=[cache])
        results.append(await made.agent.prompt("the question"))
    assert [result.text for result in results] == ["the answer", "the answer"]
    assert results[0].usage.total_tokens > 0
    assert results[1].usage.total_tokens == 0


class Spans(Middleware):
    """Notes each request and each of its tries, with whom it asked and what it came to."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    async def around_model_call(self, proceed: Proceed[ModelOutcome], *, ctx: Any) -> ModelOutcome:
        self.spans.append(f"turn {ctx.turn}")
        return await proceed()

    async def around_model_try(self, model: BoundModel, proceed: Proceed[ModelOutcome], *, ctx: Any) -> ModelOutcome:
        outcome = await proceed()
        self.spans.append(
            f"  {model.spec.id}: {type(outcome.error).__name__ if outcome.error else outcome.message.text}"
        )
        return outcome


async def test_a_tracer_sees_the_turns_and_their_tries() -> None:
    provider = FauxProvider()
    provider.set_responses([RateLimited("no"), calling("say", text="let me"), "done"])
    spans = Spans()
    model = RetryModel(provider.model("m"), AT_ONCE)
    made = bench_of(model, provider, tools=[saying("say")], middleware=[spans], settings=ModelSettings(seed=1))
    await made.agent.prompt("hi")
    assert spans.spans == ["turn 1", "  m: RateLimited", "  m: let me", "turn 2", "  m: done"]
    assert [call.options.settings.seed for call in provider.calls] == [1, 1, 1]
