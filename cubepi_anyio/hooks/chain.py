"""Many middleware to one ``Hooks`` value: each seam one function, or ``None`` where nobody wants it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..concurrency import AbortSignal
from ..tools.context import RunContext, ToolSource
from ..tools.define.definition import AgentToolResult
from ..tools.hooks import NO_TOOL_HOOKS, AfterToolCallResult, BeforeToolCallResult, ToolHooks
from ..tools.run.outcome import CallEnding, CallOutcome
from ..types.content import ToolCall
from ..types.json import JsonObject
from ..types.messages import AssistantMessage, Message
from .around import Layer, through
from .middleware import AfterToolCallContext, BeforeToolCallContext, Middleware, TurnAction

__all__ = ("NO_HOOKS", "Hooks", "compose", "tool_hooks")

_Seam = Callable[..., Awaitable[Any]]
"""Called with the seam's own arguments, ``ctx`` and ``signal``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The seams of a run, composed. Each is called as ``seam(*arguments, ctx=..., signal=...)``."""

    transform_context: Callable[..., Awaitable[list[Message]]] | None = None
    convert_to_llm: Callable[..., Awaitable[list[Message]]] | None = None
    transform_system_prompt: Callable[..., Awaitable[str]] | None = None
    resolve_tool_call: Callable[..., Awaitable[ToolCall | None]] | None = None
    before_tool_call: Callable[..., Awaitable[BeforeToolCallResult | None]] | None = None
    after_tool_call: Callable[..., Awaitable[AfterToolCallResult | None]] | None = None
    after_model_response: Callable[..., Awaitable[TurnAction | None]] | None = None
    should_stop_after_turn: Callable[..., Awaitable[bool]] | None = None
    on_run_end: Callable[..., Awaitable[list[Message]]] | None = None
    around_run: tuple[Layer, ...] = ()
    around_model_call: tuple[Layer, ...] = ()
    around_model_try: tuple[Layer, ...] = ()
    around_tool_call: tuple[Layer, ...] = ()
    tools: tuple[ToolSource, ...] = ()
    """What the middleware brings along, in its order."""


NO_HOOKS = Hooks()
"""Nobody listens at any seam."""


def compose(middleware: Sequence[Middleware]) -> Hooks:
    """Compose middleware, in their order. Signatures are read here, once."""
    if not middleware:
        return NO_HOOKS

    def layers(name: str) -> tuple[_Seam, ...]:
        return tuple(_seam(getattr(one, name)) for one in middleware if _is_overridden(one, name))

    def chain(name: str, rule: Callable[..., Awaitable[Any]]) -> Any:
        seams = layers(name)
        return partial(rule, seams) if seams else None

    return Hooks(
        transform_context=chain("transform_context", _chained),
        convert_to_llm=chain("convert_to_llm", _last_wins),
        transform_system_prompt=chain("transform_system_prompt", _chained),
        resolve_tool_call=chain("resolve_tool_call", _first_answer),
        before_tool_call=chain("before_tool_call", _until_veto),
        after_tool_call=chain("after_tool_call", _merged_result),
        after_model_response=chain("after_model_response", _merged_action),
        should_stop_after_turn=chain("should_stop_after_turn", _any_says_so),
        on_run_end=chain("on_run_end", _added_up),
        around_run=layers("around_run"),
        around_model_call=layers("around_model_call"),
        around_model_try=layers("around_model_try"),
        around_tool_call=layers("around_tool_call"),
        tools=tuple(one.tools for one in middleware if one.tools != ()),
    )


def _is_overridden(middleware: Middleware, name: str) -> bool:
    """Whether a seam is more than the one of ``Middleware`` that does nothing; instances may override too."""
    seam = getattr(middleware, name)
    return getattr(seam, "__func__", seam) is not getattr(Middleware, name)


def _seam(hook: Callable[..., Any]) -> _Seam:
    """``hook`` as an async function that passes on ``ctx`` and ``signal`` only where the hook declares them."""
    parameters = inspect.signature(hook).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    wanted = [name for name in ("ctx", "signal") if takes_any or name in parameters]

    async def seam(*arguments: Any, **offered: Any) -> Any:
        outcome = hook(*arguments, **{name: offered[name] for name in wanted})
        return await outcome if inspect.isawaitable(outcome) else outcome

    return seam


# --- the rules of composition, stated at each seam of ``Middleware`` --------------------------


async def _chained(seams: Sequence[_Seam], value: Any, **offered: Any) -> Any:
    for seam in seams:
        value = await seam(value, **offered)
    return value


async def _last_wins(seams: Sequence[_Seam], value: Any, **offered: Any) -> Any:
    return await seams[-1](value, **offered)


async def _first_answer(seams: Sequence[_Seam], value: Any, **offered: Any) -> Any:
    for seam in seams:
        answer = await seam(value, **offered)
        if answer is not None:
            return answer
    return None


async def _any_says_so(seams: Sequence[_Seam], *arguments: Any, **offered: Any) -> bool:
    for seam in seams:
        if await seam(*arguments, **offered):
            return True
    return False


async def _added_up(seams: Sequence[_Seam], **offered: Any) -> list[Message]:
    said: list[Message] = []
    for seam in seams:
        said.extend(await seam(**offered) or ())
    return said


async def _until_veto(
    seams: Sequence[_Seam], call: BeforeToolCallContext, *, validate: Callable[[Any], Any], **offered: Any
) -> BeforeToolCallResult | None:
    """Each hook sees the arguments as the one before left them; ``validate`` turns edited ones into parameters."""
    decision: BeforeToolCallResult | None = None
    for seam in seams:
        answer: BeforeToolCallResult | None = await seam(call, **offered)
        if answer is None:
            continue
        if answer.block:
            return answer
        if answer.edited_args is not None:
            decision = answer
            edited = call.tool_call.model_copy(update={"arguments": answer.edited_args})
            call = replace(call, tool_call=edited, args=validate(answer.edited_args))
    return decision


async def _merged_result(
    seams: Sequence[_Seam], call: AfterToolCallContext, **offered: Any
) -> AfterToolCallResult | None:
    merged: dict[str, Any] = {}
    for seam in seams:
        answer: AfterToolCallResult | None = await seam(call, **offered)
        if answer is None:
            continue
        given = {"content": answer.content, "details": answer.details, "terminate": answer.terminate}
        changes = {name: value for name, value in given.items() if value is not None}
        is_error = call.is_error if answer.is_error is None else answer.is_error
        merged.update(changes)
        if answer.is_error is not None:
            merged["is_error"] = answer.is_error
        call = replace(call, result=replace(call.result, **changes), is_error=is_error)
    return AfterToolCallResult(**merged) if merged else None


async def _merged_action(seams: Sequence[_Seam], response: AssistantMessage, **offered: Any) -> TurnAction | None:
    merged = TurnAction()
    for seam in seams:
        action: TurnAction | None = await seam(merged.response or response, **offered)
        if action is None:
            continue
        merged.response = action.response or merged.response
        merged.inject_messages.extend(action.inject_messages)
        merged.decision = action.decision or merged.decision
    return merged


# --- the seams around one call ---------------------------------------------------------------


def tool_hooks(hooks: Hooks, answer: AssistantMessage) -> ToolHooks:
    """The hooks around the calls of one answer."""
    if not (hooks.resolve_tool_call or hooks.before_tool_call or hooks.after_tool_call or hooks.around_tool_call):
        return NO_TOOL_HOOKS

    async def resolve(call: ToolCall, ctx: RunContext[Any], signal: AbortSignal) -> ToolCall | None:
        assert hooks.resolve_tool_call is not None
        return await hooks.resolve_tool_call(call, ctx=ctx, signal=signal)

    async def before(
        call: ToolCall,
        params: Any,
        validate: Callable[[JsonObject], Any],
        ctx: RunContext[Any],
        signal: AbortSignal,
    ) -> BeforeToolCallResult | None:
        assert hooks.before_tool_call is not None
        described = BeforeToolCallContext(ctx, answer, call, params)
        return await hooks.before_tool_call(described, validate=validate, ctx=ctx, signal=signal)

    async def after(
        call: ToolCall, result: AgentToolResult, is_error: bool, ctx: RunContext[Any], signal: AbortSignal
    ) -> AfterToolCallResult | None:
        assert hooks.after_tool_call is not None
        described = AfterToolCallContext(ctx, answer, call, result, is_error)
        return await hooks.after_tool_call(described, ctx=ctx, signal=signal)

    async def around(
        call: ToolCall,
        body: Callable[[], Awaitable[CallOutcome]],
        known: Callable[[], CallOutcome | None],
        ctx: RunContext[Any],
        signal: AbortSignal,
    ) -> CallOutcome:
        def accept(returned: Any) -> CallOutcome:
            return _as_outcome(call, known(), returned)

        return await through(
            hooks.around_tool_call,
            body,
            call,
            known=known,
            accept=accept,
            what="a call",
            ctx=ctx,
            signal=signal,
        )

    return ToolHooks(
        resolve=resolve if hooks.resolve_tool_call is not None else None,
        before=before if hooks.before_tool_call is not None else None,
        after=after if hooks.after_tool_call is not None else None,
        around=around if hooks.around_tool_call else None,
    )


def _as_outcome(call: ToolCall, body: CallOutcome | None, returned: Any) -> CallOutcome:
    """What ``around_tool_call`` returned, as the outcome of the call; ``body`` is what the call itself came to."""
    if isinstance(returned, CallOutcome):
        if not isinstance(returned.result, AgentToolResult):  # pyright: ignore[reportUnnecessaryIsInstance] - foreign
            raise TypeError(f"around_tool_call returned an outcome whose result is {type(returned.result).__name__}")
        if returned is body:
            return returned
        # One that was kept from another call: this call is answered, under its own id.
        if body is None:
            return CallOutcome(call, CallEnding.ANSWERED, returned.result, returned.is_error)
        return replace(returned, call=body.call)
    if isinstance(returned, str):
        returned = AgentToolResult(returned)
    if not isinstance(returned, AgentToolResult):
        raise TypeError(
            f"around_tool_call returned {type(returned).__name__} for {call.name!r}; it returns the outcome of "
            "proceed(), an AgentToolResult, a string, or None"
        )
    if body is None or body.request is not None:  # a call that would wait for a person does not any more
        return CallOutcome(call, CallEnding.ANSWERED, returned, returned.is_error)
    return replace(body, result=returned, is_error=returned.is_error)
