"""A hook around each try that asks a provider."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    Agent,
    AssistantMessage,
    FauxResponse,
    MessageStream,
    ProviderUnavailable,
    RateLimited,
    RunResult,
    StreamOptions,
    TextContent,
    Usage,
    UsageError,
    faux_assistant_message,
    faux_text,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.errors import IncompleteStream
from cubepi_anyio.providers.base import BaseProvider, BoundModel, StreamingModel
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryModel, RetryPolicy
from cubepi_anyio.providers.model_call import AroundTry, ModelOutcome, TryBody
from cubepi_anyio.testing import Scenario, endings_here, sweep
from cubepi_anyio.types import ImageContent, OpaqueContent, ThinkingContent, ToolCall

from .asking import ASK, Heard, ask, faux, hear

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(initial_delay_seconds=0)
CALLING = faux_assistant_message(
    [faux_thinking("Let me see.", "signed"), "I add.", faux_tool_call("add", {"a": 1, "b": [2]}, id="c1")]
)


@dataclass
class Watch:
    """A hook that notes how each try opened and closed."""

    opened: list[str] = field(default_factory=list[str])
    closed: list[tuple[str, ModelOutcome | None]] = field(default_factory=list[tuple[str, ModelOutcome | None]])

    async def __call__(self, model: StreamingModel, body: TryBody) -> AssistantMessage | None:
        name = model.spec.provider
        await checkpoint()
        self.opened.append(name)
        try:
            await body()
            await checkpoint()
        finally:
            self.closed.append((name, body.outcome))
        return None

    @property
    def endings(self) -> list[tuple[str, str, bool]]:
        """Of each try that closed: whose it was, what it came to, and whether it had said anything."""
        return [(name, _ending(outcome), outcome is not None and outcome.said) for name, outcome in self.closed]


def _ending(outcome: ModelOutcome | None) -> str:
    if outcome is None:
        return "never ended"
    if outcome.error is not None:
        return type(outcome.error).__name__
    return "cancelled" if outcome.message.stop_reason == "aborted" else outcome.message.text


def around(hook: AroundTry) -> StreamOptions:
    return StreamOptions(around_try=hook)


def facts(heard: Heard) -> list[Any]:
    """All that a consumer can see of an answer."""
    events = [
        (e.type, e.content_index, e.delta, e.stop_reason, e.usage, e.error_message, e.partial) for e in heard.events
    ]
    return [*events, heard.message, type(heard.error), str(heard.error)]


ANSWERS: dict[str, Any] = {
    "text": "Hello, this is an answer of some length.",
    "thinking and calls": CALLING,
    "empty": "",
    "failed in the middle": FauxResponse(CALLING, fail_after_deltas=3, fail_with=ProviderUnavailable("gone")),
    "failed after its head": FauxResponse("Lost.", fail_after_deltas=0, fail_with=ProviderUnavailable("gone")),
    "refused": RateLimited("slow down"),
    "whole messages and no result": FauxResponse("Written by hand.", forget_result=True),
    "cut": FauxResponse("Never whole.", end_after_deltas=2),
    "an answer that is an error": faux_assistant_message("Half an", error_message="overheated"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_hook_that_only_watches_changes_nothing(answer: Any) -> None:
    plain, watch = await ask(faux(answer)[1]), Watch()
    provider, model = faux(answer)
    seen: list[str] = []
    provider.subscribe_chunk(lambda event, _: seen.append(event.partial.text if event.partial else "?"))
    heard = await ask(model, options=around(watch))
    assert facts(heard) == facts(plain)
    assert (watch.opened, len(watch.closed)) == (["faux"], 1)
    outcome = watch.closed[0][1]
    assert outcome is not None
    assert (outcome.error, outcome.message) == (heard.error, heard.message)
    assert provider.calls[0].options.around_try is None


async def test_the_end_of_an_answer_waits_for_the_hook_and_the_rest_does_not() -> None:
    release, body_ended = anyio.Event(), anyio.Event()

    async def hook(model: StreamingModel, body: TryBody) -> None:
        await body()
        body_ended.set()
        await release.wait()

    types: list[str] = []
    async with await faux("Hello.")[1].stream(ASK, options=around(hook)) as stream:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                async for event in stream:
                    types.append(event.type)  # noqa: PERF401 - seen as they come

            tasks.start_soon(read)
            await body_ended.wait()
            await anyio.wait_all_tasks_blocked()
            assert types == ["start", "text_start", "text_delta", "text_delta", "text_end"]
            release.set()
    assert types[-1] == "done"


async def test_an_outcome_says_whether_anything_was_said() -> None:
    outcomes: list[ModelOutcome] = []

    async def hook(model: StreamingModel, body: TryBody) -> None:
        outcome = await body()
        assert body.outcome is outcome
        outcomes.append(outcome)

    for name in ("text", "refused", "failed after its head", "failed in the middle"):
        await ask(faux(ANSWERS[name])[1], options=around(hook))
    assert [outcome.said for outcome in outcomes] == [True, False, False, True]
    refused = outcomes[1]
    assert isinstance(refused.error, RateLimited)
    assert (refused.message.stop_reason, refused.message.error_type) == ("error", "RateLimited")
    assert outcomes[2].message.response_id == "faux_1"


# --- answering in its place ------------------------------------------------------------------

MESSAGES = [
    AssistantMessage(content=[TextContent(text="From the cache.")], usage=Usage(output_tokens=3), model_id="cached"),
    AssistantMessage(),
    AssistantMessage(
        content=[
            ThinkingContent(thinking="Hm.", signature="signed"),
            ThinkingContent(redacted="sealed"),
            TextContent(text="Two.", vendor={"citations": [1]}),
            ImageContent(url="https://a.example/b.png"),
            OpaqueContent(kind="search", data={"q": 1}),
            ToolCall(id="c1", name="add", arguments={"a": [1]}, vendor={"x": 1}),
            ToolCall(id="c2", name="look"),
        ],
        stop_reason="tool_use",
        response_id="r1",
        provider_id="p",
        api="faux",
    ),
    AssistantMessage(content=[TextContent(text="Too lo")], stop_reason="length"),
]


@pytest.mark.parametrize("message", MESSAGES)
async def test_a_message_in_its_place_is_the_answer_and_arrives_as_a_stream(message: AssistantMessage) -> None:
    async def hook(model: StreamingModel, body: TryBody) -> AssistantMessage:
        return message

    provider, model = faux("Not asked for.")
    heard = await ask(model, options=around(hook))
    assert heard.message == message
    assert provider.call_count == 0
    assert (heard.types[0], heard.types[-1]) == ("start", "done")
    last = heard.events[-2].partial
    assert last is not None
    assert last.content == message.content
    assert sum(kind.endswith("_start") for kind in heard.types) == len(message.content)
    assert sum(kind.endswith("_end") for kind in heard.types) == len(message.content)


async def test_a_message_that_is_an_error_ends_as_one() -> None:
    async def hook(model: StreamingModel, body: TryBody) -> AssistantMessage:
        return AssistantMessage(content=[TextContent(text="Half")], stop_reason="error", error_message="no more")

    heard = await ask(faux()[1], options=around(hook))
    assert heard.types[-1] == "error"
    assert (heard.message.stop_reason, heard.message.error_message, heard.message.text) == ("error", "no more", "Half")


@pytest.mark.parametrize(
    ("answer", "text"),
    [(RateLimited("slow down"), "Instead."), (ANSWERS["failed after its head"], "Instead."), ("Said.", "Said.")],
    ids=["refused", "failed after its head", "said"],
)
async def test_what_was_said_stands_and_what_was_not_can_be_replaced(answer: Any, text: str) -> None:
    async def hook(model: StreamingModel, body: TryBody) -> AssistantMessage:
        await body()
        return AssistantMessage(content=[TextContent(text="Instead.")])

    heard = await ask(faux(answer)[1], options=around(hook))
    assert (heard.message.text, heard.error) == (text, None)
    assert heard.types.count("start") == 1


# --- misuse ----------------------------------------------------------------------------------


async def test_a_hook_that_raises_ends_the_try_as_itself() -> None:
    bug = ZeroDivisionError("a bug")

    async def before(model: StreamingModel, body: TryBody) -> None:
        raise bug

    async def after(model: StreamingModel, body: TryBody) -> None:
        await body()
        raise bug

    for hook, text in ((before, ""), (after, "Said.")):
        heard = await ask(faux("Said.")[1], options=around(hook))
        assert heard.error is bug
        assert (heard.message.text, heard.types[-1]) == (text, "error")


async def test_a_hook_that_does_nothing_or_too_much_or_returns_something_else_is_misuse() -> None:
    async def nothing(model: StreamingModel, body: TryBody) -> None: ...

    async def twice(model: StreamingModel, body: TryBody) -> None:
        await body()
        await body()

    async def other(model: StreamingModel, body: TryBody) -> Any:
        return "a text"

    wrong: list[tuple[AroundTry, type[Exception], str]] = [
        (nothing, UsageError, "await body()"),
        (twice, UsageError, "asks once"),
        (other, TypeError, "not str"),
    ]
    for hook, kind, text in wrong:
        heard = await ask(faux("Once.", "Twice.")[1], options=around(hook))
        assert type(heard.error) is kind
        assert text in str(heard.error)


async def test_a_hook_that_cuts_its_try_off_has_cut_the_answer() -> None:
    outcomes: list[ModelOutcome | None] = []

    async def hook(model: StreamingModel, body: TryBody) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cut() -> None:
                    await provider.wait_stalled()
                    scope.cancel()

                tasks.start_soon(cut)
                await body()
        outcomes.append(body.outcome)

    provider, model = faux(FauxResponse("Hello, there.", stall_after_deltas=2))
    heard = await ask(model, options=around(hook))
    assert type(heard.error) is IncompleteStream
    assert "cut off by what stood around it" in str(heard.error)
    assert outcomes[0] is not None
    assert (outcomes[0].said, outcomes[0].error, outcomes[0].message.stop_reason) == (True, None, "aborted")
    assert heard.message.text
    assert "Hello, there.".startswith(heard.message.text)


# --- models that ask others ------------------------------------------------------------------


def nested(first: BoundModel, second: BoundModel, third: BoundModel) -> StreamingModel:
    return RetryModel(FallbackModel([RaceModel([first, second]), third], sticky=False), AT_ONCE)


async def test_each_try_opens_and_closes_the_hook_once() -> None:
    lost = FauxResponse("Lost.", fail_after_deltas=0, fail_with=ProviderUnavailable("gone"))
    first = faux(RateLimited("slow down"), FauxResponse("Never.", stall_before_start=True), id="first")
    second = faux(ProviderUnavailable("down"), "Here.", id="second")
    third = faux(lost, id="third")
    watch = Watch()
    heard = await ask(nested(first[1], second[1], third[1]), options=around(watch))
    assert (heard.message.text, heard.error) == ("Here.", None)
    assert heard.types.count("start") == 1
    assert sorted(watch.opened) == ["first", "first", "second", "second", "third"]
    assert sorted(watch.endings) == [
        ("first", "RateLimited", False),
        ("first", "cancelled", False),
        ("second", "Here.", True),
        ("second", "ProviderUnavailable", False),
        ("third", "ProviderUnavailable", False),
    ]


async def test_a_failure_before_the_first_token_is_a_failure_with_the_same_error() -> None:
    errors = [RateLimited("slow down"), ProviderUnavailable("down")]
    for error in errors:
        plain = await ask(RetryModel(faux(error, error, error)[1], AT_ONCE))
        heard = await ask(RetryModel(faux(error, error, error)[1], AT_ONCE), options=around(Watch()))
        assert heard.error is error
        assert facts(heard) == facts(plain)


async def test_an_error_of_the_call_itself_is_an_outcome() -> None:
    error, watch = ProviderUnavailable("no connection"), Watch()

    class Raising(BaseProvider):
        async def stream(self, *_: Any, **__: Any) -> MessageStream:
            raise error

    heard = await ask(FallbackModel([Raising().model("m"), faux("Here.")[1]]), options=around(watch))
    assert heard.message.text == "Here."
    assert [ending[1] for ending in watch.endings] == ["ProviderUnavailable", "Here."]


@pytest.mark.parametrize("stall", ["before", "within"])
async def test_a_cancelled_call_closes_every_try_that_opened(stall: str) -> None:
    where: dict[str, Any] = {"stall_before_start": True} if stall == "before" else {"stall_after_deltas": 1}
    answer = FauxResponse("Hello.", **where)
    first, second, third = faux(answer, id="first"), faux(RateLimited("slow down"), id="second"), faux(id="third")
    watch = Watch()
    stream = await nested(first[1], second[1], third[1]).stream(ASK, options=around(watch))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear, stream)
        await first[0].wait_stalled()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert sorted(watch.opened) == ["first", "second"]
    assert sorted(watch.endings) == [("first", "cancelled", stall == "within"), ("second", "RateLimited", False)]


# --- the sweep -------------------------------------------------------------------------------


class Hooked(BaseProvider):
    """Asks a model with a hook around each try, as the agent does for its middleware."""

    def __init__(self, inner: StreamingModel, watch: Watch) -> None:
        super().__init__(provider_id="hooked")
        self._inner, self._watch = inner, watch

    async def stream(self, model: Any, messages: Any, **given: Any) -> MessageStream:
        given["options"] = StreamOptions(signal=given["options"].signal, around_try=self._watch)
        return await self._inner.stream(messages, **given)


def scenario() -> Scenario:
    """A turn with a race that is lost once, a retry, and an answer."""
    look = faux_assistant_message([faux_text("I look."), faux_tool_call("none", {}, id="c1")])
    first, one = faux(RateLimited("slow down"), FauxResponse("Never.", stall_before_start=True), id="first")
    second, two = faux(ProviderUnavailable("down"), look, "Seen.", id="second")
    watch = Watch()
    asked = Hooked(RetryModel(RaceModel([one, two]), AT_ONCE), watch)

    async def again(agent: Agent) -> RunResult:
        for provider in (first, second):
            provider.set_responses(["Yes."] * 16)
        return await agent.prompt("Are you still there?")

    def leftovers() -> list[str]:
        open_tries = len(watch.opened) - len(watch.closed)
        unknown = [f"a try of {name} has no outcome" for name, outcome in watch.closed if outcome is None]
        return [*([f"{open_tries} tries are open"] if open_tries else []), *unknown]

    def requests() -> list[Any]:
        return [call.messages for provider in (first, second) for call in provider.calls]

    return Scenario(agent=Agent(model=asked.model("m")), again=again, requests=requests, leftovers=leftovers)


@pytest.mark.deadline(120)
async def test_a_run_may_be_ended_at_any_step_of_a_try_and_each_closes_its_hook() -> None:
    stride = 1 if os.environ.get("CUBEPI_ANYIO_THOROUGH_SWEEPS") else 5
    make: Callable[[], Scenario] = scenario
    for number, ending in enumerate(endings_here()):
        report = await sweep(make, ending=ending, start=1 + number % stride, stride=stride)
        report.raise_for_faults()
        assert report.endings > 3
