"""``FauxProvider``: plays a script with real streaming, usage, a prompt cache and injected faults.

What it says is in ``script.py``, what a prompt costs in ``prompt_cache.py``. A provider object touches no event
loop until it is asked, and may be used on one loop after another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from anyio.lowlevel import checkpoint

from ...errors import FauxQueueEmpty
from ...stream.message_stream import MessageStream
from ...types.messages import Message
from ...types.model import Model, ToolChoice
from ...types.tool import ToolDefinition
from ...types.usage import Usage
from ..base import BaseProvider, invoke_on_payload, invoke_on_response
from ..model_call import ProviderResponse, StreamOptions
from .play import Play, PlayContext
from .prompt_cache import PromptCache
from .script import FauxFactory, FauxReply, FauxResponse, as_response, ask_factory
from .stalls import Stalls

__all__ = ("FauxCall", "FauxProvider")


@dataclass(slots=True, kw_only=True)
class FauxCall:
    """What one call of the faux model was given."""

    model: Model
    messages: list[Message]
    """The list as it was at the call; the messages in it are the caller's own objects."""
    system_prompt: str
    tools: list[ToolDefinition]
    tool_choice: ToolChoice | None
    options: StreamOptions
    payload: dict[str, Any] | None = None
    """What was sent after ``on_payload`` had seen it; ``None`` until the stream is entered."""


class FauxProvider(BaseProvider):
    """A deterministic model for tests: it says what it was told to, token by token, and fails when told to.

    Each call takes the next response of a queue at the moment of the call. Texts, thinking and arguments are sent in
    deltas of ``token_size_min`` to ``token_size_max`` characters, cut by a random generator that depends only
    on ``seed`` and on the number of the call. Usage counts a token for four characters.
    """

    api = "faux"

    def __init__(
        self,
        *,
        provider_id: str = "faux",
        tokens_per_second: float | None = None,
        token_size_min: int = 3,
        token_size_max: int = 5,
        seed: int = 0,
        prompt_cache: bool = True,
    ) -> None:
        """``tokens_per_second`` paces the deltas, one token each; ``None`` sends as fast as the consumer reads.

        Without ``prompt_cache`` every prompt is read at the full price. Raises ``ValueError`` for sizes below 1 or in
        the wrong order, and for a pace that is not positive.
        """
        if not 1 <= token_size_min <= token_size_max:
            raise ValueError(f"token sizes are 1 <= min <= max, not {token_size_min} and {token_size_max}")
        if tokens_per_second is not None and not tokens_per_second > 0:
            raise ValueError(f"tokens_per_second is positive, or None for no pacing; not {tokens_per_second}")
        super().__init__(provider_id=provider_id)
        self.calls: list[FauxCall] = []
        """Every call so far, oldest first."""
        self._delta_seconds = 1 / tokens_per_second if tokens_per_second is not None else None
        self._sizes = range(token_size_min, token_size_max + 1)
        self._seed = seed
        self._responses: deque[FauxReply | FauxFactory] = deque()
        self._prompt_cache = PromptCache()
        self._caching = prompt_cache
        self._stalls = Stalls()

    # --- what it will say --------------------------------------------------------------------

    def set_responses(self, responses: Iterable[FauxReply | FauxFactory]) -> None:
        """Replace the queue. A response is a text, content blocks, an ``AssistantMessage``, a ``FauxResponse``, an
        exception, or a function, sync or async, that returns one of these (see ``ask_factory`` for its parameters)."""
        self._responses = deque(_checked(responses))

    def append_responses(self, responses: Iterable[FauxReply | FauxFactory]) -> None:
        """Add to the end of the queue."""
        self._responses.extend(_checked(responses))

    @property
    def pending_response_count(self) -> int:
        """How many responses are left in the queue."""
        return len(self._responses)

    @property
    def call_count(self) -> int:
        """How many times the model was called, calls that found the queue empty included."""
        return len(self.calls)

    def clear_prompt_cache(self) -> None:
        """Forget every prompt, so that the next one is written to the cache whole."""
        self._prompt_cache.clear()

    # --- stalls ------------------------------------------------------------------------------

    @property
    def stalled_count(self) -> int:
        """How many streams wait in a stall now."""
        return self._stalls.count

    async def wait_stalled(self, count: int = 1) -> None:
        """Return when at least ``count`` streams wait in a stall. A checkpoint; cancelling it changes nothing."""
        await self._stalls.wait_for(count)

    def release_stalls(self) -> None:
        """Let the streams that wait in a stall go on; later ones will wait."""
        self._stalls.release()

    # --- answering ---------------------------------------------------------------------------

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        tool_choice: ToolChoice | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Take the next response and return its stream. A checkpoint; cancelled there, the response is used up."""
        call = FauxCall(
            model=model,
            messages=list(messages),
            system_prompt=system_prompt,
            tools=list(tools or ()),
            tool_choice=tool_choice,
            options=options if options is not None else StreamOptions(),
        )
        self.calls.append(call)
        number = len(self.calls)
        reply = self._responses.popleft() if self._responses else FauxQueueEmpty(number)

        async def produce(stream: MessageStream) -> None:
            await self._produce(stream, call, number, reply)

        await checkpoint()
        return MessageStream(produce)

    async def _produce(
        self, stream: MessageStream, call: FauxCall, number: int, reply: FauxReply | FauxFactory
    ) -> None:
        play = Play(stream, self._play_context(call.model, number))
        try:
            payload = await self._send(call)
            response = await _resolve(reply, call, payload)
            if response.is_refused:
                await play.run(response, Usage())
            else:
                await invoke_on_response(call.options.on_response, ProviderResponse(status=200), call.model)
                await play.run(response, self._prompt_usage(call, payload))
        except Exception as error:
            await play.fail(error)
        except GeneratorExit:  # the loop has gone: nothing can be awaited any more
            raise
        except BaseException:
            await play.abort()  # noqa: ASYNC102 - shields itself, and has an end
            raise

    def _play_context(self, model: Model, number: int) -> PlayContext:
        return PlayContext(
            model=model,
            api=model.api or self.api,
            observers=self.observers,
            stalls=self._stalls,
            sizes=self._sizes,
            random=Random(self._seed * 1_000_003 + number),
            delta_seconds=self._delta_seconds,
            response_id=f"faux_{number}",
        )

    async def _send(self, call: FauxCall) -> dict[str, Any]:
        """Show the request to those who watch, and return what they made of it."""
        payload: dict[str, Any] = {
            "model": call.model.id,
            "messages": list(call.messages),
            "system_prompt": call.system_prompt,
            "tools": list(call.tools),
        }
        payload = await invoke_on_payload(call.options.on_payload, payload, call.model)
        call.payload = payload
        await self.observers.request(payload, call.model)
        return payload

    def _prompt_usage(self, call: FauxCall, payload: dict[str, Any]) -> Usage:
        usage = self._prompt_cache.read(
            call.model.id,
            payload.get("system_prompt", call.system_prompt),
            payload.get("tools", call.tools) or (),
            list(payload.get("messages", call.messages)),
        )
        return usage if self._caching else Usage(input_tokens=usage.context_tokens)


def _checked(responses: Iterable[FauxReply | FauxFactory]) -> Iterable[FauxReply | FauxFactory]:
    if isinstance(responses, str):
        raise TypeError("give a list of responses; a single text would be taken for its characters")
    checked = list(responses)
    for response in checked:
        if not callable(response):
            as_response(response)
    return checked


async def _resolve(reply: FauxReply | FauxFactory, call: FauxCall, payload: dict[str, Any]) -> FauxResponse:
    if not callable(reply):
        return as_response(reply)
    made = await ask_factory(
        reply,
        payload.get("messages", call.messages),
        call.model,
        payload.get("system_prompt", call.system_prompt),
        payload.get("tools", call.tools),
    )
    return as_response(made)
