"""Payloads of one call, in tests: what is asked stands beside what a format is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepi_anyio.providers.model_call import ModelCall, StreamOptions
from cubepi_anyio.types import JsonObject, Message, Model

_OF_THE_CALL = ("system_prompt", "tools", "tool_choice")
_OF_THE_OPTIONS = ("settings", "reasoning", "response_schema", "max_output_tokens", "temperature")


def asking(build: Callable[..., JsonObject]) -> Callable[..., JsonObject]:
    """``build(model, call, **format_options)`` as a function of the parts of the call."""

    def build_payload(model: Model, messages: Sequence[Message], **said: Any) -> JsonObject:
        call = {name: said.pop(name) for name in _OF_THE_CALL if name in said}
        options = {name: said.pop(name) for name in _OF_THE_OPTIONS if name in said}
        return build(model, ModelCall.of(messages, **call, options=StreamOptions(**options)), **said)

    return build_payload
