"""Ask the model once: show it the transcript, read its answer, and close the message it made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..concurrency import hear_of_swallowed_cancellation
from ..errors import IncompleteStream, ProviderError
from ..hooks.around import through
from ..hooks.middleware import TurnAction
from ..providers.base import StreamOptions
from ..providers.model_call import AroundTry, ModelCall, ModelOutcome, StreamingModel, TryBody
from ..stream.message_stream import MessageStream
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from ..types.settings import ModelSettings
from .read_answer import read_answer
from .run import Run

__all__ = ("ask_model",)

_NOTHING_DECIDED = TurnAction()
"""What hooks decide where there are none. Read only."""


async def ask_model(run: Run) -> TurnAction:
    """Ask the model and put its answer into the record; return what hooks decided about it.

    A failing model is an answer too: the ending says why. A checkpoint; cancelled, it leaves the answer open, unless
    it was complete already.
    """
    run.phase = "waiting"
    await checkpoint_if_cancelled()  # a run that has been ended asks no model any more
    request = _Request(run)
    outcome = await (_go_around(run, request) if run.config.hooks.around_model_call else request.answer())
    _close(run, outcome)
    if run.ending.to_raise is not None:  # a hook around a try has failed when the answer was complete
        raise run.ending.to_raise
    await run.record.outbox.flush()
    return request.action


async def _go_around(run: Run, request: _Request) -> ModelOutcome:
    """Make the request inside the onions of ``around_model_call``; what the model said in full stands."""
    try:
        outcome = await through(
            run.config.hooks.around_model_call,
            request.answer,
            known=lambda: request.outcome or request.cut,
            accept=lambda returned: _as_outcome(request.outcome or request.cut, returned),
            what="a model's call, once something of its answer was said,",
            may_repeat=lambda: not run.record.answer_is_said,
            ctx=run.context(),
            signal=run.ending.signal,
        )
    except BaseException:
        # The onions were cancelled, or failed, when the answer was complete.
        if request.outcome is not None:
            try:
                _close(run, request.outcome)
            except Exception as error:  # a listener's, which must not take the place of what is leaving
                run.ending.fail(error)
        raise
    if outcome is request.cut:  # by a layer, which has kept what had come until then
        outcome = replace(outcome, error=IncompleteStream("the request was cut off by what stood around it"))
    return outcome


class _Request:
    """One turn's request, which is made again where ``around_model_call`` wants it so."""

    __slots__ = ("_run", "action", "cut", "outcome")

    def __init__(self, run: Run) -> None:
        self._run = run
        self.outcome: ModelOutcome | None = None
        self.cut: ModelOutcome | None = None
        """What had come of the answer when asking for it was cancelled."""
        self.action: TurnAction = _NOTHING_DECIDED

    async def answer(self) -> ModelOutcome:
        """Show the transcript to the model and read its answer; hooks see both."""
        run = self._run
        if self.outcome is not None and run.ending.is_called:
            return self.outcome  # a run that has been ended, by a limit on this answer, asks no model any more
        first = self.outcome or self.cut
        if first is not None:  # the answer is asked for anew: of the first, what it cost is left
            if first.message.usage is not None:
                run.record.usage = run.record.usage + first.message.usage
            run.record.open_answer(MessageStream())
        self.outcome, self.cut, self.action = None, None, _NOTHING_DECIDED
        try:
            shown, system_prompt = await _what_is_shown(run)
            answer = await read_answer(run, partial(_open_stream, run, shown, system_prompt))
        except anyio.get_cancelled_exc_class():
            stream = run.record.stream or MessageStream()
            message = stream.broken_message().model_copy(update={"stop_reason": "aborted"})
            self.cut = ModelOutcome(message=message, said=run.record.answer_is_said)
            raise
        stream = run.record.stream
        error = None
        if answer is None:  # a limit has ended the reading
            assert stream is not None
            answer = stream.broken_message().model_copy(update={"stop_reason": "aborted"})
        elif answer.stop_reason in ("error", "aborted"):
            error = (stream.error if stream is not None else None) or _error_of(answer)
        elif run.config.hooks.after_model_response is not None:
            action = await run.config.hooks.after_model_response(answer, ctx=run.context(), signal=run.ending.signal)
            self.action = action or _NOTHING_DECIDED
            answer = _costing_as(answer, self.action.response or answer)
        self.outcome = ModelOutcome(message=answer, error=error, said=run.record.answer_is_said)
        return self.outcome


def _error_of(answer: AssistantMessage) -> ProviderError:
    why = answer.error_message or "the model gave no reason"
    return ProviderError(why, provider=answer.provider_id, model=answer.model_id)


def _costing_as(said: AssistantMessage, message: AssistantMessage) -> AssistantMessage:
    """``message``, which stands in the place of ``said``: what was said has its cost, unless it has its own."""
    return message if message.usage is not None else message.model_copy(update={"usage": said.usage})


def _as_outcome(body: ModelOutcome | None, returned: Any) -> ModelOutcome:
    """What a layer returned, as the outcome of the request or the try that came to ``body``."""
    if isinstance(returned, AssistantMessage):
        error = _error_of(returned) if returned.stop_reason in ("error", "aborted") else None
        message = _costing_as(body.message, returned) if body is not None else returned
        returned = ModelOutcome(message=message, error=error)
    if not isinstance(returned, ModelOutcome) or not isinstance(returned.message, AssistantMessage):  # pyright: ignore[reportUnnecessaryIsInstance] - foreign
        raise TypeError(
            f"a middleware around the model returned {type(returned).__name__}; it returns the outcome of proceed(), "
            "an AssistantMessage, or None"
        )
    return returned


def _close(run: Run, outcome: ModelOutcome) -> None:
    """Put the answer into the record, and say why the run ends if it failed."""
    record, answer = run.record, outcome.message
    if record.stream is None:  # answered in the model's place
        record.open_answer(MessageStream())
    if outcome.error is not None:
        run.ending.model_failed(outcome.error)
    if answer.stop_reason in CUT_STOP_REASONS:
        # Calls whose arguments are incomplete may be what was cut.
        content = [block for block in answer.content if block.type != "tool_call" or block.invalid_arguments is None]
        if len(content) != len(answer.content):
            answer = answer.model_copy(update={"content": content})
    if answer.stop_reason == "aborted" and answer.error_message is None:
        answer = answer.model_copy(update={"error_message": run.ending.why()})
    record.finish_answer(answer, asked=run.config.model.spec)


async def _what_is_shown(run: Run) -> tuple[list[Message], str]:
    """The messages and the system prompt of this request, as hooks leave them; the transcript stays as it is."""
    hooks, signal = run.config.hooks, run.ending.signal
    messages, system_prompt = list(run.record.messages), run.config.system_prompt
    if hooks.transform_context is not None:
        messages = await hooks.transform_context(messages, ctx=run.context(), signal=signal)
    if hooks.convert_to_llm is not None:
        messages = await hooks.convert_to_llm(messages, ctx=run.context(), signal=signal)
    if hooks.transform_system_prompt is not None:
        system_prompt = await hooks.transform_system_prompt(system_prompt, ctx=run.context(), signal=signal)
    return messages, system_prompt


async def _open_stream(run: Run, messages: list[Message], system_prompt: str) -> MessageStream:
    """Ask the provider for its stream; a provider that raises instead is a stream that fails at once."""
    config = run.config
    options = run.options
    if options is None:
        options = StreamOptions(
            signal=run.ending.signal,
            on_payload=config.on_payload,
            on_response=config.on_response,
            reasoning=config.reasoning,
            settings=_settings(run),
            around_try=_around_try(run) if config.hooks.around_model_try else None,
        )
        if not any(map(callable, config.settings)) and options.around_try is None:
            run.options = options
    call = ModelCall(
        messages=messages,
        system_prompt=system_prompt,
        tools=run.toolset.definitions,
        tool_choice=config.tool_choice,
        options=options,
    )
    try:
        return await call.ask(config.model)
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


def _settings(run: Run) -> ModelSettings | None:
    """How the model is to answer: what the agent says, and over it what the run says."""
    merged: ModelSettings | None = None
    for source in run.config.settings:
        said: Any = source(run.context()) if callable(source) else source
        if not isinstance(said, ModelSettings):
            raise TypeError(f"settings= gives a ModelSettings, not {type(said).__name__}")
        merged = said if merged is None else merged.merge(said)
    return merged


def _around_try(run: Run) -> AroundTry:
    """``around_model_try``, as the models call it: around each try that asks a provider."""

    async def around(model: StreamingModel, body: TryBody) -> AssistantMessage | None:
        try:
            outcome = await through(
                run.config.hooks.around_model_try,
                body,
                model,
                known=lambda: body.outcome,
                accept=lambda returned: _as_outcome(body.outcome, returned),
                what="a try",
                ctx=run.context(),
                signal=run.ending.signal,
            )
        except Exception as error:
            # A hook's bug is not the provider's, and must be no reason to ask the next model: it ends the run.
            # If the try was over by then, its answer is read to the end and stands.
            run.ending.fail(error, at_once=body.outcome is None)
            await checkpoint_if_cancelled()
            return None
        return None if outcome is body.outcome else outcome.message

    return around
