"""What a server that breaks on purpose says of our client: *resilient*, for each of its faults."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, AgentTool, RunLimits, tool
from cubepi_anyio.errors import (
    ContextLengthExceeded,
    IncompleteStream,
    MalformedResponse,
    ModelNotFound,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderOverloaded,
    ProviderPermissionDenied,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from cubepi_anyio.providers.http.client import Timeouts
from tests.support.agents import transcript_faults

from .application import Application
from .llmock_server import LLMock
from .vendors import AnyProvider, Vendor

pytestmark = pytest.mark.anyio

TEXT = "one two three four five six seven eight"
LONG_SECONDS = 60.0
"""How long a fault lasts that nobody is to wait for."""
IMPATIENT = Timeouts(connect_seconds=5.0, first_byte_seconds=0.3, idle_seconds=0.3)


def reply(text: str = TEXT, **more: Any) -> dict[str, Any]:
    return {"type": "reply", "text": text, **more}


def calling(*cities: str) -> dict[str, Any]:
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in cities]
    return {"type": "reply", "tool_calls": calls}


def breaking(kind: str, after_chunks: int = 4, **more: Any) -> dict[str, Any]:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, **more}


def agent_of(provider: AnyProvider, *tools: AgentTool, **options: Any) -> Agent:
    return Agent(model=provider.model("a-model", max_tokens=options.pop("max_tokens", 100)), tools=tools, **options)


class Weather:
    """A tool and the cities it was asked for."""

    def __init__(self) -> None:
        self.cities: list[str] = []

        @tool
        async def get_weather(city: str) -> str:
            """Say what the weather is like in a city."""
            self.cities.append(city)
            return f"sunny in {city}"

        self.tool = get_weather


async def asked(llmock: LLMock, vendor: Vendor, **options: Any) -> tuple[Application, list[dict[str, Any]]]:
    """Let an application ask until it has an answer; it, and the requests that the server saw of it."""
    async with vendor.at(llmock.base_url(vendor.name), **options) as provider:
        application = Application(lambda: agent_of(provider))
        await application.answer("Tell me something.")
        return application, await llmock.requests()


async def test_a_scripted_text_arrives_as_it_is(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue(reply())
    application, requests = await asked(llmock, vendor)
    result = application.results[0]
    assert (result.outcome, result.text) == ("completed", TEXT)
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens > 0
    assert [(request["status"], request["stream"], request["completed"]) for request in requests] == [(200, True, True)]
    assert await llmock.findings() == []


async def test_the_calls_of_an_answer_run_at_the_same_time(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue(calling("Paris", "Rome"), reply())
    met: dict[str, anyio.Event] = {"Paris": anyio.Event(), "Rome": anyio.Event()}

    @tool
    async def get_weather(city: str) -> str:
        """Say what the weather is like in a city."""
        met[city].set()
        for event in met.values():
            await event.wait()
        return f"sunny in {city}"

    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, get_weather)
        result = await agent.prompt("How is the weather?")
        requests = await llmock.requests()
    assert (result.outcome, result.text) == ("completed", TEXT)
    texts = [message.text for message in agent.state.messages if message.role == "tool_result"]
    assert texts == ["sunny in Paris", "sunny in Rome"]
    assert transcript_faults(agent.state.messages) == []
    assert [request["status"] for request in requests] == [200, 200]
    assert await llmock.findings() == []


async def test_a_made_up_call_fits_the_schema_we_sent(llmock: LLMock, vendor: Vendor) -> None:
    weather = Weather()
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        result = await agent_of(provider, weather.tool).prompt("How is the weather?")
    assert result.outcome == "completed"
    assert result.text
    assert weather.cities == ["mock-city"]
    assert await llmock.findings() == []


FINAL: dict[int, type[ProviderError]] = {
    400: ProviderBadRequest,
    401: ProviderAuthFailed,
    403: ProviderPermissionDenied,
    404: ModelNotFound,
    422: ProviderBadRequest,
}
PASSING: dict[int, type[ProviderError]] = {
    409: ProviderUnavailable,
    429: RateLimited,
    500: ProviderUnavailable,
    502: ProviderUnavailable,
    503: ProviderUnavailable,
    529: ProviderOverloaded,
}


async def test_an_error_that_stays_is_met_once(llmock: LLMock, vendor: Vendor) -> None:
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        for status, kind in FINAL.items():
            await llmock.queue({"type": "fail", "status": status})
            application = Application(lambda: agent_of(provider))
            error = (await application.answer(f"Fail with {status}.")).error
            assert isinstance(error, ProviderError)
            assert type(error) is kind, status
            assert error.status_code == status
    assert [request["status"] for request in await llmock.requests()] == list(FINAL)
    assert await llmock.findings() == []


async def test_an_error_that_passes_is_overcome(llmock: LLMock, vendor: Vendor) -> None:
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        for status, kind in PASSING.items():
            await llmock.queue({"type": "fail", "status": status, "retry_after": 0.1}, reply())
            application = Application(lambda: agent_of(provider))
            result = await application.answer(f"Fail with {status}.")
            assert [issubclass(met, kind) for met in application.errors] == [True], status
            assert result.text == TEXT
    assert [request["status"] for request in await llmock.requests()] == [
        status for failed in PASSING for status in (failed, 200)
    ]
    assert await llmock.findings() == []


async def test_a_rate_limit_says_how_long_to_wait_and_the_wait_is_kept(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "fail", "status": 429, "retry_after": 0.4, "times": 2}, reply())
    application, requests = await asked(llmock, vendor)
    assert application.errors == [RateLimited, RateLimited]
    assert [getattr(result.error, "retry_after_seconds", None) for result in application.results] == [0.4, 0.4, None]
    assert application.results[-1].text == TEXT
    assert [request["status"] for request in requests] == [429, 429, 200]
    assert await llmock.findings() == []


async def test_a_spent_quota_is_a_rate_limit_with_the_true_wait(llmock: LLMock, vendor: Vendor) -> None:
    # Each request counts for some 3060 of 6000 tokens, which come back at 100 a second: the second has to wait.
    await llmock.configure(tpm=6000)
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        first = Application(lambda: agent_of(provider, max_tokens=3020))
        second = Application(lambda: agent_of(provider, max_tokens=3020))
        assert (await first.answer("first")).outcome == "completed"
        assert (await second.answer("second")).outcome == "completed"
    assert (first.errors, second.errors) == ([], [RateLimited])
    error = second.results[0].error
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds is not None
    assert 0 < error.retry_after_seconds < 3.0
    assert await llmock.findings() == []


async def test_a_prompt_beyond_the_window_is_not_sent_twice(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.configure(context_window=50)
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        application = Application(lambda: agent_of(provider))
        result = await application.answer("word " * 500)
    assert type(result.error) is ContextLengthExceeded
    assert [request["status"] for request in await llmock.requests()] == [400]
    assert await llmock.findings() == []


async def test_an_outage_ends_after_as_many_attempts_as_were_allowed(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "fail", "status": 503, "retry_after": 0.1, "times": None})
    application, requests = await asked(llmock, vendor)
    assert [issubclass(kind, ProviderUnavailable) for kind in application.errors] == [True] * 3
    assert application.results[-1].outcome == "error"
    assert [request["status"] for request in requests] == [503] * 3
    assert await llmock.findings() == []


BREAKS: dict[str, type[ProviderError]] = {
    "disconnect": IncompleteStream,
    "truncate": IncompleteStream,
    "malformed": MalformedResponse,
}


@pytest.mark.parametrize("after_chunks", [0, 1, 6])
@pytest.mark.parametrize("kind", BREAKS)
async def test_a_broken_stream_is_an_error_and_asked_for_again(
    llmock: LLMock, vendor: Vendor, kind: str, after_chunks: int
) -> None:
    # Paced, so that the server is still sending when a client that stops reading has gone.
    await llmock.configure(chunk_delay_ms=5)
    await llmock.queue(breaking(kind, after_chunks), reply(times=2))
    application, requests = await asked(llmock, vendor)
    broken, whole = application.results
    assert type(broken.error) is BREAKS[kind]
    assert TEXT.startswith(broken.text)
    assert broken.text != TEXT
    assert (whole.outcome, whole.text) == ("completed", TEXT)
    assert [request["completed"] for request in requests] == [False, True]
    assert await llmock.findings() == []


@pytest.mark.parametrize("kind", BREAKS)
async def test_a_call_of_a_broken_stream_never_runs(llmock: LLMock, vendor: Vendor, kind: str) -> None:
    await llmock.configure(chunk_delay_ms=5)
    await llmock.queue(calling("a city with a name that is long"), breaking(kind, 5))
    weather = Weather()
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather.tool)
        result = await agent.prompt("How is the weather?")
    assert type(result.error) is BREAKS[kind]
    assert weather.cities == []
    assert transcript_faults(agent.state.messages) == []


SILENCES: dict[str, dict[str, Any]] = {
    "stall": breaking("stall", 6, stall_seconds=LONG_SECONDS),
    "slow first token": {"type": "slow_first_token", "seconds": LONG_SECONDS},
    # The server does not notice that nobody waits for this one any more, and is asked for its verdict only afterwards.
    "delay": {"type": "delay", "seconds": 1.0},
}


@pytest.mark.parametrize("silence", ["stall", "slow first token"])
async def test_silence_is_a_timeout_and_asked_again(llmock: LLMock, vendor: Vendor, silence: str) -> None:
    await llmock.queue(SILENCES[silence], reply(times=2))
    application, requests = await asked(llmock, vendor, timeouts=IMPATIENT)
    assert application.errors == [ProviderTimeout]
    assert application.results[-1].text == TEXT
    assert [request["completed"] for request in requests] == [False, True]
    assert await llmock.findings() == []


async def test_an_answer_that_is_only_slow_is_waited_for(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.configure(chunk_delay_ms=20)
    await llmock.queue({"type": "slow_first_token", "seconds": 0.1}, reply())
    application, requests = await asked(llmock, vendor, timeouts=IMPATIENT)
    assert [result.text for result in application.results] == [TEXT]
    assert [request["completed"] for request in requests] == [True]
    assert await llmock.findings() == []


@pytest.mark.parametrize(
    ("silence", "limit"),
    [("stall", "idle_timeout"), ("slow first token", "first_token_timeout"), ("delay", "first_token_timeout")],
)
async def test_silence_reaches_a_limit_of_the_run(llmock: LLMock, vendor: Vendor, silence: str, limit: str) -> None:
    await llmock.queue(SILENCES[silence], reply(times=2))
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, limits=RunLimits(first_token_timeout=0.3, idle_timeout=0.3))
        result = await agent.prompt("Tell me something.")
        assert (result.outcome, result.limit) == ("limit", limit)
        assert TEXT.startswith(result.text)
        assert (await agent.prompt("And now?")).text == TEXT
    assert transcript_faults(agent.state.messages) == []
    assert await llmock.findings() == []


@pytest.mark.parametrize("silence", SILENCES)
async def test_an_abort_ends_a_silent_request_and_asks_no_more(llmock: LLMock, vendor: Vendor, silence: str) -> None:
    await llmock.queue(SILENCES[silence], reply(times=2))
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        application = Application(lambda: agent)
        agent = agent_of(provider)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(application.answer, "Tell me something.")
            while not agent.state.is_running:
                await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0.2)  # somewhere between connecting and the silence
            with anyio.fail_after(2):
                agent.abort("enough")
                await agent.wait_for_idle()
    assert [result.outcome for result in application.results] == ["aborted"]
    assert await llmock.findings() == []


async def test_a_call_of_an_unknown_tool_is_answered_with_the_known_ones(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "tool_fault", "kind": "unknown_tool"})
    weather = Weather()
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather.tool)
        result = await agent.prompt("How is the weather?")
    answers = [message for message in agent.state.messages if message.role == "tool_result"]
    assert result.outcome == "completed"
    assert [answer.is_error for answer in answers] == [True]
    assert "get_weather" in answers[0].text
    assert weather.cities == []
    assert await llmock.findings() == []


async def test_arguments_that_are_no_json_run_nothing_and_go_back_to_the_model(llmock: LLMock, vendor: Vendor) -> None:
    await llmock.queue({"type": "tool_fault", "kind": "malformed_arguments"})
    weather = Weather()
    async with vendor.at(llmock.base_url(vendor.name)) as provider:
        agent = agent_of(provider, weather.tool)
        result = await agent.prompt("How is the weather?")
    answers = [message for message in agent.state.messages if message.role == "tool_result"]
    assert result.outcome == "completed"
    assert [answer.is_error for answer in answers] == [True]
    assert "JSON" in answers[0].text
    assert weather.cities == []
    assert [request["status"] for request in await llmock.requests()] == [200, 200]
    assert await llmock.findings() == []
