"""Ask the model once: show it the transcript, relay its answer, and close the message it made."""

from __future__ import annotations

import math
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..concurrency import hear_of_swallowed_cancellation
from ..errors import IncompleteStream, ProviderError
from ..hooks.middleware import TurnAction
from ..providers.base import StreamOptions
from ..stream.message_stream import MessageStream
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from .run import Run

__all__ = ("ask",)


async def ask(run: Run) -> TurnAction:
    """Ask the model and put its answer into the record; return what hooks decided about it.

    A failing model is an answer too: ``run.error`` says why. A checkpoint; cancelled, it leaves the answer open.
    """
    run.phase = "waiting"
    await checkpoint_if_cancelled()  # a run that has been ended asks no model any more
    shown, system_prompt = await _what_is_shown(run)
    asked_at = anyio.current_time()
    stream = await _open_stream(run, shown, system_prompt)
    run.open_answer(stream)
    async with stream:
        if run.limit is None:
            await _relay(run, stream, asked_at)
            # What lies ready is read without a checkpoint: a run that a listener has ended hears of it here.
            await checkpoint_if_cancelled()
        answer = await _result_of(stream) if run.limit is None else None
    action = TurnAction()
    if answer is not None and answer.stop_reason in ("error", "aborted"):
        run.error = stream.error or ProviderError(
            answer.error_message or "the model gave no reason", provider=answer.provider_id, model=answer.model_id
        )
    elif answer is not None and run.config.hooks.after_model_response is not None:
        action = await _after_response(run, answer)
        answer = action.response or answer
    run.finish_answer(None if answer is None else _without_cut_calls(answer))
    await run.outbox.flush()
    return action


async def _result_of(stream: MessageStream) -> AssistantMessage:
    try:
        return stream.result_nowait()
    except anyio.WouldBlock:
        return await stream.result()


async def _what_is_shown(run: Run) -> tuple[list[Message], str]:
    """The messages and the system prompt of this request, as hooks leave them; the transcript stays as it is."""
    hooks = run.config.hooks
    messages, system_prompt = list(run.messages), run.config.system_prompt
    if hooks.transform_context is not None:
        messages = await hooks.transform_context(messages, ctx=run.context(), signal=run.signal)
    if hooks.convert_to_llm is not None:
        messages = await hooks.convert_to_llm(messages, ctx=run.context(), signal=run.signal)
    if hooks.transform_system_prompt is not None:
        system_prompt = await hooks.transform_system_prompt(system_prompt, ctx=run.context(), signal=run.signal)
    return messages, system_prompt


async def _after_response(run: Run, answer: AssistantMessage) -> TurnAction:
    hook = run.config.hooks.after_model_response
    assert hook is not None
    return await hook(answer, ctx=run.context(), signal=run.signal) or TurnAction()


async def _open_stream(run: Run, messages: list[Message], system_prompt: str) -> MessageStream:
    """Ask the provider for its stream; a provider that raises instead is a stream that fails at once."""
    seconds = run.config.limits.first_token_timeout
    with anyio.move_on_after(seconds):
        return await _call_provider(run, messages, system_prompt)
    run.reach_limit("first_token_timeout", seconds or 0)
    return MessageStream()


async def _call_provider(run: Run, messages: list[Message], system_prompt: str) -> MessageStream:
    config = run.config
    options = StreamOptions(
        signal=run.signal,
        on_payload=config.on_payload,
        on_response=config.on_response,
        reasoning=config.reasoning,
    )
    try:
        stream: Any = await config.model.stream(
            messages,
            system_prompt=system_prompt,
            tools=config.definitions,
            tool_choice=config.tool_choice,
            options=options,
        )
        if not isinstance(stream, MessageStream):
            raise TypeError(f"a provider's stream() returns a MessageStream, not {type(stream).__name__}")
        return stream
    except Exception as error:
        return _failed_stream(error)
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
        # Raised again if it was meant for the run; otherwise the provider cancelled itself.
        await checkpoint_if_cancelled()  # noqa: ASYNC102 - it only asks
        await hear_of_swallowed_cancellation(run.native_cancels)  # noqa: ASYNC102 - it only asks
        return _failed_stream(IncompleteStream("the provider cancelled itself"))  # noqa: ASYNC104 - nobody else was meant


def _failed_stream(error: Exception) -> MessageStream:
    stream = MessageStream()
    stream.fail(error)
    return stream


def _without_cut_calls(answer: AssistantMessage) -> AssistantMessage:
    """``answer``; if it was cut, without the calls whose arguments are incomplete."""
    if answer.stop_reason not in CUT_STOP_REASONS:
        return answer
    content = [block for block in answer.content if block.type != "tool_call" or block.invalid_arguments is None]
    return answer if len(content) == len(answer.content) else answer.model_copy(update={"content": content})


async def _relay(run: Run, stream: MessageStream, asked_at: float) -> None:
    """Read the stream to its terminal event, announcing each; stop when it is silent for too long."""
    silence = _Silence(run, asked_at)
    while True:
        with anyio.CancelScope(deadline=silence.deadline) as scope:
            if await _read_on(run, stream, silence, scope):
                return
        if not scope.cancelled_caught:
            await run.outbox.flush()
        elif silence.is_too_long():
            return


async def _read_on(run: Run, stream: MessageStream, silence: _Silence, scope: anyio.CancelScope) -> bool:
    """Read until the terminal event (true), or until listeners have to be waited for, which is no silence (false)."""
    outbox = run.outbox
    while True:
        if silence.counts_waits and not silence.is_on and not stream.is_readable:
            silence.begin(scope)
        event = await anext(stream)
        silence.is_on = False
        if event.type == "done" or event.type == "error":
            return True
        if not silence.counts_waits and event.type != "start":
            silence.a_token_came()
        run.relay(event)
        if outbox.waiting:
            return False


class _Silence:
    """How long the model may say nothing: first until its first token, then between two events.

    A scope with the deadline stands around the reading of many events. It is set anew only when it has run out and
    there was something in the meantime, because setting it for each wait costs more than the wait.
    """

    __slots__ = ("_bound", "_limit", "_run", "_waits_for_token", "counts_waits", "is_on", "since")

    def __init__(self, run: Run, asked_at: float) -> None:
        self._run = run
        self._limit = "first_token_timeout"
        self._bound = run.config.limits.first_token_timeout
        self._waits_for_token = True
        self.since = asked_at
        self.counts_waits = False
        """Whether a wait begins a new silence. The head of an answer is no token, so at first none does."""
        self.is_on = False
        """Whether a silence has begun and no event has ended it."""

    @property
    def deadline(self) -> float:
        """When the silence is too long, by the event loop's clock."""
        return math.inf if self._bound is None else self.since + self._bound

    def a_token_came(self) -> None:
        """From now on every event ends a silence."""
        self._limit, self._bound = "idle_timeout", self._run.config.limits.idle_timeout
        self.counts_waits = True
        self._run.phase = "streaming"

    def begin(self, scope: anyio.CancelScope) -> None:
        """There is nothing to read now. The scope's deadline is set if it still is the one for the first token."""
        self.since, self.is_on = anyio.current_time(), True
        if self._waits_for_token:
            self._waits_for_token = False
            scope.deadline = self.deadline

    def is_too_long(self) -> bool:
        """Whether the time is over; the limit is noted then."""
        if self.counts_waits and not self.is_on:
            # The scope ran out while events lay ready: what took so long were those who hear of them.
            self.since = anyio.current_time()
        if anyio.current_time() < self.deadline:
            return False
        self._run.reach_limit(self._limit, self._bound or 0)
        return True
