"""The idle time of an answer counts from its last event, whenever the one before it came."""

from __future__ import annotations

import anyio
import pytest

from cubepi_anyio import Agent, AgentEvent, MessageDraft, MessageStream, Model, RunLimits
from cubepi_anyio.providers.base import BaseProvider

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class Pausing(BaseProvider):
    """Says a word after each pause, in seconds, and then nothing more."""

    def __init__(self, *pauses_seconds: float) -> None:
        super().__init__(provider_id="pausing")
        self.pauses_seconds = pauses_seconds

    async def stream(self, model: Model, messages: object, **_: object) -> MessageStream:
        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream)
            for pause in self.pauses_seconds:
                await anyio.sleep(pause)
                await draft.text("word ")
            await anyio.sleep_forever()

        return MessageStream(produce)


class Talking(BaseProvider):
    """Says many words without a pause, and stops."""

    def __init__(self, words: int) -> None:
        super().__init__(provider_id="talking")
        self.words = words

    async def stream(self, model: Model, messages: object, **_: object) -> MessageStream:
        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream)
            for _ in range(self.words):
                await draft.text("word ")
            await draft.done()

        return MessageStream(produce)


@pytest.mark.parametrize("pauses", [(1,), (1, 1), (2, 1.5, 2.5), (0, 0, 0), (0, 2.9, 0.2)])
async def test_the_idle_time_ends_after_the_last_event(pauses: tuple[float, ...]) -> None:
    agent = Agent(
        model=Pausing(*pauses).model("m"), limits=RunLimits(first_token_timeout=5, idle_timeout=3, run_timeout=60)
    )
    began = anyio.current_time()
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit) == ("limit", "idle_timeout")
    assert result.text == "word " * len(pauses)
    assert anyio.current_time() - began == pytest.approx(sum(pauses) + 3, abs=1e-3)


async def test_a_stream_that_is_not_even_opened_is_a_silence_before_the_first_token() -> None:
    class Opening(BaseProvider):
        async def stream(self, model: Model, messages: object, **_: object) -> MessageStream:
            await anyio.sleep_forever()
            raise AssertionError

    agent = Agent(model=Opening().model("m"), limits=RunLimits(first_token_timeout=5, idle_timeout=3))
    began = anyio.current_time()
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit, anyio.current_time() - began) == ("limit", "first_token_timeout", 5)
    assert [message.role for message in agent.state.messages] == ["user"]


@pytest.mark.parametrize(("first", "idle"), [(50, 3), (3, 50), (None, 3)])
async def test_each_silence_has_its_own_bound_also_with_a_listener_that_is_awaited(
    first: float | None, idle: float
) -> None:
    async def listen(event: AgentEvent) -> None:
        await anyio.lowlevel.checkpoint()

    for listener in (listen, lambda event: None):
        agent = Agent(model=Pausing(2, 2).model("m"), limits=RunLimits(first_token_timeout=first, idle_timeout=idle))
        agent.subscribe(listener)
        began = anyio.current_time()
        assert (await agent.prompt("hi")).limit == "idle_timeout"
        assert anyio.current_time() - began == pytest.approx(4 + idle, abs=1e-3)


@pytest.mark.parametrize("words", [1, 5, 70, 300])
async def test_what_lies_ready_after_a_slow_listener_is_no_silence(words: int) -> None:
    agent = Agent(model=Talking(words).model("m"), limits=RunLimits(first_token_timeout=3, idle_timeout=3))
    heard = 0

    async def listen(event: AgentEvent) -> None:
        nonlocal heard
        if event.type == "message_update" and event.stream_event.type == "text_delta":
            heard += 1
            if heard == 1 or 55 < heard < 70:
                await anyio.sleep(10)

    agent.subscribe(listen)
    result = await agent.prompt("hi")
    assert (result.outcome, result.limit) == ("completed", None)
    assert heard == words


async def test_somebody_who_comes_to_listen_in_the_middle_of_an_answer_holds_it_back_and_is_no_silence() -> None:
    agent = Agent(model=Talking(300).model("m"), limits=RunLimits(first_token_timeout=3, idle_timeout=3))
    heard: list[str] = []
    behind: list[int] = []

    async def slow(event: AgentEvent) -> None:
        await anyio.sleep(5)
        heard.append(event.type)

    def count(event: AgentEvent) -> None:
        if event.type == "message_update":
            behind.append(len(behind) - heard.count("message_update"))
            if len(behind) == 10:
                agent.subscribe(slow)

    agent.subscribe(count)
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "word " * 300)
    assert max(behind) <= 10 + 64
    assert heard[-1] == "agent_end"
