"""What a provider is, what it is given, and a model bound to one.

The names of the seeds are importable from here, as they are from ``cubepi_anyio``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from ..concurrency import AbortSignal as AbortSignal
from ..events.stream import StreamEvent as StreamEvent
from ..stream.draft import DraftWriter as DraftWriter
from ..stream.draft import MessageDraft as MessageDraft
from ..stream.message_stream import MessageStream as MessageStream
from ..types.content import Content as Content
from ..types.content import DocumentContent as DocumentContent
from ..types.content import ImageContent as ImageContent
from ..types.content import OpaqueContent as OpaqueContent
from ..types.content import TextContent as TextContent
from ..types.content import ThinkingContent as ThinkingContent
from ..types.content import ToolCall as ToolCall
from ..types.messages import AssistantMessage as AssistantMessage
from ..types.messages import Message as Message
from ..types.messages import ToolResultMessage as ToolResultMessage
from ..types.messages import UserMessage as UserMessage
from ..types.model import Model as Model
from ..types.model import ReasoningControl as ReasoningControl
from ..types.model import ResponseSchema as ResponseSchema
from ..types.model import ToolChoice as ToolChoice
from ..types.tool import ToolDefinition as ToolDefinition
from ..types.usage import ModelCost as ModelCost
from ..types.usage import Usage as Usage
from .observers import Observers, OnChunk, OnRequest, OnResponseMessage

__all__ = (
    "BaseProvider",
    "BoundModel",
    "OnPayload",
    "OnResponse",
    "Provider",
    "ProviderResponse",
    "StreamOptions",
    "StreamingModel",
    "invoke_on_payload",
    "invoke_on_response",
    "open_stream",
)

OnPayload = Callable[[dict[str, Any], Model], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
"""Sees each request before it is sent; a returned dict replaces it, ``None`` keeps it."""


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """The head of an HTTP answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])


OnResponse = Callable[[ProviderResponse, Model], Awaitable[None] | None]
"""Sees the head of each answer before its body is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What one model call is given besides the conversation. Unknown options are refused (``TypeError``)."""

    signal: AbortSignal | None = None
    """Set when the run is aborted. The call is cancelled as well: look at it only where you cannot be cancelled."""
    on_payload: OnPayload | None = None
    on_response: OnResponse | None = None
    reasoning: ReasoningControl | None = None
    max_output_tokens: int | None = None
    """Instead of the model's ``max_tokens``."""
    temperature: float | None = None
    """Instead of the model's ``temperature``."""
    extra_body: Mapping[str, Any] | None = None
    """Merged into the payload last, key by key."""
    extra_headers: Mapping[str, str] | None = None
    response_schema: ResponseSchema | None = None
    """What the text of the answer must look like; for providers that say ``takes_response_schema``."""


@runtime_checkable
class Provider(Protocol):
    """Anything with this one method can be given to an agent.

    ``stream`` returns at once; the work is the stream's producer, and starts when the stream is entered. What goes
    wrong after the call is an ``error`` event in the stream, never an exception of the call. ``tool_choice=`` is
    passed to providers that declare it.
    """

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Return the stream of one answer."""
        ...


class BaseProvider:
    """What providers share: binding models, asking without streaming, and observers."""

    api: str = ""
    """The wire format; messages remember it, and vendor data goes back to the same one only."""

    takes_response_schema: bool = False
    """Whether the vendor makes its models keep to ``StreamOptions.response_schema``."""

    def __init__(self, *, provider_id: str = "") -> None:
        self.provider_id = provider_id
        self.observers: Observers = Observers()

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Return the stream of one answer. Every provider has its own."""
        raise TypeError(f"{type(self).__name__} defines no stream()")

    def model(
        self,
        id: str,
        *,
        api: str = "",
        reasoning: bool = False,
        context_window: int = 200_000,
        max_tokens: int = 8192,
        temperature: float | None = None,
        cost: ModelCost | None = None,
    ) -> BoundModel:
        """Name a model of this provider, ready to be given to an agent."""
        spec = Model(
            id=id,
            provider=self.provider_id,
            api=api or self.api,
            reasoning=reasoning,
            context_window=context_window,
            max_tokens=max_tokens,
            temperature=temperature,
            cost=cost,
        )
        return BoundModel(self, spec)

    async def generate(
        self,
        model: Model,
        messages: Sequence[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> AssistantMessage:
        """Ask and wait for the whole answer. A failure is a message with ``stop_reason="error"``. A checkpoint;
        cancelling it closes the connection."""
        return await BoundModel(self, model).generate(
            messages, system_prompt=system_prompt, tools=tools, tool_choice=tool_choice, options=options
        )

    def subscribe_request(self, observer: OnRequest) -> Callable[[], None]:
        """See each request before it is sent; returns the function that unsubscribes."""
        return self.observers.subscribe_request(observer)

    def subscribe_chunk(self, observer: OnChunk) -> Callable[[], None]:
        """See each stream event; returns the function that unsubscribes."""
        return self.observers.subscribe_chunk(observer)

    def subscribe_response(self, observer: OnResponseMessage) -> Callable[[], None]:
        """See how each request ended; returns the function that unsubscribes."""
        return self.observers.subscribe_response(observer)


class StreamingModel(Protocol):
    """What an agent asks: a ``BoundModel``, or something that asks several of them.

    ``spec`` and ``provider`` are those of the model that would be asked first.
    """

    @property
    def spec(self) -> Model:
        """What the model is."""
        ...

    @property
    def provider(self) -> Provider:
        """Who serves it."""
        ...

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Return the stream of one answer; enter it to start it."""
        ...

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> AssistantMessage:
        """Ask and wait for the whole answer. A failure is a message with ``stop_reason="error"``."""
        ...


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A model together with the provider that serves it."""

    provider: Provider
    spec: Model

    @property
    def takes_response_schema(self) -> bool:
        """Whether the provider makes its models keep to ``StreamOptions.response_schema``."""
        return bool(getattr(self.provider, "takes_response_schema", False))

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Return the stream of one answer; enter it to start it."""
        return await open_stream(
            self.provider,
            self.spec,
            messages,
            system_prompt=system_prompt,
            tools=tools,
            tool_choice=tool_choice,
            options=options,
        )

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> AssistantMessage:
        """Ask and wait for the whole answer. A failure is a message with ``stop_reason="error"``. A checkpoint;
        cancelling it closes the connection."""
        stream = await self.stream(
            messages, system_prompt=system_prompt, tools=tools, tool_choice=tool_choice, options=options
        )
        async with stream:
            return await stream.result()

    def with_options(self, **changes: Any) -> BoundModel:
        """The same model with some fields of its ``Model`` changed."""
        return replace(self, spec=self.spec.model_copy(update=changes))


async def open_stream(
    provider: Provider,
    model: Model,
    messages: Sequence[Message],
    *,
    system_prompt: str,
    tools: list[ToolDefinition] | None,
    tool_choice: ToolChoice | None,
    options: StreamOptions | None,
) -> MessageStream:
    """Call ``provider.stream``, with ``tool_choice`` only if the provider declares it."""
    extra: dict[str, Any] = {}
    if tool_choice is not None and _declares_tool_choice(type(provider)):
        extra["tool_choice"] = tool_choice
    return await provider.stream(
        model,
        messages if isinstance(messages, list) else list(messages),
        system_prompt=system_prompt,
        tools=tools,
        options=options,
        **extra,
    )


@lru_cache(maxsize=256)
def _declares_tool_choice(provider: type[Provider]) -> bool:
    parameters = inspect.signature(provider.stream).parameters.values()
    return any(p.name == "tool_choice" or p.kind is p.VAR_KEYWORD for p in parameters)


async def invoke_on_payload(hook: OnPayload | None, payload: dict[str, Any], model: Model) -> dict[str, Any]:
    """Show ``payload`` to ``hook``, sync or async; what it returns is sent instead, unless it is ``None``."""
    if hook is None:
        return payload
    outcome: Any = hook(payload, model)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return payload if outcome is None else outcome


async def invoke_on_response(hook: OnResponse | None, response: ProviderResponse, model: Model) -> None:
    """Show the head of an answer to ``hook``, sync or async."""
    if hook is not None:
        outcome = hook(response, model)
        if inspect.isawaitable(outcome):
            await outcome
