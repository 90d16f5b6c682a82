"""Ask the model once: show it the transcript, relay its answer, and close the message it made."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..concurrency import hear_of_swallowed_cancellation
from ..errors import IncompleteStream, ProviderError
from ..hooks.middleware import TurnAction
from ..providers.base import StreamOptions
from ..stream.message_stream import MessageStream
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from .read_answer import read_answer
from .run import Run

__all__ = ("ask",)

_NOTHING_DECIDED = TurnAction()
"""What hooks decide where there are none. Read only."""


async def ask(run: Run) -> TurnAction:
    """Ask the model and put its answer into the record; return what hooks decided about it.

    A failing model is an answer too: ``run.error`` says why. A checkpoint; cancelled, it leaves the answer open.
    """
    run.phase = "waiting"
    # A run that has been ended asks no model any more. And where neither the model nor a tool ever waits, this is where
    # others have their turn, and where deadlines are met.
    await checkpoint()
    shown, system_prompt = await _what_is_shown(run)
    answer = await read_answer(run, partial(_call_provider, run, shown, system_prompt))
    error = run.stream.error if run.stream is not None else None
    action = _NOTHING_DECIDED
    if answer is not None and answer.stop_reason in ("error", "aborted"):
        run.error = error or ProviderError(
            answer.error_message or "the model gave no reason", provider=answer.provider_id, model=answer.model_id
        )
    elif answer is not None and run.config.hooks.after_model_response is not None:
        action = await _after_response(run, answer)
        answer = action.response or answer
    run.finish_answer(None if answer is None else _without_cut_calls(answer))
    await run.outbox.flush()
    return action


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
    return await hook(answer, ctx=run.context(), signal=run.signal) or _NOTHING_DECIDED


async def _call_provider(run: Run, messages: list[Message], system_prompt: str) -> MessageStream:
    """Ask the provider for its stream; a provider that raises instead is a stream that fails at once."""
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
        await hear_of_swallowed_cancellation()  # noqa: ASYNC102 - it only asks
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
