"""Many requests cancelled at random moments leave a client that works, and nothing else."""

from __future__ import annotations

import gc
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from cubepi_anyio.errors import ProviderError
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.base import BoundModel
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from tests.providers.anthropic.reading import end, start, text
from tests.providers.asking import ASK
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, chunk, serve
from tests.support.agents import running_tasks

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]

TASKS = 20
CHURN_SECONDS = 5.0

WIRE = Path(__file__).resolve().parents[1] / "wire"
BODIES = {
    "/messages": start(input_tokens=3) + text(0, *("word " * 20).split(" ")) + end(output_tokens=5),
    "/chat/completions": (WIRE / "openai_chat" / "parallel_calls.sse").read_bytes(),
    "/responses": (WIRE / "openai_responses" / "reasoning_and_calls.sse").read_bytes(),
}
PROVIDERS: list[Callable[..., AnthropicProvider | OpenAIProvider | OpenAIResponsesProvider]] = [
    AnthropicProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
]


def open_sockets() -> int:
    """How many sockets this process has; 0 where the system does not say."""
    found = 0
    for descriptor in Path("/proc/self/fd").glob("*"):
        try:
            found += os.readlink(descriptor).startswith("socket:")
        except OSError:
            continue
    return found


def server_of(chances: random.Random) -> Callable[[Connection], Any]:
    """A server that answers in pieces, with pauses, fails now and then and hangs up now and then."""

    async def handle(connection: Connection) -> None:
        while True:
            head, _ = await connection.request()
            body = next(body for path, body in BODIES.items() if f"{path} HTTP" in head)
            await connection.send(HEAD)
            while body:
                size = chances.randint(1, 600)
                await connection.send(chunk(body[:size]))
                body = body[size:]
                if chances.random() < 0.05:
                    connection.closed.set()
                    return
                await anyio.sleep(chances.choice([0, 0, 0.001, 0.004]))
            await connection.send(LAST_CHUNK)

    return handle


async def ask_and_leave(model: BoundModel, chances: random.Random, endings: Counter[str]) -> None:
    """One request: read to its end, left at a random event, or cancelled after a random time."""
    longest_seconds = chances.choice([0, 0.005, 0.02, 0.1, 0.3, None])
    with anyio.move_on_after(None if longest_seconds is None else longest_seconds * chances.random()) as scope:
        stream = await model.stream(ASK)
        async with stream:
            async for event in stream:
                if chances.random() < 0.05:
                    endings["left"] += 1
                    return
                if event.type == "error":
                    assert isinstance(stream.error, ProviderError)
                    endings["failed"] += 1
        endings["ended"] += 1
    endings["cancelled"] += scope.cancelled_caught


@pytest.mark.deadline(60)
async def test_requests_cancelled_at_random_leave_a_healthy_client_and_no_open_socket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chances = random.Random(2026)
    endings: Counter[str] = Counter()
    sockets, tasks = open_sockets(), running_tasks()
    with caplog.at_level(logging.WARNING):
        async with serve(server_of(chances)) as server:
            made = [make(api_key="a-key-of-a-test", base_url=server.base) for make in PROVIDERS]
            models = [provider.model("a-model") for provider in made]
            stop_at = anyio.current_time() + CHURN_SECONDS

            async def churn(number: int) -> None:
                while anyio.current_time() < stop_at:
                    await ask_and_leave(models[number % len(models)], chances, endings)

            async with anyio.create_task_group() as group:
                for number in range(TASKS):
                    group.start_soon(churn, number)
            await assert_healthy(models)
            for provider in made:
                await provider.aclose()
            with anyio.fail_after(5):
                for connection in server.connections:
                    await connection.closed.wait()
        for _ in range(3):
            gc.collect()
            await anyio.wait_all_tasks_blocked()
    assert endings.keys() >= {"cancelled", "left", "ended"}
    assert running_tasks() == tasks
    assert open_sockets() <= sockets  # those of earlier tests may be closed meanwhile
    # A busy machine is no fault of ours: asyncio in its debug mode tells how long each step took.
    assert [record.getMessage() for record in caplog.records if " took " not in record.getMessage()] == []


async def assert_healthy(models: list[BoundModel]) -> None:
    """Each model answers as many requests at once as there were tasks."""
    completed: Counter[int] = Counter()

    async def until_answered(index: int) -> None:
        # The server hangs up now and then, also on us.
        while (await models[index].generate(ASK)).stop_reason == "error":
            pass
        completed[index] += 1

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for number in range(TASKS):
                group.start_soon(until_answered, number % len(models))
    assert completed.total() == TASKS
