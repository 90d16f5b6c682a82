"""Falling back: which errors move on, whom they move to, and what is said of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    ContentFiltered,
    ContextLengthExceeded,
    FauxProvider,
    FauxResponse,
    IncompleteStream,
    MalformedResponse,
    ModelNotFound,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderOverloaded,
    ProviderPermissionDenied,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RunLimits,
    RunResult,
    UsageError,
    faux_tool_call,
)
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.composed.fallback import FALLBACK_ERRORS, FailoverNotice, FallbackModel
from cubepi_anyio.providers.composed.retry import RetryPolicy
from cubepi_anyio.providers.openai import OpenAIProvider
from tests.recordings import Replay, replay_server
from tests.support.agents import running_tasks, saying

from .asking import ASK, ask, faux, notes_of

pytestmark = pytest.mark.anyio

SLOW = RateLimited("slow down")


def chain(*responses: Any, **options: Any) -> tuple[list[FauxProvider], FallbackModel]:
    """As many models as there are lists of responses, called ``a``, ``b``, …, in a chain."""
    made = [faux(*queue, id=name) for queue, name in zip(responses, "abcdef", strict=False)]
    return [provider for provider, _ in made], FallbackModel([model for _, model in made], **options)


def counts(providers: list[FauxProvider]) -> list[int]:
    return [provider.call_count for provider in providers]


async def test_the_first_model_is_asked_and_the_others_are_not() -> None:
    providers, model = chain(["From a."], ["From b."])
    assert (await ask(model)).message.text == "From a."
    assert counts(providers) == [1, 0]


async def test_the_models_are_asked_in_order_until_one_answers() -> None:
    providers, model = chain([SLOW], [ProviderUnavailable("down")], ["From c."], ["From d."])
    heard = await ask(model)
    assert (heard.message.text, heard.message.provider_id, heard.error) == ("From c.", "c", None)
    assert counts(providers) == [1, 1, 1, 0]
    assert heard.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]


@pytest.mark.parametrize(
    ("error", "moves_on"),
    [
        (RateLimited("x"), True),
        (ProviderUnavailable("x"), True),
        (ProviderOverloaded("x"), True),
        (ProviderTimeout("x"), True),
        (MalformedResponse("x"), True),
        (IncompleteStream("x"), True),
        (ContextLengthExceeded("x"), True),
        (ModelNotFound("x"), True),
        (ProviderAuthFailed("x"), False),
        (ProviderPermissionDenied("x"), False),
        (ContentFiltered("x"), False),
        (ProviderBadRequest("x"), False),
        (ZeroDivisionError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_which_errors_move_on(error: Exception, moves_on: bool) -> None:
    providers, model = chain([error], ["From b."])
    heard = await ask(model)
    assert counts(providers) == [1, int(moves_on)]
    assert heard.error is (None if moves_on else error)


async def test_which_errors_move_on_is_the_callers_choice() -> None:
    providers, model = chain([ProviderAuthFailed("x")], ["From b."], errors=(*FALLBACK_ERRORS, ProviderAuthFailed))
    assert (await ask(model)).message.text == "From b."
    providers, model = chain([SLOW], ["Not asked for."], errors=())
    assert (await ask(model)).error is SLOW
    assert counts(providers) == [1, 0]


async def test_an_error_that_does_not_move_on_says_which_models_had_failed_before() -> None:
    error = ContentFiltered("not that")
    providers, model = chain([SLOW], [error], ["Not asked for."])
    heard = await ask(model)
    assert heard.error is error
    assert notes_of(error) == ["before, a/m failed: RateLimited: slow down"]
    assert counts(providers) == [1, 1, 0]


async def test_if_all_have_failed_the_error_lists_them_in_order() -> None:
    errors = [SLOW, ProviderUnavailable("down"), IncompleteStream("cut")]
    _, model = chain(*[[error] for error in errors])
    heard = await ask(model)
    assert isinstance(heard.error, ProviderUnavailable)
    assert heard.error.errors == tuple(errors)
    assert heard.error.__cause__ is errors[-1]
    assert str(heard.error) == (
        "none of 3 models answered: a/m: RateLimited: slow down; b/m: ProviderUnavailable: down; "
        "c/m: IncompleteStream: cut"
    )
    assert (heard.types, heard.message.stop_reason) == (["error"], "error")


@pytest.mark.parametrize(("asked", "known"), [([20, 5], 5), ([20, None], None)])
async def test_how_long_to_wait_is_known_only_if_every_model_says_it(asked: list[Any], known: float | None) -> None:
    _, model = chain(*[[RateLimited("x", retry_after_seconds=seconds)] for seconds in asked])
    heard = await ask(model)
    assert isinstance(heard.error, ProviderUnavailable)
    assert heard.error.retry_after_seconds == known


async def test_a_chain_of_one_has_its_models_own_error() -> None:
    _, model = chain([SLOW])
    assert (await ask(model)).error is SLOW


async def test_a_chain_needs_a_model() -> None:
    with pytest.raises(UsageError, match="at least one model"):
        FallbackModel([])


async def test_a_model_that_is_retried_is_retried_before_the_next_is_asked() -> None:
    first, model = faux(SLOW, RateLimited("much later", retry_after_seconds=3600), "Not asked for.", id="a")
    second, spare = faux("From b.", id="b")
    asked = FallbackModel([RetryPolicy(initial_delay_seconds=0).wrap(model), spare])
    assert (await ask(asked)).message.text == "From b."
    assert counts([first, second]) == [2, 1]


# --- stickiness ------------------------------------------------------------------------------


async def test_the_model_that_answered_is_asked_first_until_it_fails() -> None:
    providers, model = chain([SLOW, "From a."], ["From b.", "From b again.", SLOW], [SLOW])
    texts = [(await ask(model)).message.text for _ in range(3)]
    assert texts == ["From b.", "From b again.", "From a."]
    assert counts(providers) == [2, 3, 1]
    assert model.current.spec.provider == "a"


async def test_a_run_stays_with_the_model_that_answered() -> None:
    providers, model = chain([SLOW], [faux_tool_call("look", {}), "I have looked."])
    result = await Agent(model=model, tools=[saying("look")]).prompt("Go.")
    assert (result.text, counts(providers)) == ("I have looked.", [1, 2])


async def test_the_face_is_that_of_the_model_that_is_asked_first() -> None:
    providers, model = chain([SLOW], ["From b."])
    assert (model.spec.provider, model.provider) == ("a", providers[0])
    await ask(model)
    assert (model.spec.provider, model.provider) == ("b", providers[1])
    model.reset()
    assert (model.spec.provider, model.provider) == ("a", providers[0])


async def test_a_chain_that_is_not_sticky_begins_with_the_first_each_time() -> None:
    providers, model = chain([SLOW, "From a."], ["From b."], sticky=False)
    assert [(await ask(model)).message.text for _ in range(2)] == ["From b.", "From a."]
    assert counts(providers) == [2, 1]


# --- telling of it ---------------------------------------------------------------------------


async def test_each_change_of_model_is_told_before_the_next_is_asked() -> None:
    heard: list[tuple[str, str, Exception, list[int]]] = []

    def on_failover(notice: FailoverNotice) -> None:
        names = notice.failed.spec.provider, notice.next.spec.provider
        heard.append((*names, notice.error, counts(providers)))

    down = ProviderUnavailable("down")
    providers, model = chain([SLOW], [down], ["From c."], on_failover=on_failover)
    await ask(model)
    assert heard == [("a", "b", SLOW, [1, 0, 0]), ("b", "c", down, [1, 1, 0])]


async def test_a_listener_that_fails_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def on_failover(notice: FailoverNotice) -> None:
        raise ZeroDivisionError("my own mistake")

    _, model = chain([SLOW], ["From b."], on_failover=on_failover)
    with caplog.at_level(logging.ERROR):
        assert (await ask(model)).message.text == "From b."
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


# --- time, and being cut off -----------------------------------------------------------------


@pytest.mark.virtual_clock
async def test_a_model_that_says_nothing_in_time_is_passed_over() -> None:
    silent = FauxResponse("Never.", stall_after_deltas=0)
    providers, model = chain([silent], [silent], ["From c."], first_token_timeout_seconds=3)
    begun = anyio.current_time()
    async with await model.stream(ASK) as stream:
        text = (await stream.result()).text
    assert (text, anyio.current_time() - begun) == ("From c.", pytest.approx(6))
    assert [provider.stalled_count for provider in providers] == [0, 0, 0]


@pytest.mark.virtual_clock
async def test_the_last_model_has_no_more_time_than_the_others() -> None:
    silent = FauxResponse("Never.", stall_before_start=True)
    _, model = chain([silent], [silent], first_token_timeout_seconds=3)
    async with await model.stream(ASK) as stream:
        await stream.result()
    assert isinstance(stream.error, ProviderUnavailable)
    assert [type(error) for error in stream.error.errors] == [ProviderTimeout] * 2
    assert "a/m: ProviderTimeout: no token within first_token_timeout_seconds=3" in str(stream.error)


@pytest.mark.virtual_clock
async def test_an_answer_that_has_begun_may_take_its_time() -> None:
    made = [faux("x" * 50, id="a", token_size_min=1, token_size_max=1, tokens_per_second=1), faux("From b.", id="b")]
    model = FallbackModel([model for _, model in made], first_token_timeout_seconds=3)
    assert (await model.generate(ASK)).text == "x" * 50


@pytest.mark.virtual_clock
async def test_the_limit_of_a_run_goes_before_the_next_model() -> None:
    silent = FauxResponse("Never.", stall_before_start=True)
    providers, model = chain([silent], ["Not asked for."], first_token_timeout_seconds=30)
    result = await Agent(model=model, limits=RunLimits(first_token_timeout=3)).prompt("Go.")
    assert (result.outcome, result.limit, counts(providers)) == ("limit", "first_token_timeout", [1, 0])


async def test_an_abort_before_the_first_token_asks_nobody_else() -> None:
    before = running_tasks()
    providers, model = chain([FauxResponse("Never.", stall_before_start=True)], ["Not asked for."])
    agent = Agent(model=model)
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await agent.prompt("Go."))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await providers[0].wait_stalled()
            agent.abort()
    assert (results[0].outcome, results[0].error, counts(providers)) == ("aborted", None, [1, 0])
    assert (providers[0].stalled_count, running_tasks()) == (0, before)


async def test_a_cancelled_second_model_leaves_nothing() -> None:
    before = running_tasks()
    providers, model = chain([SLOW], [FauxResponse("Half an answer", stall_after_deltas=1)], ["Not asked for."])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.generate, ASK)
            await providers[1].wait_stalled()
            tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught
    assert (counts(providers), providers[1].stalled_count, running_tasks()) == ([1, 1, 0], 0, before)


# --- over HTTP -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


async def test_another_vendor_answers_when_one_is_overloaded(replay: Replay) -> None:
    down = replay.url("anth-anthropic-test-structured-output-resume-stream-strict-anthropic-cl-1", fail="1:529")
    well = replay.url("chat-copilot-structured-output-smoke")
    begun = len(replay.log)
    async with (
        AnthropicProvider(api_key="k", base_url=f"{down};s={begun}") as first,
        OpenAIProvider(api_key="k", base_url=well) as second,
    ):
        model = FallbackModel([first.model("claude"), second.model("gpt")])
        result = await Agent(model=model).prompt("Plan a meetup.")
    assert result.outcome == "completed"
    assert result.text.startswith('{"category":"Technology Meetups"')
    assert [request["failed"] for request in replay.log[begun:]] == [True, False]
    answer = result.messages[-1]
    assert answer.role == "assistant"
    assert (answer.provider_id, answer.api) == ("openai", "openai-chat")
