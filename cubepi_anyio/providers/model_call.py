"""One value for what is asked of a model, and who can be asked it.

At the border the parts stand apart, as the seeds wrote them: ``Provider.stream(model, messages, *, system_prompt,
tools, options)``, ``StreamingModel.stream(messages, *, ...)``. Inside they are one ``ModelCall``: every model that is
asked gets the same, and every wire format makes its payload of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from ..concurrency import AbortSignal
from ..stream.message_stream import MessageStream
from ..types.messages import AssistantMessage, Message
from ..types.model import Model, ReasoningControl, ResponseSchema, ToolChoice
from ..types.settings import ModelSettings
from ..types.tool import ToolDefinition

__all__ = (
    "AroundTry",
    "AskedModel",
    "ModelCall",
    "ModelOutcome",
    "OnPayload",
    "OnResponse",
    "Provider",
    "ProviderResponse",
    "StreamOptions",
    "StreamingModel",
    "TryBody",
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


# --- a try ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutcome:
    """How one try that asked a provider ended."""

    message: AssistantMessage
    """The answer; where it failed or was cancelled, what had come of it."""
    error: Exception | None = None
    """What it failed with. ``None`` for an answer, and for a try that was cancelled."""
    said: bool = False
    """Whether anything of the answer, more than its head, was passed on: then nothing can stand in its place."""


class TryBody(Protocol):
    """The try itself, as ``AroundTry`` sees it."""

    @property
    def outcome(self) -> ModelOutcome | None:
        """How the try ended, also if it was cancelled; ``None`` before."""
        ...

    async def __call__(self) -> ModelOutcome:
        """Ask the provider and pass its answer on, all but its end, which comes when the hook has returned.

        A failure is an outcome, not an exception. A cancellation is raised; ``outcome`` is set by then. Raises
        ``UsageError`` when called a second time.
        """
        ...


AroundTry = Callable[["StreamingModel", TryBody], Awaitable[AssistantMessage | None]]
"""Stands around each try that asks a provider: ``await body()`` lets it happen.

``None`` keeps what the try came to. A message is the answer in its place, if nothing of one had been said. What is
raised ends the try as its error.
"""


# --- what is asked ----------------------------------------------------------------------------

_NO_SETTINGS = ModelSettings.model_construct()  # importing this builds no validator


@dataclass(frozen=True, slots=True, init=False)
class StreamOptions:
    """What one model call is given besides the conversation. Unknown options are refused (``TypeError``).

    ``temperature``, ``max_output_tokens``, ``extra_body`` and ``extra_headers`` are those of ``settings``; given by
    themselves, they are laid over it.
    """

    _: KW_ONLY
    signal: AbortSignal | None = None
    """Set when the run is aborted. The call is cancelled as well: look at it only where you cannot be cancelled."""
    on_payload: OnPayload | None = None
    on_response: OnResponse | None = None
    reasoning: ReasoningControl | None = None
    settings: ModelSettings = _NO_SETTINGS
    """How the model is to answer."""
    response_schema: ResponseSchema | None = None
    """What the text of the answer must look like; for providers that say ``takes_response_schema``."""
    around_try: AroundTry | None = None
    """Stands around each try that asks a provider. ``BoundModel`` calls it; the provider itself never sees it."""

    def __init__(
        self,
        *,
        signal: AbortSignal | None = None,
        on_payload: OnPayload | None = None,
        on_response: OnResponse | None = None,
        reasoning: ReasoningControl | None = None,
        settings: ModelSettings | None = None,
        response_schema: ResponseSchema | None = None,
        around_try: AroundTry | None = None,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        settings = settings if settings is not None else _NO_SETTINGS
        alone = (temperature, max_output_tokens, extra_body, extra_headers)
        if any(value is not None for value in alone):
            over = ModelSettings(
                temperature=temperature,
                max_output_tokens=max_output_tokens,
                extra_body=dict(extra_body) if extra_body is not None else None,
                extra_headers=dict(extra_headers) if extra_headers is not None else None,
            )
            settings = settings.merge(over)
        put = object.__setattr__  # the class is frozen
        put(self, "signal", signal)
        put(self, "on_payload", on_payload)
        put(self, "on_response", on_response)
        put(self, "reasoning", reasoning)
        put(self, "settings", settings)
        put(self, "response_schema", response_schema)
        put(self, "around_try", around_try)

    @property
    def temperature(self) -> float | None:
        """That of ``settings``."""
        return self.settings.temperature

    @property
    def max_output_tokens(self) -> int | None:
        """That of ``settings``."""
        return self.settings.max_output_tokens

    @property
    def extra_body(self) -> Mapping[str, Any] | None:
        """That of ``settings``."""
        return self.settings.extra_body

    @property
    def extra_headers(self) -> Mapping[str, str] | None:
        """That of ``settings``."""
        return self.settings.extra_headers


_NO_OPTIONS = StreamOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """What is asked; every model that is asked gets the same."""

    messages: list[Message]
    system_prompt: str = ""
    tools: list[ToolDefinition] | None = None
    tool_choice: ToolChoice | None = None
    options: StreamOptions = _NO_OPTIONS

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> ModelCall:
        """The call of what a ``stream`` method was given; the list of messages is copied."""
        return cls(
            messages=list(messages),
            system_prompt=system_prompt,
            tools=tools,
            tool_choice=tool_choice,
            options=options if options is not None else _NO_OPTIONS,
        )

    @property
    def is_aborted(self) -> bool:
        """Whether the run has been told to stop, so that nobody is to be asked any more."""
        signal = self.options.signal
        return signal is not None and signal.is_set()

    def settings_of(self, model: Model) -> ModelSettings:
        """How ``model`` is to answer: its own settings, and those of the call laid over them."""
        said = self.options.settings
        return model.settings.merge(said) if model.settings is not None else said

    def with_options(self, **changes: Any) -> ModelCall:
        """The same call with some of its options changed."""
        return replace(self, options=replace(self.options, **changes))

    async def ask(self, model: StreamingModel) -> MessageStream:
        """Ask ``model``; the work starts when the stream is entered. Raises ``TypeError`` for what is no stream."""
        stream: Any
        if isinstance(model, AskedModel) and type(model).stream is AskedModel.stream:
            stream = await model.open(self)
        else:
            stream = await model.stream(
                self.messages,
                system_prompt=self.system_prompt,
                tools=self.tools,
                tool_choice=self.tool_choice,
                options=self.options,
            )
        if not isinstance(stream, MessageStream):
            raise TypeError(f"a model's stream() returns a MessageStream, not {type(stream).__name__}")
        return stream


# --- who is asked -----------------------------------------------------------------------------


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


class AskedModel:
    """The face of the models of this package, written once over ``open``."""

    __slots__ = ()

    @abstractmethod
    async def open(self, call: ModelCall) -> MessageStream:
        """Return the stream of the answer to ``call``."""
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
        return await self.open(ModelCall.of(messages, system_prompt, tools, tool_choice, options))

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
        cancelling it closes the connections."""
        async with await self.open(ModelCall.of(messages, system_prompt, tools, tool_choice, options)) as stream:
            return await stream.result()
