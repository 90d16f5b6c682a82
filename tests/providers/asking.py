"""Models that ask others, in tests: what they are made of, and what came of asking them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from cubepi_anyio import AssistantMessage, FauxProvider, MessageStream, StreamEvent, TextContent, UserMessage
from cubepi_anyio.providers.base import BoundModel, StreamingModel

ASK = [UserMessage(content=[TextContent(text="hi")])]


def faux(*responses: Any, id: str = "faux", **settings: Any) -> tuple[FauxProvider, BoundModel]:
    """A scripted provider and a model of it."""
    provider = FauxProvider(provider_id=id, **settings)
    provider.set_responses(responses)
    return provider, provider.model("m")


@dataclass
class Heard:
    """One call: everything its stream said, and its result."""

    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
    message: AssistantMessage = field(default_factory=AssistantMessage)
    error: Exception | None = None

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


async def hear(stream: MessageStream) -> Heard:
    """Read a stream to its end."""
    heard = Heard()
    with anyio.fail_after(5):
        async with stream:
            async for event in stream:
                heard.events.append(event)
            heard.message = await stream.result()
    heard.error = stream.error
    return heard


async def ask(model: StreamingModel, **options: Any) -> Heard:
    """Ask a model and hear all of its answer."""
    return await hear(await model.stream(ASK, **options))


def notes_of(error: BaseException | None) -> Sequence[str]:
    """The notes of an error."""
    return getattr(error, "__notes__", ())
