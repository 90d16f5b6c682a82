"""Type-checked, never run: what a type checker must see of the public names."""

from __future__ import annotations

from typing import assert_type

from cubepi_anyio.providers.base import BaseProvider, BoundModel
from cubepi_anyio.stream import MessageStream
from cubepi_anyio.types import AssistantMessage, Message, TextContent, ToolCall, UserMessage


async def a_stream_yields_its_message(stream: MessageStream) -> None:
    async with stream:
        async for event in stream:
            assert_type(event.partial, AssistantMessage | None)
    assert_type(await stream.result(), AssistantMessage)


async def a_bound_model_needs_no_model(provider: BaseProvider, history: list[Message]) -> None:
    model = provider.model("some-model")
    assert_type(model, BoundModel)
    assert_type(await model.stream(history), MessageStream)
    assert_type(await model.generate(history), AssistantMessage)


def blocks_are_told_apart(message: Message) -> None:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, ToolCall):
                assert_type(block.name, str)
            if isinstance(block, TextContent):
                assert_type(block.text, str)
    if message.role == "user":
        assert_type(message, UserMessage)
