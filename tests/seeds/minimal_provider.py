"""The minimal provider of the page "custom providers", and a backend to put behind it."""

# pyright: basic, reportAttributeAccessIssue=false
# The example keeps the page's own text, which has few annotations.

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from cubepi_anyio.providers.base import (
    AssistantMessage,
    Message,
    MessageStream,
    Model,
    StreamEvent,
    StreamOptions,
    TextContent,
    ToolDefinition,
    Usage,
)

Backend = Callable[[Any], AsyncIterator[str]]
backend: list[Backend] = []
asked: list[tuple[list[Message], str]] = []


def call_my_backend(messages: list[Message], model_id: str, signal: Any) -> AsyncIterator[str]:
    asked.append((messages, model_id))
    return backend[-1](signal)


class MyProvider:
    def __init__(self, *, api_key: str) -> None:
        self._api_key = api_key

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        opts = options or StreamOptions()
        ms = MessageStream()

        async def _produce():
            try:
                partial = AssistantMessage(
                    content=[TextContent(text="")],
                    usage=Usage(),
                    timestamp=time.time(),
                    provider_id=model.provider,
                    model_id=model.id,
                )
                ms.push(StreamEvent(type="start", partial=partial.model_copy(deep=True)))

                # Call your backend. Stream tokens:
                async for token in call_my_backend(messages, model.id, signal=opts.signal):
                    if opts.signal and opts.signal.is_set():
                        ms.push(StreamEvent(type="error", error_message="aborted"))
                        ms.set_result(partial.model_copy(update={"stop_reason": "aborted"}))
                        return
                    partial.content[-1] = TextContent(text=partial.content[-1].text + token)
                    ms.push(
                        StreamEvent(
                            type="text_delta",
                            delta=token,
                            partial=partial.model_copy(deep=True),
                        )
                    )

                ms.push(StreamEvent(type="done"))
                ms.set_result(partial)

            except Exception as exc:
                error_msg = AssistantMessage(
                    content=[],
                    stop_reason="error",
                    error_message=str(exc),
                    usage=Usage(),
                    timestamp=time.time(),
                )
                ms.push(StreamEvent(type="error", error_message=str(exc)))
                ms.set_result(error_msg)

        ms.attach_task(_produce)
        return ms


def provider_on(say: Backend) -> MyProvider:
    """The page's provider, on a backend that nobody has asked anything."""
    # The page calls its backend by a global name, so that there is one at a time.
    backend[:] = [say]
    asked.clear()
    return MyProvider(api_key="not-a-key")
