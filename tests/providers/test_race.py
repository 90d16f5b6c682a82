"""Racing: who wins, what becomes of the others, and what is left when the race is cut off."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    Agent,
    FauxProvider,
    FauxResponse,
    ProviderAuthFailed,
    ProviderUnavailable,
    RateLimited,
    RunResult,
    UsageError,
    faux_assistant_message,
    faux_thinking,
    faux_tool_call,
)
from cubepi_anyio.providers.composed.race import RaceModel
from cubepi_anyio.providers.composed.retry import RetryPolicy
from cubepi_anyio.providers.openai import OpenAIProvider
from tests.recordings import replay_server
from tests.support.agents import running_tasks, saying

from .asking import ASK, ask, faux
from .loopback import HEAD, LAST_CHUNK, Connection, chunk, serve

pytestmark = pytest.mark.anyio

SLOW = RateLimited("slow down")
NEVER = FauxResponse("Never.", stall_before_start=True)
ONLY_THE_HEAD = FauxResponse("Never.", stall_after_deltas=0)


def field(*responses: Any) -> tuple[list[FauxProvider], RaceModel]:
    """As many models as there are lists of responses, called ``a``, ``b``, …, in a race."""
    made = [faux(*queue, id=name) for queue, name in zip(responses, "abcdef", strict=False)]
    return [provider for provider, _ in made], RaceModel([model for _, model in made])


def stalled(providers: list[FauxProvider]) -> list[int]:
    return [provider.stalled_count for provider in providers]


@pytest.mark.parametrize("other", [NEVER, ONLY_THE_HEAD, SLOW], ids=["silent", "head alone", "failed"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_the_first_model_that_says_something_is_heard(place: int, other: Any) -> None:
    queues: list[list[Any]] = [[other], [other], [other]]
    queues[place] = ["The winner speaks."]
    providers, model = field(*queues)
    heard = await ask(model)
    assert (heard.message.text, heard.message.provider_id) == ("The winner speaks.", "abc"[place])
    assert heard.types[0] == "start"
    assert heard.types.count("start") == 1
    assert [provider.call_count for provider in providers] == [1, 1, 1]
    assert stalled(providers) == [0, 0, 0]


@pytest.mark.parametrize(
    "answer",
    [faux_thinking("Hm.", "signed"), faux_tool_call("look", {"at": "it"}), faux_tool_call("look", {}), ""],
    ids=["thinking", "call", "call without arguments", "nothing"],
)
async def test_any_token_wins_and_so_does_the_end_of_an_empty_answer(answer: Any) -> None:
    _, model = field([ONLY_THE_HEAD], [answer])
    heard = await ask(model)
    assert (heard.message.provider_id, heard.types[-1]) == ("b", "done")


async def test_of_models_that_speak_in_the_same_step_the_first_in_order_wins() -> None:
    for _ in range(10):
        _, model = field([SLOW], ["From b."], ["From c."], ["From d."])
        assert (await ask(model)).message.text == "From b."


@pytest.mark.virtual_clock
async def test_who_is_faster_wins_whatever_the_order() -> None:
    paces = [1.0, 4.0, 2.0]
    made = [faux("x" * 40, id=name, tokens_per_second=pace) for name, pace in zip("abc", paces, strict=True)]
    begun = anyio.current_time()
    async with await RaceModel([model for _, model in made]).stream(ASK) as stream:
        async for event in stream:
            if event.type == "text_delta":
                break
        first = anyio.current_time() - begun
        message = await stream.result()
    assert (message.provider_id, first) == ("b", pytest.approx(0.25))


async def test_the_losers_are_gone_while_the_winner_still_speaks() -> None:
    providers, model = field(
        [NEVER], [FauxResponse("A long answer.", stall_after_deltas=2)], [FauxResponse("Never.", stall_after_deltas=0)]
    )
    with anyio.fail_after(5):
        async with await model.stream(ASK) as stream:
            async for event in stream:
                if event.type == "text_delta":
                    break
            await anyio.wait_all_tasks_blocked()
            assert stalled(providers) == [0, 1, 0]
            providers[1].release_stalls()
            assert (await stream.result()).text == "A long answer."


async def test_an_answer_that_fails_after_it_has_begun_is_not_replaced() -> None:
    cut = FauxResponse("Half an answer", fail_after_deltas=1, fail_with=ProviderUnavailable("gone"))
    providers, model = field([cut], [NEVER])
    heard = await ask(model)
    assert heard.types == ["start", "text_start", "text_delta", "error"]
    assert (heard.message.stop_reason, str(heard.error)) == ("error", "gone")
    assert stalled(providers) == [0, 0]


async def test_if_all_have_failed_the_error_lists_them_in_their_order() -> None:
    errors = [SLOW, ProviderAuthFailed("wrong key"), ZeroDivisionError("a bug")]
    _, model = field(*[[error] for error in errors])
    heard = await ask(model)
    assert isinstance(heard.error, ProviderUnavailable)
    assert heard.error.errors == tuple(errors)
    assert heard.error.__cause__ is errors[-1]
    assert str(heard.error) == (
        "none of 3 models answered: a/m: RateLimited: slow down; b/m: ProviderAuthFailed: wrong key; "
        "c/m: ZeroDivisionError: a bug"
    )
    assert heard.types == ["error"]


async def test_a_race_of_one_has_its_models_own_error() -> None:
    _, model = field([SLOW])
    assert (await ask(model)).error is SLOW


async def test_a_race_needs_a_model() -> None:
    with pytest.raises(UsageError, match="at least one model"):
        RaceModel([])


async def test_a_model_in_a_race_may_be_retried() -> None:
    (silent, first), (failing, second) = faux(NEVER, id="a"), faux(SLOW, SLOW, "From b.", id="b")
    model = RaceModel([first, RetryPolicy(initial_delay_seconds=0).wrap(second)])
    assert (await ask(model)).message.text == "From b."
    assert (failing.call_count, silent.stalled_count) == (3, 0)


async def test_an_agent_runs_on_a_race_and_each_turn_is_a_new_one() -> None:
    look = faux_assistant_message(["I look.", faux_tool_call("look", {})])
    providers, model = field([look, NEVER], [NEVER, "I have looked."])
    result = await Agent(model=model, tools=[saying("look")]).prompt("Go.")
    assert (result.outcome, result.text) == ("completed", "I have looked.")
    origins = [message.provider_id for message in result.messages if message.role == "assistant"]
    assert (origins, stalled(providers)) == (["a", "b"], [0, 0])


# --- being cut off ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NEVER, ONLY_THE_HEAD], ids=["silent", "head alone"])
async def test_an_abort_while_nobody_has_spoken_leaves_nothing(kind: FauxResponse) -> None:
    before = running_tasks()
    providers, model = field([kind, "Not asked for."], [kind, "Not asked for."])
    agent = Agent(model=model)
    results: list[RunResult] = []

    async def prompt() -> None:
        results.append(await agent.prompt("Go."))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            for provider in providers:
                await provider.wait_stalled()
            agent.abort()
    assert (results[0].outcome, results[0].error) == ("aborted", None)
    assert ([provider.call_count for provider in providers], stalled(providers)) == ([1, 1], [0, 0])
    assert running_tasks() == before


async def test_a_cancelled_winner_leaves_nothing() -> None:
    before = running_tasks()
    providers, model = field([NEVER], [FauxResponse("Half an answer", stall_after_deltas=1)])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.generate, ASK)
            await providers[1].wait_stalled()
            tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught
    assert (stalled(providers), running_tasks()) == ([0, 0], before)


# --- over HTTP -------------------------------------------------------------------------------


def said(text: str) -> bytes:
    """One chunk of Chat Completions."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return chunk(f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n".encode())


async def test_the_connection_of_a_loser_is_closed_while_the_winner_speaks() -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def silent(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD)
        asked.set()
        await connection.until_closed()

    async def speaking(connection: Connection) -> None:
        await connection.request()
        await asked.wait()
        await connection.send(HEAD + said("Here"))
        await go_on.wait()
        end = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        await connection.send(said(" I am.") + chunk(end) + LAST_CHUNK)
        await connection.until_closed()

    with anyio.fail_after(10):
        async with (
            serve(silent) as slow,
            serve(speaking) as fast,
            OpenAIProvider(api_key="k", base_url=slow.base) as first,
            OpenAIProvider(api_key="k", base_url=fast.base) as second,
            await RaceModel([first.model("slow"), second.model("fast")]).stream(ASK) as stream,
        ):
            async for event in stream:
                if event.type == "text_delta":
                    break
            await slow.connections[0].closed.wait()
            assert not fast.connections[0].closed.is_set()
            go_on.set()
            message = await stream.result()
    assert (message.text, message.model_id) == ("Here I am.", "fast")


async def test_an_abort_closes_every_connection() -> None:
    both_asked = [anyio.Event(), anyio.Event()]

    def silent(asked: anyio.Event) -> Callable[[Connection], Awaitable[None]]:
        async def handle(connection: Connection) -> None:
            await connection.request()
            await connection.send(HEAD)
            asked.set()
            await connection.until_closed()

        return handle

    with anyio.fail_after(10):
        async with (
            serve(silent(both_asked[0])) as one,
            serve(silent(both_asked[1])) as two,
            OpenAIProvider(api_key="k", base_url=one.base) as first,
            OpenAIProvider(api_key="k", base_url=two.base) as second,
        ):
            agent = Agent(model=RaceModel([first.model("m"), second.model("m")]))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agent.prompt, "Go.")
                for asked in both_asked:
                    await asked.wait()
                agent.abort("enough")
            for server in (one, two):
                await server.connections[0].closed.wait()
    assert agent.state.last_outcome == "aborted"


async def test_a_real_answer_wins_against_a_real_failure() -> None:
    with replay_server() as replay:
        well = replay.url("chat-copilot-structured-output-smoke")
        async with (
            OpenAIProvider(api_key="k", base_url=replay.url("chat-copilot-structured-output-smoke", fail="1:503")) as a,
            OpenAIProvider(api_key="k", base_url=f"{well};s=well") as b,
        ):
            failed = anyio.Event()

            async def wait_for_the_failure(payload: Any, model: Any) -> None:
                await failed.wait()

            # Otherwise the answer may win before the other request has arrived.
            a.subscribe_response(lambda message, model, error: failed.set())
            b.subscribe_request(wait_for_the_failure)
            heard = await ask(RaceModel([a.model("a"), b.model("b")]))
        assert sorted(request["failed"] for request in replay.log) == [False, True]
    assert heard.message.text.startswith('{"category":"Technology Meetups"')
