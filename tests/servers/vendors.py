"""The three wire formats under one roof: how to make each one's provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider

AnyProvider = AnthropicProvider | OpenAIProvider | OpenAIResponsesProvider

KEY = "key-of-a-test"


@dataclass(frozen=True)
class Vendor:
    """A wire format."""

    name: str
    make: Callable[..., AnyProvider]

    def at(self, base_url: str, **options: Any) -> AnyProvider:
        """The provider for a server."""
        return self.make(**{"api_key": KEY, "base_url": base_url, **options})


VENDORS = [
    Vendor("anthropic", AnthropicProvider),
    Vendor("openai-chat", OpenAIProvider),
    Vendor("openai-responses", OpenAIResponsesProvider),
]
