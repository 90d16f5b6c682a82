"""What a provider is, what it is given, and a model bound to one.

The names of the seeds are importable from here, as they are from ``cubepi_anyio``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from anyio.lowlevel import checkpoint

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
from ..types.settings import ModelSettings as ModelSettings
from ..types.tool import ToolDefinition as ToolDefinition
from ..types.usage import ModelCost as ModelCost
from ..types.usage import Usage as Usage
from .around_try import stream_of_try
from .model_call import AroundTry as AroundTry
from .model_call import AskedModel as AskedModel
from .model_call import ModelCall as ModelCall
from .model_call import ModelOutcome as ModelOutcome
from .model_call import OnPayload as OnPayload
from .model_call import OnResponse as OnResponse
from .model_call import Provider as Provider
from .model_call import ProviderResponse as ProviderResponse
from .model_call import StreamingModel as StreamingModel
from .model_call import StreamOptions as StreamOptions
from .model_call import TryBody as TryBody
from .observers import Observers, OnChunk, OnRequest, OnResponseMessage

__all__ = (
    "AskedModel",
    "BaseProvider",
    "BoundModel",
    "ModelCall",
    "OnPayload",
    "OnResponse",
    "Provider",
    "ProviderResponse",
    "StreamOptions",
    "StreamingModel",
    "invoke_on_payload",
    "invoke_on_response",
)


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
        max_tokens: int | None = None,
        temperature: float | None = None,
        cost: ModelCost | None = None,
        settings: ModelSettings | None = None,
    ) -> BoundModel:
        """Name a model of this provider, ready to be given to an agent.

        ``settings`` are how it answers, unless the agent or the run says otherwise.
        """
        said = {} if max_tokens is None else {"max_tokens": max_tokens}
        spec = Model(
            id=id,
            provider=self.provider_id,
            api=api or self.api,
            reasoning=reasoning,
            context_window=context_window,
            temperature=temperature,
            cost=cost,
            settings=settings,
            **said,
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


@dataclass(frozen=True, slots=True)
class BoundModel(AskedModel):
    """A model together with the provider that serves it."""

    provider: Provider
    spec: Model

    @property
    def takes_response_schema(self) -> bool:
        """Whether the provider makes its models keep to ``StreamOptions.response_schema``."""
        return bool(getattr(self.provider, "takes_response_schema", False))

    async def open(self, call: ModelCall) -> MessageStream:
        """Ask the provider and return its stream, or the stream of the try where one stands around it.

        The provider finds the model's settings in ``options.settings``, and ``tool_choice`` only if it declares it.
        """
        options = call.options
        if options.around_try is not None:
            await checkpoint()
            return stream_of_try(self, call.with_options(around_try=None), options.around_try)
        if self.spec.settings is not None:
            options = replace(options, settings=call.settings_of(self.spec))
        declared: dict[str, Any] = {}
        if call.tool_choice is not None and _declares_tool_choice(type(self.provider)):
            declared["tool_choice"] = call.tool_choice
        return await self.provider.stream(
            self.spec,
            call.messages,
            system_prompt=call.system_prompt,
            tools=call.tools,
            options=options,
            **declared,
        )

    def with_options(self, **changes: Any) -> BoundModel:
        """The same model with some fields of its ``Model`` changed."""
        return replace(self, spec=self.spec.model_copy(update=changes))


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
