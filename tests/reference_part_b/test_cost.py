"""What grows without bound in the asyncio original (part B of the reference) and does not here."""

from __future__ import annotations

import tracemalloc
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    FauxProvider,
    MessageDraft,
    MessageStream,
    RunLimits,
    TextContent,
    UserMessage,
    faux_assistant_message,
    faux_tool_call,
)
from tests.support.agents import Word, bench, tool_of

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(30)]


async def test_a_consumer_that_does_not_read_holds_the_producer_back_and_memory_down() -> None:
    """B4c."""
    sent = 0

    async def produce(stream: MessageStream) -> None:
        nonlocal sent
        draft = MessageDraft(stream)
        for _ in range(20_000):
            await draft.text("word")
            sent += 1
        await draft.done()

    async with MessageStream(produce) as stream:
        await anyio.wait_all_tasks_blocked()
        assert 0 < sent < 1_000
        unread = sent
        async for _ in stream:
            pass
        message = await stream.result()
    assert (message.text, sent) == ("word" * 20_000, 20_000)
    assert unread < sent


async def _bytes_of(calls: int) -> int:
    """The most memory that an answer with so many calls takes while every event is looked at and none is kept."""
    provider = FauxProvider()
    blocks = [faux_tool_call("work", {"word": "w" * 20}, id=f"c{n}") for n in range(calls)]
    provider.set_responses([faux_assistant_message(blocks)])
    tracemalloc.start()
    try:
        async with await provider.model("m").stream([UserMessage(content=[TextContent(text="hi")])]) as stream:
            tracemalloc.reset_peak()
            async for event in stream:
                assert event.type
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_the_memory_of_an_answer_grows_with_its_calls_and_not_with_their_square() -> None:
    """B4b."""
    few, many = await _bytes_of(100), await _bytes_of(400)
    assert many / few < 6


async def test_many_calls_in_one_turn_keep_to_the_bound() -> None:
    """B9h."""
    running, most = 0, 0

    async def work(tool_call_id: str, params: Word) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return params.word

    calls: list[Any] = [faux_tool_call("work", {"word": str(n)}, id=f"c{n}") for n in range(300)]
    tools = [tool_of("work", work, parameters=Word)]
    made = bench(faux_assistant_message(calls), "done", tools=tools, limits=RunLimits(max_parallel_tools=8))
    await made.agent.prompt("hi")
    assert most == 8
    assert made.texts == [str(n) for n in range(300)]
