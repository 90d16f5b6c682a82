"""Plays one response of the faux model into a stream: deltas, pacing, faults, and how it ended."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import anyio

from ...concurrency import shielded
from ...errors import IncompleteStream, ProviderError
from ...events.stream import StreamEvent
from ...stream.builder import is_sendable, parse_arguments
from ...stream.draft import DraftWriter
from ...stream.message_stream import MessageStream
from ...types.content import AssistantContent, TextContent, ThinkingContent, ToolCall
from ...types.messages import AssistantMessage
from ...types.model import Model
from ...types.usage import Usage
from ..observers import Observers
from .prompt_cache import characters_of_block, tokens_of
from .script import FauxResponse, arguments_text, cut_text
from .stalls import Stalls

__all__ = ("Play", "PlayContext")

_NEVER = sys.maxsize

_BEFORE_START = -1

_OBSERVER_SECONDS = 1.0
"""How long the response observers of a cancelled call may take together."""


class _Cut(Exception):
    """The script says that nothing more is sent, not even a terminal event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayContext:
    """What is fixed for one call of the model."""

    model: Model
    api: str
    observers: Observers
    stalls: Stalls
    sizes: Sequence[int]
    random: Random
    delta_seconds: float | None
    response_id: str


class Play:
    """One answer while it is sent. The response observers are told once, before the consumer can see the end."""

    def __init__(self, stream: MessageStream, context: PlayContext) -> None:
        self._stream = stream
        self._context = context
        self._emit = context.observers.watch(stream.push, context.model)
        self._writer = DraftWriter(self._emit, context.model, api=context.api)
        self._header = AssistantMessage(
            provider_id=context.model.provider, model_id=context.model.id, api=context.api, usage=Usage()
        )
        self._prompt_usage = Usage()
        self._said: list[AssistantContent] = []
        self._growing: AssistantContent | None = None
        self._growing_from = 0
        self._characters = 0
        self._deltas = _BEFORE_START
        self._faults: list[tuple[int, Exception | None]] = []
        self._next_fault = _NEVER
        self._response = FauxResponse()
        self._told = False

    # --- the course of an answer -------------------------------------------------------------

    async def run(self, response: FauxResponse, prompt_usage: Usage) -> None:
        """Send ``response`` to its end, and raise what it is to fail with. Waits while the consumer is behind."""
        self._response, self._prompt_usage = response, prompt_usage
        self._faults = _fault_plan(response)
        answer = response.answer()
        try:
            await self._speak(answer)
        except _Cut:
            await self._tell("error", IncompleteStream("the faux model ended its answer without a terminal event"))
            return
        await self._end(answer)

    async def fail(self, error: Exception) -> None:
        """End the answer with ``error``."""
        await self._tell("error", error)
        self._writer.fail(error, usage=self._usage())

    async def abort(self) -> None:
        """Tell the observers that the call was cancelled; shielded, and bounded in time."""
        with shielded(_OBSERVER_SECONDS):
            await self._tell("aborted", None)

    async def _speak(self, answer: AssistantMessage) -> None:
        await self._meet_faults()
        self._start(answer)
        self._deltas = 0
        if self._next_fault <= 0:
            await self._meet_faults()
        for block in answer.content:
            await self._say(block)
            await self._stream.wait_writable()
        self._deltas = _NEVER
        await self._meet_faults()

    def _start(self, answer: AssistantMessage) -> None:
        blank = self._header
        self._header = answer.model_copy(
            update={
                "content": [],
                "metadata": copy.deepcopy(answer.metadata),
                "usage": self._prompt_usage,
                "provider_id": answer.provider_id or blank.provider_id,
                "model_id": answer.model_id or blank.model_id,
                "api": answer.api or blank.api,
                "response_id": answer.response_id or self._context.response_id,
                "stop_reason": blank.stop_reason,
                "error_message": None,
                "error_type": None,
            }
        )
        self._writer.started = True
        self._emit(StreamEvent("start", partial=self._header))

    async def _end(self, answer: AssistantMessage) -> None:
        usage = answer.usage if answer.usage is not None else self._usage()
        reason = answer.stop_reason
        if reason in ("error", "aborted"):
            text = answer.error_message or ("the answer was aborted" if reason == "aborted" else "the model failed")
            model = self._context.model
            error = ProviderError(text, provider=model.provider, model=model.id) if reason == "error" else None
            await self._tell(reason, error, usage=usage, error_message=text)
            self._emit(StreamEvent("error", error_message=text, error=error, stop_reason=reason, usage=usage))
            return
        message = self._message(reason, usage)
        await self._tell_of(message, None)
        if self._response.forget_result:
            self._emit(StreamEvent("done", partial=message))
        else:
            self._writer.done(reason, usage=usage)

    # --- blocks ------------------------------------------------------------------------------

    async def _say(self, block: AssistantContent) -> None:
        match block:
            case TextContent():
                opened = TextContent(vendor=block.vendor)
                await self._grow(opened, block.text, block.model_copy(update={"text": ""}), block.model_copy())
            case ThinkingContent(redacted=None):
                opened = ThinkingContent()
                await self._grow(opened, block.thinking, block.model_copy(update={"thinking": ""}), block.model_copy())
            case ToolCall():
                text = arguments_text(block, garbled=self._response.garble_arguments)
                opened = ToolCall(id=block.id, name=block.name, vendor=block.vendor)
                arguments, invalid = parse_arguments(text)
                written = opened.model_copy(update={"arguments": arguments, "invalid_arguments": invalid})
                self._characters += len(block.name)
                await self._grow(opened, text, written, written)
            case _:
                whole = block.model_copy(deep=True)
                self._writer.block(whole)
                self._said.append(whole)
                self._characters += characters_of_block(whole)

    async def _grow(
        self, opened: AssistantContent, text: str, closing: AssistantContent, finished: AssistantContent
    ) -> None:
        """Send one block: ``closing`` is what its end event knows besides the deltas, ``finished`` the whole of it."""
        index = self._writer.open(opened)
        self._growing, self._growing_from = finished, self._characters
        await self._send_deltas(index, text)
        self._writer.close(index, closing)
        self._growing = None
        self._said.append(finished)

    async def _send_deltas(self, index: int, text: str) -> None:
        append, wait_writable = self._writer.append, self._stream.wait_writable
        pause_seconds = self._context.delta_seconds
        for delta in cut_text(text, self._context.sizes, self._context.random):
            if pause_seconds is not None:
                await anyio.sleep(pause_seconds)
            append(index, delta)
            self._characters += len(delta)
            self._deltas += 1
            if self._deltas >= self._next_fault:
                await self._meet_faults()
            await wait_writable()

    # --- faults ------------------------------------------------------------------------------

    async def _meet_faults(self) -> None:
        """Do what the script says at this position, which may be to wait, to raise, or nothing."""
        while self._faults and self._faults[0][0] <= self._deltas:
            _, error = self._faults.pop(0)
            if error is not None:
                # A script may give one error to many calls: without this each raise would add to its traceback.
                raise error.with_traceback(None)
            await self._context.stalls.stall()
        self._next_fault = self._faults[0][0] if self._faults else _NEVER

    # --- what was said, and telling of it ----------------------------------------------------

    def _sent_blocks(self) -> list[AssistantContent]:
        """The blocks that ended, and the growing text or thinking as far as it was sent; a call is whole or absent."""
        match self._growing:
            case TextContent(text=text, vendor=vendor):
                cut = TextContent(text=text[: self._characters - self._growing_from], vendor=vendor)
            case ThinkingContent(thinking=thinking):
                # Vendors sign thinking at its end.
                cut = ThinkingContent(thinking=thinking[: self._characters - self._growing_from])
            case _:
                return list(self._said)
        return [*self._said, cut]

    def _usage(self) -> Usage:
        thinking = sum(len(block.thinking) for block in self._sent_blocks() if isinstance(block, ThinkingContent))
        return self._prompt_usage.model_copy(
            update={"output_tokens": tokens_of(self._characters), "reasoning_tokens": tokens_of(thinking)}
        )

    def _message(self, stop_reason: str, usage: Usage) -> AssistantMessage:
        return self._header.model_copy(update={"content": list(self._said), "stop_reason": stop_reason, "usage": usage})

    async def _tell(
        self, stop_reason: str, error: Exception | None, *, usage: Usage | None = None, error_message: str | None = None
    ) -> None:
        """Tell the observers of an answer that is not whole: what may be kept of it, and why."""
        message = self._message(stop_reason, usage if usage is not None else self._usage()).model_copy(
            update={
                "content": [block for block in self._sent_blocks() if is_sendable(block)],
                "error_message": error_message if error_message is not None else str(error) if error else None,
                "error_type": type(error).__name__ if error is not None else None,
            }
        )
        await self._tell_of(message, error)

    async def _tell_of(self, message: AssistantMessage, error: Exception | None) -> None:
        if not self._told:
            self._told = True
            await self._context.observers.response(message, self._context.model, error)


def _fault_plan(response: FauxResponse) -> list[tuple[int, Exception | None]]:
    """The faults of a response by position: an error to raise, or ``None`` to stall; the stall first if they meet."""
    plan: list[tuple[int, Exception | None]] = []
    if response.stall_before_start:
        plan.append((_BEFORE_START, None))
    if response.stall_after_deltas is not None:
        plan.append((response.stall_after_deltas, None))
    if response.fail_with is not None:
        position = response.fail_after_deltas
        plan.append((position if position is not None else _BEFORE_START, response.fail_with))
    if response.end_after_deltas is not None:
        plan.append((response.end_after_deltas, _Cut()))
    return sorted(plan, key=lambda fault: fault[0])
