"""The wire formats, each with its provider and an answer, for the tests that are the same for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cubepi_anyio.errors import IncompleteStream, ProviderUnavailable
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.base import BaseProvider, MessageStream, StreamOptions
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.types import AssistantMessage, Model, Usage
from tests.recordings import Recording, recordings

from .anthropic import reading as anthropic
from .asking import ASK
from .loopback import HEAD, LAST_CHUNK, chunk
from .openai_chat import reading as chat
from .openai_responses import reading as responses

AnyProvider = AnthropicProvider | OpenAIProvider | OpenAIResponsesProvider


@dataclass(frozen=True, kw_only=True)
class WireFormat:
    """One wire format. Both answers are the events of ``Hello``."""

    make: type[AnyProvider]
    model: Model
    begun: bytes
    """An answer that has its text and has not ended."""
    body: bytes
    """A whole answer of 3 tokens in and 5 out."""
    check_against: Callable[[Recording, AssistantMessage, Usage | None, str | None], None]

    @property
    def api(self) -> str:
        return self.make.api

    @property
    def answer(self) -> bytes:
        """The whole answer as HTTP."""
        return HEAD + chunk(self.body) + LAST_CHUNK

    def provider(self, base: str | None, **options: Any) -> AnyProvider:
        settings: dict[str, Any] = {"api_key": "sk-secret", "base_url": base, **options}
        return self.make(**settings)

    async def ask(self, asked: BaseProvider, **options: Any) -> tuple[AssistantMessage, Exception | None]:
        """One whole call: its message and the error of its stream."""
        stream = await asked.model(self.model.id).stream(ASK, **options)
        message = await stream.result()
        return message, stream.error

    @cached_property
    def recordings(self) -> list[Recording]:
        return recordings(self.api)

    @cached_property
    def answers(self) -> list[Recording]:
        """The recordings of answers that are whole and no errors."""
        return [each for each in self.recordings if each["expected"]["outcome"] == "ok"]

    async def play(self, asked: BaseProvider, recording: Recording, options: str = "") -> MessageStream:
        """Ask for a recording, sent in the way ``options`` say; the stream is left at its end."""
        chosen = StreamOptions(extra_headers={"x-replay-id": recording["id"] + options})
        stream = await asked.stream(self.model, list(ASK), options=chosen)
        async with stream:
            async for _ in stream:
                pass
            await stream.result()
        return stream

    async def check_cut(self, asked: BaseProvider, recording: Recording, percent: int, mode: str, text: str) -> None:
        """Assert that a recording cut in this way is an error that keeps the beginning of ``text``."""
        stream = await self.play(asked, recording, f";cut={percent}%;cutmode={mode}")
        # A reset may overtake what was sent before it, the head included.
        allowed = (IncompleteStream, ProviderUnavailable) if mode == "rst" else (IncompleteStream,)
        assert isinstance(stream.error, allowed), (recording["id"], percent, stream.error)
        assert stream.message.stop_reason == "error", (recording["id"], percent, stream.message)
        assert text.startswith(stream.message.text), (recording["id"], percent, stream.message)


ANTHROPIC = WireFormat(
    make=AnthropicProvider,
    model=Model(id="claude", provider="anthropic"),
    begun=anthropic.start(input_tokens=3) + anthropic.text(0, "Hello"),
    body=anthropic.start(input_tokens=3) + anthropic.text(0, "Hello") + anthropic.end(output_tokens=5),
    check_against=anthropic.check_against,
)

CHAT = WireFormat(
    make=OpenAIProvider,
    model=Model(id="gpt", provider="openai"),
    begun=chat.text("Hello"),
    body=chat.text("Hello")
    + chat.chunk(finish_reason="stop")
    + chat.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    + chat.DONE,
    check_against=chat.check_against,
)

RESPONSES = WireFormat(
    make=OpenAIResponsesProvider,
    model=Model(id="gpt", provider="openai"),
    begun=responses.created() + responses.text(0, "Hello"),
    body=responses.created()
    + responses.message(0, "Hello")
    + responses.end(usage={"input_tokens": 3, "output_tokens": 5}),
    check_against=responses.check_against,
)
