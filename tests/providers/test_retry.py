"""Asking again: when, after how long, and what is left when it is cut off."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepi_anyio import (
    Agent,
    BaseProvider,
    ContentFiltered,
    ContextLengthExceeded,
    FauxResponse,
    IncompleteStream,
    MalformedResponse,
    MessageDraft,
    MessageStream,
    ModelNotFound,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderPermissionDenied,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RunResult,
    TextContent,
)
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.composed.retry import RETRYABLE_ERRORS, RetryModel, RetryNotice, RetryPolicy
from tests.recordings import Replay, replay_server
from tests.support.agents import running_tasks
from tests.support.backends import on_asyncio

from .asking import ASK, ask, faux, notes_of

AT_ONCE = RetryPolicy(initial_delay_seconds=0)
STEADY = RetryPolicy(
    max_attempts=6, initial_delay_seconds=1, max_delay_seconds=5, jitter=0, total_deadline_seconds=None
)
SLOW = RateLimited("slow down")


# --- the policy ------------------------------------------------------------------------------


def test_waits_grow_by_the_multiplier_up_to_their_cap() -> None:
    assert [STEADY.wait_seconds(attempt, SLOW) for attempt in range(1, 7)] == [1, 2, 4, 5, 5, None]


def test_many_attempts_do_not_overflow() -> None:
    policy = RetryPolicy(max_attempts=10**6, jitter=0)
    assert policy.wait_seconds(10**5, SLOW) == 30


@given(st.integers(1, 50), st.floats(0, 1), st.integers())
def test_jitter_shortens_a_wait_by_no_more_than_its_part(attempt: int, jitter: float, seed: int) -> None:
    exact = RetryPolicy(max_attempts=100, jitter=0).wait_seconds(attempt, SLOW)
    wait = RetryPolicy(max_attempts=100, jitter=jitter, random=Random(seed)).wait_seconds(attempt, SLOW)
    assert exact is not None
    assert wait is not None
    assert exact * (1 - jitter) <= wait <= exact


def test_jitter_from_one_seed_is_the_same_and_from_two_is_not() -> None:
    waits = [RetryPolicy(random=Random(seed)).wait_seconds(1, SLOW) for seed in (1, 1, 2)]
    assert waits[0] == waits[1] != waits[2]


@pytest.mark.parametrize(
    ("asked", "wait"), [(0.25, 0.25), (0, 0), (-3, 0), (60, 60), (60.1, None), (3600, None), (float("inf"), None)]
)
def test_what_the_vendor_asks_for_goes_before_the_backoff_unless_it_is_absurd(asked: float, wait: float | None) -> None:
    assert RetryPolicy().wait_seconds(1, RateLimited("slow down", retry_after_seconds=asked)) == wait


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RateLimited("x"), True),
        (ProviderUnavailable("x"), True),
        (ProviderOverloaded("x"), True),
        (ProviderTimeout("x"), True),
        (IncompleteStream("x"), True),
        (MalformedResponse("x"), False),
        (ProviderAuthFailed("x"), False),
        (ProviderPermissionDenied("x"), False),
        (ProviderBadRequest("x"), False),
        (ModelNotFound("x"), False),
        (ContextLengthExceeded("x"), False),
        (ContentFiltered("x"), False),
        (ProviderError("x"), False),
        (TimeoutError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_may_pass_by_itself_is_asked_again(error: Exception, again: bool) -> None:
    assert (RetryPolicy().wait_seconds(1, error) is not None) is again


def test_which_errors_are_retried_is_the_callers_choice() -> None:
    policy = RetryPolicy(retry_on=(*RETRYABLE_ERRORS, MalformedResponse))
    assert policy.wait_seconds(1, MalformedResponse("x")) is not None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_attempts": 0}, "max_attempts is at least 1, not 0"),
        ({"jitter": 1.5}, "jitter is a part of the wait, from 0 to 1, not 1.5"),
        ({"multiplier": 0.5}, "multiplier is at least 1, not 0.5"),
        ({"max_delay_seconds": -1}, "max_delay_seconds is not negative, and not -1"),
        ({"initial_delay_seconds": float("nan")}, "initial_delay_seconds is not negative, and not nan"),
        ({"total_deadline_seconds": -1}, "total_deadline_seconds is not negative, and not -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RetryPolicy(**wrong)


# --- asking again ----------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_model_that_fails_is_asked_again_until_it_answers() -> None:
    provider, model = faux(SLOW, ProviderUnavailable("down"), "Here.")
    heard = await ask(AT_ONCE.wrap(model))
    assert (provider.call_count, heard.message.text, heard.message.stop_reason, heard.error) == (
        3,
        "Here.",
        "stop",
        None,
    )
    assert heard.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]
    assert [call.messages for call in provider.calls] == [ASK] * 3


@pytest.mark.anyio
async def test_the_head_of_an_answer_is_no_answer() -> None:
    provider, model = faux(FauxResponse("Lost.", end_after_deltas=0), "Here.", token_size_min=9, token_size_max=9)
    heard = await ask(AT_ONCE.wrap(model))
    assert (provider.call_count, heard.message.text) == (2, "Here.")
    assert heard.types == ["start", "text_start", "text_delta", "text_end", "done"]


class CutAfterTheFirstBlockBegan(BaseProvider):
    """Says at its first call that a text begins, and nothing more."""

    def __init__(self) -> None:
        super().__init__(provider_id="cutting")
        self.asked = 0

    async def stream(self, *_: Any, **__: Any) -> MessageStream:
        self.asked += 1

        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream)
            draft.writer.open(TextContent())
            if self.asked > 1:
                draft.writer.append(0, "Here.")
                await draft.done()

        return MessageStream(produce)


@pytest.mark.anyio
async def test_the_beginning_of_a_block_is_no_answer() -> None:
    provider = CutAfterTheFirstBlockBegan()
    heard = await ask(AT_ONCE.wrap(provider.model("m")))
    assert (provider.asked, heard.message.text) == (2, "Here.")
    assert heard.types == ["start", "text_start", "text_delta", "text_end", "done"]


@pytest.mark.anyio
async def test_the_last_error_is_the_models_own_and_lists_the_attempts_before() -> None:
    errors = [SLOW, ProviderUnavailable("down"), ProviderOverloaded("too much to do")]
    provider, model = faux(*errors, "Not asked for.")
    heard = await ask(AT_ONCE.wrap(model))
    assert provider.call_count == 3
    assert heard.error is errors[-1]
    assert heard.types == ["error"]
    assert notes_of(heard.error) == [
        "attempt 1 of 3: RateLimited: slow down",
        "attempt 2 of 3: ProviderUnavailable: down",
    ]


@pytest.mark.anyio
async def test_an_error_that_is_given_twice_lists_its_attempts_once() -> None:
    error = ProviderUnavailable("down")
    model = AT_ONCE.wrap(faux(*[error] * 6)[1])
    for _ in range(2):
        assert (await ask(model)).error is error
    assert notes_of(error) == [f"attempt {n} of 3: ProviderUnavailable: down" for n in (1, 2)]


@pytest.mark.anyio
async def test_the_cause_of_the_last_error_is_kept() -> None:
    error = ProviderUnavailable("down")
    error.__cause__ = cause = ConnectionResetError("reset")
    heard = await ask(RetryPolicy(max_attempts=2, initial_delay_seconds=0).wrap(faux(SLOW, error)[1]))
    assert heard.error is error
    assert error.__cause__ is cause


@pytest.mark.anyio
async def test_an_error_that_will_not_pass_is_not_retried() -> None:
    provider, model = faux(ProviderAuthFailed("wrong key"), "Not asked for.")
    heard = await ask(AT_ONCE.wrap(model))
    assert provider.call_count == 1
    assert isinstance(heard.error, ProviderAuthFailed)
    assert not notes_of(heard.error)


@pytest.mark.anyio
async def test_an_agent_does_not_notice_a_retry() -> None:
    provider, model = faux(SLOW, "Here.")
    result = await Agent(model=AT_ONCE.wrap(model)).prompt("Go.")
    assert (result.outcome, result.text, len(result.messages), provider.call_count) == ("completed", "Here.", 2, 2)


@pytest.mark.anyio
async def test_each_retry_is_told_before_its_wait() -> None:
    provider, model = faux(SLOW, RateLimited("later", retry_after_seconds=0), "Here.")
    heard: list[tuple[int, int, str, float]] = []

    def on_retry(notice: RetryNotice) -> None:
        assert notice.model is model
        heard.append((provider.call_count, notice.attempt, str(notice.error), notice.wait_seconds))

    await ask(AT_ONCE.wrap(model, on_retry=on_retry))
    assert heard == [(1, 1, "slow down", 0), (2, 2, "later (retry after 0 s)", 0)]


@pytest.mark.anyio
async def test_an_async_listener_is_waited_for() -> None:
    provider, model = faux(SLOW, "Here.")
    heard: list[int] = []

    async def on_retry(notice: RetryNotice) -> None:
        await anyio.lowlevel.checkpoint()
        heard.append(provider.call_count)

    await ask(AT_ONCE.wrap(model, on_retry=on_retry))
    assert heard == [1]


@pytest.mark.anyio
async def test_a_listener_that_fails_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    def on_retry(notice: RetryNotice) -> None:
        raise ZeroDivisionError("my own mistake")

    with caplog.at_level(logging.ERROR):
        heard = await ask(AT_ONCE.wrap(faux(SLOW, "Here.")[1], on_retry=on_retry))
    assert heard.message.text == "Here."
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


# --- time ------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.virtual_clock
async def test_the_waits_are_waited() -> None:
    provider, model = faux(SLOW, SLOW, RateLimited("later", retry_after_seconds=7), SLOW, "Here.")
    begun = anyio.current_time()
    async with await STEADY.wrap(model).stream(ASK) as stream:
        text = (await stream.result()).text
    assert (text, provider.call_count) == ("Here.", 5)
    assert anyio.current_time() - begun == pytest.approx(1 + 2 + 7 + 5)


@pytest.mark.anyio
@pytest.mark.virtual_clock
async def test_a_wait_beyond_the_total_deadline_is_not_begun() -> None:
    provider, model = faux(SLOW, RateLimited("later", retry_after_seconds=9), "Not asked for.")
    policy = RetryPolicy(initial_delay_seconds=2, jitter=0, total_deadline_seconds=10)
    begun = anyio.current_time()
    message = await policy.wrap(model).generate(ASK)
    assert (message.error_type, provider.call_count) == ("RateLimited", 2)
    assert anyio.current_time() - begun == pytest.approx(2)


@pytest.mark.anyio
@pytest.mark.virtual_clock
async def test_a_silent_attempt_ends_at_the_total_deadline() -> None:
    provider, model = faux(SLOW, FauxResponse("Never.", stall_after_deltas=0))
    policy = RetryPolicy(initial_delay_seconds=2, jitter=0, total_deadline_seconds=10)
    begun = anyio.current_time()
    async with await policy.wrap(model).stream(ASK) as stream:
        message = await stream.result()
    assert anyio.current_time() - begun == pytest.approx(10)
    assert (provider.call_count, provider.stalled_count) == (2, 0)
    assert isinstance(stream.error, ProviderTimeout)
    assert "no token within 10 seconds, asked 2 times" in str(stream.error)
    assert notes_of(stream.error) == ["attempt 1 of 2: RateLimited: slow down"]
    assert message.stop_reason == "error"


@pytest.mark.anyio
@pytest.mark.virtual_clock
async def test_an_answer_that_has_begun_has_no_deadline() -> None:
    _, model = faux("x" * 100, token_size_min=1, token_size_max=1, tokens_per_second=1)
    message = await RetryPolicy(total_deadline_seconds=10).wrap(model).generate(ASK)
    assert message.text == "x" * 100


# --- being cut off ---------------------------------------------------------------------------


async def _abort_in(agent: Agent, waiting: anyio.Event) -> tuple[RunResult, float]:
    """Abort a run at an event; its result, and how long that took."""
    results: list[RunResult] = []
    begun = math.inf

    async def prompt() -> None:
        results.append(await agent.prompt("Go."))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        await waiting.wait()
        await anyio.wait_all_tasks_blocked()
        begun = anyio.current_time()
        agent.abort()
    return results[0], anyio.current_time() - begun


def _long_wait(*responses: Any, seconds: float = 50) -> tuple[Any, RetryModel, anyio.Event]:
    """A model that has to be waited for, and an event for when that begins."""
    provider, model = faux(RateLimited("later", retry_after_seconds=seconds), *responses)
    waiting = anyio.Event()
    return provider, RetryPolicy().wrap(model, on_retry=lambda _: waiting.set()), waiting


@pytest.mark.anyio
async def test_an_abort_ends_a_wait_at_once() -> None:
    before = running_tasks()
    provider, model, waiting = _long_wait("Not asked for.")
    with anyio.fail_after(5):
        result, _ = await _abort_in(Agent(model=model), waiting)
    assert (result.outcome, result.error, provider.call_count) == ("aborted", None, 1)
    assert running_tasks() == before


@pytest.mark.anyio
@pytest.mark.virtual_clock
async def test_an_abort_ends_a_wait_in_no_time() -> None:
    _, model, waiting = _long_wait()
    _, seconds = await _abort_in(Agent(model=model), waiting)
    assert seconds == 0


@pytest.mark.anyio
async def test_a_cancelled_scope_ends_a_wait_and_is_not_swallowed() -> None:
    before = running_tasks()
    provider, model, waiting = _long_wait("Not asked for.")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.generate, ASK)
            await waiting.wait()
            tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught
    assert (provider.call_count, running_tasks()) == (1, before)


@on_asyncio
@pytest.mark.anyio
async def test_a_cancelled_task_leaves_a_wait_as_cancelled() -> None:
    provider, model, waiting = _long_wait("Not asked for.")
    task = asyncio.create_task(model.generate(ASK))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (task.cancelled(), provider.call_count) == (True, 1)


@pytest.mark.anyio
async def test_a_cancelled_attempt_leaves_nothing() -> None:
    before = running_tasks()
    provider, model = faux(SLOW, FauxResponse("Never.", stall_before_start=True), "Not asked for.")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(AT_ONCE.wrap(model).generate, ASK)
            await provider.wait_stalled()
            tasks.cancel_scope.cancel()
    assert (provider.call_count, provider.stalled_count, running_tasks()) == (2, 0, before)


# --- over HTTP -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


@pytest.mark.anyio
async def test_a_real_answer_comes_after_real_failures(replay: Replay) -> None:
    recorded = "anth-anthropic-test-structured-output-resume-stream-strict-anthropic-cl-1"
    begun = len(replay.log)
    url = replay.url(recorded, fail="2:529:0", s=begun)
    heard: list[tuple[str, float]] = []

    def on_retry(notice: RetryNotice) -> None:
        heard.append((type(notice.error).__name__, notice.wait_seconds))

    async with AnthropicProvider(api_key="k", base_url=url) as provider:
        result = await Agent(model=RetryPolicy().wrap(provider.model("claude"), on_retry=on_retry)).prompt("1 + 2?")
    assert heard == [("ProviderOverloaded", 0.0)] * 2
    assert (result.outcome, result.text) == ("completed", '{"output": 3}')
    assert [request["failed"] for request in replay.log[begun:]] == [True, True, False]


@pytest.mark.anyio
async def test_real_failures_to_the_end_are_the_vendors_own_error(replay: Replay) -> None:
    recorded = "anth-anthropic-test-structured-output-resume-stream-strict-anthropic-cl-1"
    begun = len(replay.log)
    url = replay.url(recorded, fail="9:529:3600", s=begun)
    async with AnthropicProvider(api_key="k-secret", base_url=url) as provider:
        heard = await ask(RetryPolicy().wrap(provider.model("claude")))
    assert isinstance(heard.error, ProviderOverloaded)
    assert (heard.error.status_code, heard.error.retry_after_seconds) == (529, 3600)
    assert len(replay.log) - begun == 1
