"""From a name such as ``anthropic:claude-sonnet-4-5`` to a model that can be asked, or to what is missing for it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import UsageError
from ..providers.base import BaseProvider, BoundModel
from .demo.script import scripted_provider
from .local_model import local_provider
from .screen.text import printable

__all__ = ("ModelSettings", "key_variables", "open_model", "takes_tools")

_ANTHROPIC_KEY = "ANTHROPIC_API_KEY"
_OPENAI_KEY = "OPENAI_API_KEY"
_WITHOUT_KEY = "without a key there are ollama:ID, local, and faux, which is only a script"
_LOCAL_CONTEXT_TOKENS = 2048
_LOCAL_ANSWER_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model, and how it is asked."""

    name: str
    base_url: str | None = None
    max_tokens: int | None = None
    """The most tokens of an answer; ``None`` for the model's own limit, or 8192 where the vendor wants a number."""
    reasoning: bool = False


def takes_tools(name: str) -> bool:
    """Whether the model is offered tools: the small local one would lose its short context to their description."""
    return name.partition(":")[0] != "local"


def key_variables() -> frozenset[str]:
    """The environment variables that hold vendors' keys."""
    from ..providers.openai_chat.presets import PRESETS  # noqa: PLC0415 - loads the HTTP client

    return frozenset({_ANTHROPIC_KEY, _OPENAI_KEY, *(preset.key_variable for preset in PRESETS.values())})


@contextmanager
def open_model(settings: ModelSettings) -> Generator[BoundModel]:
    """Have a model ready as long as the block lasts; what was started for it ends with the block.

    Raises ``UsageError`` for a name that means nothing, and where a key, an address or a part of the installation is
    missing; the message says which and what to do.
    """
    vendor, _, model_id = settings.name.partition(":")
    if vendor == "faux":
        yield scripted_provider(model_id).model("script", max_tokens=settings.max_tokens)
    elif vendor == "local":
        with local_provider(model_id, context_tokens=_LOCAL_CONTEXT_TOKENS) as provider:
            yield provider.model(
                "local",
                context_window=_LOCAL_CONTEXT_TOKENS,
                max_tokens=min(settings.max_tokens or _LOCAL_ANSWER_TOKENS, _LOCAL_ANSWER_TOKENS),
            )
    else:
        yield _vendors_model(vendor, model_id, settings)


def _vendors_model(vendor: str, model_id: str, settings: ModelSettings) -> BoundModel:
    provider = _provider(vendor, settings)
    if not model_id:
        raise UsageError(f"{vendor} serves many models: give the id of one, as {vendor}:ID")
    return provider.model(model_id, max_tokens=settings.max_tokens, reasoning=settings.reasoning)


def _provider(vendor: str, settings: ModelSettings) -> BaseProvider:
    """The vendor's provider, if it has all it needs. Each is loaded only when it is named."""
    if vendor == "anthropic":
        from ..providers.anthropic import AnthropicProvider  # noqa: PLC0415

        _need_key(vendor, _ANTHROPIC_KEY)
        return AnthropicProvider(base_url=settings.base_url)
    if vendor == "openai-responses":
        from ..providers.openai_responses import OpenAIResponsesProvider  # noqa: PLC0415

        _need_key(vendor, _OPENAI_KEY)
        return OpenAIResponsesProvider(base_url=settings.base_url)
    return _chat_provider(vendor, settings)


def _chat_provider(vendor: str, settings: ModelSettings) -> BaseProvider:
    from ..providers.openai_chat import OpenAIProvider  # noqa: PLC0415
    from ..providers.openai_chat.presets import PRESETS  # noqa: PLC0415

    if vendor not in PRESETS:
        raise UsageError(_unknown(settings.name, ["anthropic", "openai-responses", *PRESETS, "local", "faux"]))
    preset = PRESETS[vendor]
    if preset.needs_key:
        _need_key(vendor, preset.key_variable)
    if not (settings.base_url or preset.base_url or os.environ.get(preset.base_url_variable)):
        raise UsageError(f"{vendor} has no common address: set {preset.base_url_variable}, or give --base-url")
    return OpenAIProvider(preset=preset, base_url=settings.base_url)


def _need_key(vendor: str, variable: str) -> None:
    if not os.environ.get(variable, "").strip():
        raise UsageError(f"{vendor} needs an API key: set the variable {variable}; {_WITHOUT_KEY}")


def _unknown(name: str, vendors: list[str]) -> str:
    ways = f"a model is VENDOR:ID, with one of the vendors {', '.join(vendors)}"
    return f"there is no model {printable(name)!r}; {ways}" if name else f"give a model with --model; {ways}"
