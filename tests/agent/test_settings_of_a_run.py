"""How models are to answer: what model, agent and run say, merged in this order."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import (
    Agent,
    FauxProvider,
    ModelSettings,
    RateLimited,
    RunContext,
    UnsupportedSetting,
    run_agent_loop,
)
from cubepi_anyio.providers.base import StreamOptions
from cubepi_anyio.providers.composed.fallback import FallbackModel
from cubepi_anyio.providers.openai import OpenAIProvider
from tests.support.agents import Bench, assert_well_ended, balance_faults, bench, calling, saying

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]


def settings(made: Bench) -> list[ModelSettings]:
    """What each request was given, the model's own included."""
    return [
        call.model.settings.merge(call.options.settings) if call.model.settings is not None else call.options.settings
        for call in made.provider.calls
    ]


def bench_with(model_settings: ModelSettings | None, *responses: Any, **options: Any) -> Bench:
    made = bench(*responses, **options)
    made.agent.state.model = made.provider.model("m", settings=model_settings)
    return made


async def test_what_the_run_says_wins_over_the_agent_and_the_agent_over_the_model() -> None:
    model = ModelSettings(temperature=0.1, top_p=0.1, seed=1)
    agent = ModelSettings(temperature=0.2, top_p=0.2)
    made = bench_with(model, "1", "2", "3", settings=agent)
    await made.agent.prompt("hi", settings=ModelSettings(temperature=0.3))
    async with made.agent.stream("hi", settings=ModelSettings(temperature=0.4)) as run:
        await run.result()
    await made.agent.prompt("hi")
    assert [(one.temperature, one.top_p, one.seed) for one in settings(made)] == [
        (0.3, 0.2, 1),
        (0.4, 0.2, 1),
        (0.2, 0.2, 1),
    ]
    await assert_well_ended(made)


async def test_they_hold_for_every_turn_of_the_run_and_no_other_run() -> None:
    made = bench(calling("say"), "1", "2", tools=[saying("say")])
    await made.agent.prompt("hi", settings=ModelSettings(seed=7))
    await made.agent.prompt("hi")
    assert [one.seed for one in settings(made)] == [7, 7, None]


async def test_bodies_and_headers_are_merged_and_not_replaced() -> None:
    made = bench("1", settings=ModelSettings(extra_body={"a": {"x": 1}}, extra_headers={"X-One": "1"}))
    over = ModelSettings(extra_body={"a": {"y": 2}, "b": 3}, extra_headers={"X-Two": "2"})
    await made.agent.prompt("hi", settings=over)
    (said,) = settings(made)
    assert (said.extra_body, said.extra_headers) == ({"a": {"x": 1, "y": 2}, "b": 3}, {"X-One": "1", "X-Two": "2"})


async def test_a_function_of_the_context_is_asked_for_each_request() -> None:
    seen: list[int] = []

    def of_turn(ctx: RunContext[Any]) -> ModelSettings:
        seen.append(ctx.turn)
        return ModelSettings(seed=ctx.turn)

    made = bench(calling("say"), "1", "2", tools=[saying("say")], settings=of_turn)
    await made.agent.prompt("hi", settings=lambda ctx: ModelSettings(top_k=len(ctx.messages)))
    await made.agent.prompt("hi", settings=ModelSettings(seed=9))
    assert [(one.seed, one.top_k) for one in settings(made)] == [(1, 1), (2, 3), (9, None)]
    assert seen == [1, 2, 1]


async def test_an_agent_s_settings_may_be_changed_between_runs() -> None:
    made = bench("1", "2", settings=ModelSettings(seed=1))
    await made.agent.prompt("hi")
    made.agent.settings = ModelSettings(seed=2)
    await made.agent.prompt("hi")
    assert [one.seed for one in settings(made)] == [1, 2]


async def test_each_model_of_several_has_its_own_beneath_those_of_the_call() -> None:
    first, second = FauxProvider(), FauxProvider(provider_id="second")
    first.set_responses([RateLimited("no")])
    second.set_responses(["done"])
    models = [
        provider.model("m", settings=ModelSettings(seed=seed, top_k=seed))
        for provider, seed in ((first, 1), (second, 2))
    ]
    agent = Agent(model=FallbackModel(models), settings=ModelSettings(top_k=9))
    assert (await agent.prompt("hi")).text == "done"
    (one,), (two,) = (settings(Bench(provider, agent)) for provider in (first, second))
    assert [(said.seed, said.top_k) for said in (one, two)] == [(1, 9), (2, 9)]


@pytest.mark.parametrize("given", [{"seed": 1}, "hot", 0.5])
async def test_what_is_no_settings_ends_the_run_as_a_bug_does(given: Any) -> None:
    for made, of_run in ((bench("never", settings=given), None), (bench("never"), lambda ctx: given)):
        with pytest.raises(TypeError, match=f"gives a ModelSettings, not {type(given).__name__}"):
            await made.agent.prompt("hi", settings=of_run)
        assert balance_faults(made.events) == []
        assert made.provider.call_count == 0


async def test_what_a_function_of_settings_raises_leaves_as_itself() -> None:
    def broken(ctx: RunContext[Any]) -> ModelSettings:
        raise LookupError("no settings")

    made = bench("never", settings=broken)
    with pytest.raises(LookupError):
        await made.agent.prompt("hi")
    assert balance_faults(made.events) == []


async def test_a_format_refuses_what_it_has_no_field_for_by_name_and_sends_nothing() -> None:
    provider = OpenAIProvider(base_url="http://127.0.0.1:9", api_key="k")
    agent = Agent(model=provider.model("m"))
    result = await agent.prompt("hi", settings=ModelSettings(top_k=3))
    assert result.outcome == "error"
    assert isinstance(result.error, UnsupportedSetting)
    assert "top_k" in str(result.error)


async def test_a_run_without_an_agent_takes_them_in_its_options() -> None:
    provider = FauxProvider()
    provider.set_responses(["done"])
    options = StreamOptions(settings=ModelSettings(seed=3), temperature=0.5)
    await run_agent_loop("hi", [], provider.model("m"), stream_options=options)
    said = provider.calls[0].options.settings
    assert (said.seed, said.temperature) == (3, 0.5)
