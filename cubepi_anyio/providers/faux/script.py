"""What the faux model is told to say, and how it is to fail. Pure; ``provider.py`` plays it.

The unit of streaming is the delta: one token of a few characters, as real models send them.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ...types.content import AssistantContent, ImageContent, OpaqueContent, TextContent, ThinkingContent, ToolCall
from ...types.messages import AssistantMessage, Message
from ...types.model import Model
from ...types.tool import ToolDefinition
from ...types.usage import Usage

__all__ = (
    "FauxFactory",
    "FauxReply",
    "FauxResponse",
    "arguments_text",
    "as_response",
    "ask_factory",
    "cut_text",
    "faux_assistant_message",
    "faux_text",
    "faux_thinking",
    "faux_tool_call",
)

_call_numbers = itertools.count(1)


def faux_text(text: str) -> TextContent:
    """A text block."""
    return TextContent(text=text)


def faux_thinking(thinking: str, signature: str | None = None) -> ThinkingContent:
    """A thinking block; with a ``signature`` it survives being cut off, as with the vendors that sign."""
    return ThinkingContent(thinking=thinking, signature=signature)


def faux_tool_call(name: str, args: Mapping[str, Any] | str | None = None, *, id: str | None = None) -> ToolCall:
    """A tool call. Without ``id`` it gets the next of ``faux_call_1``, ``faux_call_2``, … of this process.

    ``args`` given as a string are what the model writes, to the letter: give broken JSON to have the call
    arrive with ``invalid_arguments``.
    """
    call_id = id if id is not None else f"faux_call_{next(_call_numbers)}"
    if isinstance(args, str):
        return ToolCall(id=call_id, name=name, invalid_arguments=args)
    return ToolCall(id=call_id, name=name, arguments=dict(args or {}))


def faux_assistant_message(
    content: str | AssistantContent | Sequence[str | AssistantContent],
    *,
    stop_reason: str | None = None,
    error_message: str | None = None,
    usage: Usage | None = None,
) -> AssistantMessage:
    """A whole answer from a text, a block, or a list of both.

    ``stop_reason`` is by default ``"error"`` if there is an ``error_message``, else ``"tool_use"`` if there are
    calls, else ``"stop"``. ``usage`` replaces what the faux model would count.
    """
    parts = [content] if isinstance(content, str) or not isinstance(content, Sequence) else content
    blocks: list[AssistantContent] = [TextContent(text=part) if isinstance(part, str) else part for part in parts]
    if stop_reason is None:
        has_calls = any(isinstance(block, ToolCall) for block in blocks)
        stop_reason = "error" if error_message is not None else "tool_use" if has_calls else "stop"
    return AssistantMessage(content=blocks, stop_reason=stop_reason, error_message=error_message, usage=usage)


@dataclass(frozen=True, slots=True)
class FauxResponse:
    """An answer together with what goes wrong while it is sent.

    Positions count the deltas of the whole message, over all its blocks: ``0`` is after the ``start`` event and
    before the first block; ``n`` is right after the n-th delta, before its block ends; a number larger than there are
    deltas is after the last block and before the terminal event. At the same position a stall comes first, then a
    failure, then the end. Without any fault the answer is sent as it is.
    """

    message: str | AssistantMessage | AssistantContent | Sequence[str | AssistantContent] = ""
    stall_before_start: bool = False
    """Wait, before anything is sent, for ``FauxProvider.release_stalls()`` or for being cancelled."""
    stall_after_deltas: int | None = None
    """Wait there for ``FauxProvider.release_stalls()`` or for being cancelled."""
    fail_with: Exception | None = None
    """The error the stream ends with: without ``fail_after_deltas`` before anything is sent, as a refused request."""
    fail_after_deltas: int | None = None
    end_after_deltas: int | None = None
    """Stop sending there, without a terminal event, as a connection that closes."""
    forget_result: bool = False
    """Send whole messages with the events, as a hand-written provider does, then ``done``, and never set the result."""
    garble_arguments: bool = False
    """Leave out the last character of the arguments of each call, so that they are no JSON."""

    def __post_init__(self) -> None:
        positions = (self.stall_after_deltas, self.fail_after_deltas, self.end_after_deltas)
        if any(position is not None and position < 0 for position in positions):
            raise ValueError("a position is the number of deltas sent before it, 0 or more")
        if self.fail_after_deltas is not None and self.fail_with is None:
            raise ValueError("fail_after_deltas says where to fail; give the error as fail_with=")

    @property
    def is_refused(self) -> bool:
        """Whether it fails before anything is sent: no head of an answer, no tokens billed, nothing cached."""
        return self.fail_with is not None and self.fail_after_deltas is None

    def answer(self) -> AssistantMessage:
        """The message to be sent, whatever it was given as."""
        return self.message if isinstance(self.message, AssistantMessage) else faux_assistant_message(self.message)


FauxReply = str | AssistantMessage | AssistantContent | Sequence[str | AssistantContent] | FauxResponse | Exception
"""One answer. An exception stands for a request that is refused with it."""

FauxFactory = Callable[..., FauxReply | Awaitable[FauxReply]]
"""Makes the answer when it is asked for, from what the model was sent; see ``ask_factory``."""


def as_response(reply: FauxReply) -> FauxResponse:
    """Bring the ways to give an answer into one. Raises ``TypeError`` for what is none."""
    match reply:
        case FauxResponse():
            return reply
        case Exception():
            return FauxResponse(fail_with=reply)
        case (
            str()
            | AssistantMessage()
            | TextContent()
            | ThinkingContent()
            | ToolCall()
            | ImageContent()
            | OpaqueContent()
        ):
            return FauxResponse(reply)
        case list() | tuple():
            return FauxResponse(reply)
        case _:
            raise TypeError(
                f"the faux model cannot say {type(reply).__name__}; give it a text, content blocks, an "
                "AssistantMessage, a FauxResponse, an exception, or a function that returns one of these"
            )


async def ask_factory(
    factory: FauxFactory,
    messages: list[Message],
    model: Model,
    system_prompt: str,
    tools: list[ToolDefinition] | None,
) -> FauxReply:
    """Call a factory with as many of ``(messages, model, system_prompt, tools)`` as it has parameters without default.

    Parameters with a default are the factory's own (``lambda messages, n=n: …``); ``*args`` takes all four. An
    awaitable is awaited.
    """
    given = (messages, model, system_prompt, tools)
    outcome = factory(*given[: _required_positionals(factory)])
    return await outcome if inspect.isawaitable(outcome) else outcome


def _required_positionals(factory: Callable[..., object]) -> int:
    parameters = inspect.signature(factory).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 4
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


def arguments_text(call: ToolCall, *, garbled: bool = False) -> str:
    """What the model writes as the arguments of ``call``: JSON, or what ``invalid_arguments`` says."""
    if call.invalid_arguments is not None:
        return call.invalid_arguments
    text = json.dumps(call.arguments, ensure_ascii=False)
    return text[:-1] if garbled else text


def cut_text(text: str, sizes: Sequence[int], random: Random) -> Iterator[str]:
    """Cut ``text`` into deltas of random ``sizes`` (characters), one at a time and never empty."""
    start, end = 0, len(text)
    while start < end:
        for size in random.choices(sizes, k=64):
            yield text[start : start + size]
            start += size
            if start >= end:
                return
