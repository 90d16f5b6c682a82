"""One call: find its tool, check its arguments, run it in a scope of its own, and say how it ended.

Every call has a cancel scope of its own, which is the one way to end it: a timeout is its deadline, ``abort`` cancels
it, and what is around it (the run, its turn, the task of the caller) cancels it from outside::

    the run's scope
      the call's scope                       slot.scope; abort() cancels it
        around_tool_call (only if there is)  waits of the onions are ended by the same scope
          the tool's scope                   slot.scope while the tool runs; the timeout is its deadline
            resolve, validate, before-hooks
            the tool's own code
            after-hooks

Whose a cancellation is, the state of the surroundings decides, never the type of the exception: a tool may raise what
looks like a cancellation, or be cancelled by a scope of its own. If what is around the call is cancelled, the
cancellation leaves, and the call is closed on the way; otherwise it ends here, as a value in ``slot.outcome``.

What would break: an outcome that is decided by the exception's type makes a run go on that was cancelled, or ends one
because a tool cancelled itself. A call that is reported after its task has left the batch is reported twice.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import CancelScope, NoEventLoopError, from_thread
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from ...concurrency import (
    NOTHING_TO_AWAIT,
    AbortSignal,
    AbortSource,
    WatchedCoroutine,
    let_own_cancellation_pass,
    run_in_tasks,
    surroundings_are_cancelled,
)
from ...types.content import TextContent, ToolCall
from ...types.messages import ToolResultMessage
from ..context import RunContext, RunView
from ..define.definition import AgentTool, AgentToolResult
from ..define.validation import ArgumentsInvalid
from ..hooks import ToolHooks
from .outcome import CallEnding, CallOutcome
from .suspend import SuspendCall
from .threads import THREAD_NOTICE_SECONDS, ThreadCall

_log = logging.getLogger(__name__)

__all__ = ("BatchPlan", "BatchReporter", "CallSlot", "run_call")


class CallSlot:
    """One call of a batch while it comes to its end; the outcome stays in it, whatever becomes of the task."""

    __slots__ = (
        "abort_reason",
        "aborted",
        "announced",
        "answer",
        "around",
        "call",
        "cancelled_at",
        "closed",
        "coroutine",
        "ctx",
        "outcome",
        "params",
        "scope",
        "signal",
        "started",
        "thread",
        "tool",
    )

    def __init__(self, call: ToolCall) -> None:
        self.call: ToolCall = call
        self.tool: AgentTool | None = None
        self.params: Any = None
        self.outcome: CallOutcome | None = None
        self.scope: CancelScope | None = None
        """The innermost scope of the call that is not the tool's own, while the call is on its way."""
        self.around: CancelScope | None = None
        """The scope around the onions of the call, where it has any."""
        self.signal: AbortSource | None = None
        self.ctx: RunContext[Any] | None = None
        self.thread: ThreadCall | None = None
        self.coroutine: Any = None
        """The tool's coroutine while it runs."""
        self.cancelled_at: float | None = None
        """When a cancellation first reached the running tool, in seconds of the event loop's clock."""
        self.aborted: bool = False
        self.abort_reason: str | None = None
        self.announced: bool = False
        """Whether ``tool_execution_start`` was said."""
        self.started: bool = False
        """Whether the tool's own code has begun."""
        self.closed: bool = False
        """Whether ``tool_execution_end`` was said."""
        self.answer: ToolResultMessage | None = None
        """The message that answers the call, made when ``tool_execution_end`` is said."""

    @property
    def goes_on(self) -> bool:
        """Whether code of the tool runs in the event loop, and is not to end by itself within its grace."""
        return self.coroutine is not None and self.outcome is None and not self.is_cooperative

    @property
    def is_cooperative(self) -> bool:
        """Whether the tool wants to end by itself when its signal is set."""
        return self.tool is not None and self.tool.cancellation == "cooperative"

    @property
    def ended_alone(self) -> bool:
        """Whether this call has been cancelled, and not only what is around it."""
        return self.aborted or (self.scope is not None and self.scope.cancel_called)

    def abort(self, reason: str | None) -> None:
        """End this call alone."""
        self.aborted, self.abort_reason = True, reason
        if self.signal is not None:
            self.signal.set(reason)
        if self.scope is not None:
            self.scope.cancel()

    def let_go(self, run_signal: AbortSignal) -> None:
        """The call has ended: keep nothing that only its running needed, however many calls the batch still runs."""
        if self.signal is not None:
            run_signal.unfollow(self.signal.set)
        self.scope = self.around = self.coroutine = self.params = self.ctx = None


class BatchReporter(Protocol):
    """Whom a batch tells how its calls go."""

    async def calls_started(self, slots: Sequence[CallSlot]) -> None:
        """These calls are about to run, in this order."""
        ...

    def call_updated(self, slot: CallSlot, partial_result: object) -> Awaitable[None]:
        """The running call reports progress. Works without being awaited."""
        ...

    def call_cancelled(self, slot: CallSlot, *, alone: bool) -> None:
        """A cancellation has reached the running tool, of this call ``alone``, or of all of them: note the time."""
        ...

    def outcome_of_interrupted(self, slot: CallSlot) -> CallOutcome:
        """How a call ended that has reached no outcome because its surroundings are cancelled."""
        ...

    def call_interrupted(self, slot: CallSlot) -> None:
        """The call has ended because its surroundings are cancelled; it has an outcome if it reached one."""
        ...

    def call_ended(self, slot: CallSlot) -> Awaitable[None] | None:
        """The call has its outcome. What is returned has to be awaited before the call is over."""
        ...

    async def call_answered(self, slot: CallSlot) -> None:
        """In a sequential batch: everything about this call is said, the next may begin."""
        ...


@dataclass(slots=True, kw_only=True)
class BatchPlan:
    """What the calls of one message have in common; read only."""

    tools: Mapping[str, AgentTool]
    hooks: ToolHooks
    reporter: BatchReporter
    run: RunView
    """The run, as the contexts of hooks and tools show it."""
    signal: AbortSignal
    """The run's: set when it is told to stop."""
    tool_timeout: float | None
    """Seconds for tools without a timeout of their own."""
    cancel_requests: Callable[[], int]
    """How often ``Task.cancel()`` has hit the current task."""
    settle_timeout: float
    """Seconds a cancelled tool may take to clean up before it is said to ignore its cancellation."""


async def run_call(slot: CallSlot, plan: BatchPlan) -> None:
    """Bring one call to its end and report it; whatever the tool raises becomes the outcome in ``slot``.

    Raises the cancellation if the surroundings are cancelled; an outcome that was reached stays in ``slot``. Leaves by
    exception else only for what is not the tool's: an error of a hook or of the reporter, ``KeyboardInterrupt`` and
    ``SystemExit``. The task has to be one that only scopes cancel.
    """
    if plan.hooks.around is not None and not slot.closed:
        await _go_around(slot, plan)
    elif slot.outcome is None:
        await _reach_outcome(slot, plan)
    slot.let_go(plan.signal)
    handing_on = plan.reporter.call_ended(slot)
    if handing_on is not None:
        await handing_on


async def _go_around(slot: CallSlot, plan: BatchPlan) -> None:
    """Bring a call to its end inside the onions around it, which a scope of the call ends with it.

    An onion may have cancelled what it stands around: so the call is closed only when all of them have been left.
    """
    assert plan.hooks.around is not None
    refused = slot.outcome

    async def body() -> CallOutcome:
        if refused is None:
            await _reach_outcome(slot, plan)
        assert slot.outcome is not None
        return slot.outcome

    try:
        with CancelScope() as slot.scope:
            slot.around = slot.scope
            ctx = _context(slot, plan)
            slot.outcome = await plan.hooks.around(slot.call, body, lambda: slot.outcome, ctx, plan.signal)
    except anyio.get_cancelled_exc_class():
        _interrupt(slot, plan)
        raise
    if slot.outcome is None:  # the onions were cancelled before they went on
        slot.outcome = _outcome_of_cancelled(slot, plan)


async def _reach_outcome(slot: CallSlot, plan: BatchPlan) -> None:
    slot.scope = scope = CancelScope()
    try:
        with scope:
            if slot.aborted:  # before its turn came
                scope.cancel()
                await checkpoint_if_cancelled()
            if plan.hooks.resolve is None and plan.hooks.before is None:
                _prepare(slot, plan)
            else:
                await _prepare_with_hooks(slot, plan)
            if slot.outcome is None:
                await _execute(slot, scope, plan)
            if plan.hooks.after is not None:
                await _after(slot, plan)
    except anyio.get_cancelled_exc_class() as error:  # noqa: ASYNC103 - the scopes say whose it is
        # The type of the exception does not say who was cancelled; the state of the surroundings does.
        if surroundings_are_cancelled():
            slot.scope = slot.around
            if slot.around is None:
                _interrupt(slot, plan)
            else:
                _know_interrupted(slot, plan)
            raise
        slot.outcome = CallOutcome.failed(slot.call, _self_cancelled(error))
    if slot.outcome is None:
        slot.outcome = _outcome_of_cancelled(slot, plan)
    slot.scope = slot.around
    _note_lateness(slot, plan)
    if plan.cancel_requests():
        await let_own_cancellation_pass()


def _know_interrupted(slot: CallSlot, plan: BatchPlan) -> None:
    """Have an outcome although the surroundings are cancelled: the onions hear of it, and may make another of it."""
    assert slot.around is not None
    _keep_thread_outcome(slot, "the run was cancelled" if _comes_from_outside(slot.around) else "by a middleware")
    _note_lateness(slot, plan)
    if slot.outcome is None:
        slot.outcome = plan.reporter.outcome_of_interrupted(slot)


def _interrupt(slot: CallSlot, plan: BatchPlan) -> None:
    """Close a call on the way, whose surroundings are cancelled."""
    _keep_thread_outcome(slot, "the run was cancelled")
    if slot.around is None:
        _note_lateness(slot, plan)
    slot.let_go(plan.signal)
    plan.reporter.call_interrupted(slot)


def _note_lateness(slot: CallSlot, plan: BatchPlan) -> None:
    """Say so, where a call went on for longer than it may after it was cancelled."""
    if slot.cancelled_at is None or slot.tool is None:
        return
    seconds = anyio.current_time() - slot.cancelled_at
    grace = slot.tool.grace if slot.tool.cancellation == "cooperative" else 0.0
    if seconds > plan.settle_timeout + grace:
        slot.outcome = CallOutcome.ignored_cancellation(slot.call, slot.outcome, seconds)


def _self_cancelled(error: BaseException) -> Exception:
    failure = RuntimeError("the tool cancelled itself")
    failure.__cause__ = error
    return failure


def _outcome_of_cancelled(slot: CallSlot, plan: BatchPlan) -> CallOutcome:
    """The call's own scope was cancelled: by its timeout, or by ``abort_tool_call``."""
    timeout = _timeout_of(slot, plan)
    why = "by the user" if slot.aborted else f"after {timeout:g} seconds"
    _keep_thread_outcome(slot, why)
    if slot.outcome is not None:
        return slot.outcome
    if slot.aborted:
        return CallOutcome.aborted(slot.call, slot.abort_reason)
    return CallOutcome.timed_out(slot.call, timeout or 0.0)


def _keep_thread_outcome(slot: CallSlot, why: str) -> None:
    """A cancelled call whose thread ended in time has its real outcome; one whose thread goes on is abandoned."""
    thread = slot.thread
    if thread is None or slot.outcome is not None:
        return
    if thread.abandoned:
        _log.warning("tool %r does not look at its signal and is abandoned in its thread (%s)", slot.call.name, why)
        slot.outcome = CallOutcome.abandoned(slot.call, why)
    elif thread.finished and thread.error is None and isinstance(thread.value, AgentToolResult | str):
        slot.outcome = CallOutcome.finished(slot.call, _as_result(slot, thread.value))


# --- before the tool runs --------------------------------------------------------------------


async def _prepare_with_hooks(slot: CallSlot, plan: BatchPlan) -> None:
    """Let hooks choose another call, prepare it, and let hooks judge it; a hook may suspend it."""
    hooks = plan.hooks
    try:
        resolved = (
            await hooks.resolve(slot.call, _context(slot, plan), plan.signal) if hooks.resolve is not None else None
        )
        if resolved is not None:
            slot.call = resolved.model_copy(update={"id": slot.call.id})
        _prepare(slot, plan)
        if slot.outcome is None and hooks.before is not None:
            await _before(slot, plan)
    except SuspendCall as suspended:
        slot.outcome = CallOutcome.suspended(slot.call, suspended.request)


def _prepare(slot: CallSlot, plan: BatchPlan) -> None:
    """Find the tool and check the arguments; what is wrong becomes a refusal that the model can read."""
    call = slot.call
    slot.tool = tool = plan.tools.get(call.name)
    if tool is None:
        slot.outcome = CallOutcome.refused(call, _unknown_tool(call.name, plan.tools))
    elif call.invalid_arguments is not None:
        text = f"The arguments are not a JSON object: {call.invalid_arguments[:500]}"
        slot.outcome = CallOutcome.refused(call, text)
    else:
        _validate(slot, tool)


def _unknown_tool(name: str, tools: Mapping[str, AgentTool]) -> str:
    known = ", ".join(tools) if tools else "none"
    return f"There is no tool named {name!r}. The tools are: {known}."


def _validate(slot: CallSlot, tool: AgentTool) -> None:
    try:
        slot.params = tool.validate(slot.call.arguments)
    except ArgumentsInvalid as invalid:
        slot.outcome = CallOutcome.refused(slot.call, invalid.text)
    except Exception as error:  # a validator of the user's own model may raise anything
        slot.outcome = CallOutcome.failed(slot.call, error)


async def _before(slot: CallSlot, plan: BatchPlan) -> None:
    tool = slot.tool
    assert tool is not None
    assert plan.hooks.before is not None
    try:
        decision = await plan.hooks.before(slot.call, slot.params, tool.validate, _context(slot, plan), plan.signal)
    except ArgumentsInvalid as invalid:
        slot.outcome = CallOutcome.refused(slot.call, invalid.text)
        return
    if decision is None:
        return
    if decision.block:
        reason = decision.reason or "The call was refused."
        slot.outcome = CallOutcome.refused(slot.call, reason, by_hook=True)
    elif decision.edited_args is not None:
        slot.call = slot.call.model_copy(update={"arguments": decision.edited_args})
        _validate(slot, tool)


async def _after(slot: CallSlot, plan: BatchPlan) -> None:
    outcome = slot.outcome
    assert plan.hooks.after is not None
    if outcome is None or outcome.ending in (CallEnding.REFUSED, CallEnding.SUSPENDED):
        return
    change = await plan.hooks.after(slot.call, outcome.result, outcome.is_error, _context(slot, plan), plan.signal)
    if change is None:
        return
    given = {"content": change.content, "details": change.details, "terminate": change.terminate}
    result = replace(outcome.result, **{key: value for key, value in given.items() if value is not None})
    is_error = outcome.is_error if change.is_error is None else change.is_error
    slot.outcome = replace(outcome, result=result, is_error=is_error)


# --- running the tool ------------------------------------------------------------------------


def _timeout_of(slot: CallSlot, plan: BatchPlan) -> float | None:
    own = slot.tool.timeout if slot.tool is not None else None
    return own if own is not None else plan.tool_timeout


async def _execute(slot: CallSlot, scope: CancelScope, plan: BatchPlan) -> None:
    tool = slot.tool
    assert tool is not None
    await checkpoint_if_cancelled()  # a hook or a listener has ended the run, or the call: its body never begins
    timeout = _timeout_of(slot, plan)
    if timeout is not None:
        scope.deadline = anyio.current_time() + timeout
    slot.started = True
    try:
        result = await _begin(slot, tool, plan)
        if slot.outcome is None:
            slot.outcome = CallOutcome.finished(slot.call, _as_result(slot, result))
    except SuspendCall as suspended:
        slot.outcome = _suspended(slot, tool, suspended)
    except Exception as error:
        slot.outcome = await _failed_or_cancelled(slot, error, plan)
    except BaseExceptionGroup as group:
        # From a nursery of the tool's own, which mixes errors with cancellations: its errors are the outcome.
        _, others = group.split(anyio.get_cancelled_exc_class())
        if others is not None and not isinstance(others, Exception):
            raise
        slot.outcome = await _failed_or_cancelled(slot, others or _self_cancelled(group), plan)
    if timeout is not None:
        scope.deadline = math.inf


def _suspended(slot: CallSlot, tool: AgentTool, suspended: SuspendCall) -> CallOutcome:
    """A tool that only asks is entered anew later; a body that has done something already must not be."""
    if tool.asks:
        return CallOutcome.suspended(slot.call, suspended.request)
    problem = (
        "the tool asked a person in the middle of its work through a durable channel, which cannot be continued in a "
        "later run; ask before the tool runs (ApprovalPolicy), in a tool of its own (ask_user), or in memory"
    )
    return CallOutcome.failed(slot.call, RuntimeError(problem))


async def _failed_or_cancelled(slot: CallSlot, error: Exception, plan: BatchPlan) -> CallOutcome:
    """An error that a tool raised while it was being cancelled did not cause the end of the call."""
    if not slot.ended_alone:
        if slot.cancelled_at is not None and surroundings_are_cancelled():
            _log.debug("tool %r raised while its run was being cancelled", slot.call.name, exc_info=error)
            await checkpoint_if_cancelled()
        return CallOutcome.failed(slot.call, error)
    outcome = _outcome_of_cancelled(slot, plan)
    outcome.error = error
    return outcome


def _begin(slot: CallSlot, tool: AgentTool, plan: BatchPlan) -> Awaitable[Any]:
    """What is to be awaited for the tool's result."""
    keywords = _keywords(slot, tool, plan) if tool.accepts else {}
    if not tool.is_async:
        return _in_thread(slot, tool, keywords)
    slot.coroutine = tool.execute(slot.call.id, slot.params, **keywords)
    work = WatchedCoroutine(slot.coroutine, on_error=partial(_note_cancellation, slot, plan))
    return work if tool.cancellation == "immediate" else _cooperatively(slot, tool.grace, work)


async def _in_thread(slot: CallSlot, tool: AgentTool, keywords: dict[str, Any]) -> Any:
    signal = slot.signal if slot.signal is not None else AbortSource()
    slot.thread = ThreadCall(partial(tool.execute, slot.call.id, slot.params, **keywords), signal)
    notice = tool.grace if tool.cancellation == "cooperative" else THREAD_NOTICE_SECONDS
    result = await slot.thread.run(notice)
    if inspect.isawaitable(result):
        result = await result
    return result


def _note_cancellation(slot: CallSlot, plan: BatchPlan, error: BaseException) -> None:
    """``error`` was thrown into the tool. A cancellation counts if it is not one of a scope of the tool's own.

    The tool may take its time then, or not let itself be stopped.
    """
    scope = slot.scope
    if slot.cancelled_at is not None or scope is None or not isinstance(error, anyio.get_cancelled_exc_class()):
        return
    alone = plan.signal.is_set() or slot.ended_alone
    if alone or (slot.signal is not None and slot.signal.is_set()) or _comes_from_outside(scope):
        if slot.around is not None and not alone:  # an onion may have cancelled this call, and nothing else
            alone = not _comes_from_outside(slot.around)
        plan.reporter.call_cancelled(slot, alone=alone)


def _comes_from_outside(scope: CancelScope) -> bool:
    """Whether the current task is cancelled by ``scope`` or what is around it, and not only by a scope further in.

    A shield in between tells: under it, only what is further in is left. It is gone before anything else runs.
    """
    if scope.cancel_called:
        return True
    if not surroundings_are_cancelled():
        return False
    scope.shield = True
    try:
        return not surroundings_are_cancelled()
    finally:
        scope.shield = False


async def _cooperatively(slot: CallSlot, grace_seconds: float, work: WatchedCoroutine) -> None:
    """Run a tool that wants to end by itself: a cancellation sets its signal, and reaches it when the grace is over.

    The tool runs under a shield in a task of its own, beside a task that only waits to be cancelled, which is how a
    cancellation by a scope and one by ``Task.cancel()`` are noticed alike. The outcome goes straight into the slot: the
    cancellation goes on its way as soon as the tool has ended.
    """
    shield = CancelScope(shield=True)

    async def run_under_shield() -> None:
        with shield:
            slot.outcome = CallOutcome.finished(slot.call, _as_result(slot, await work))
        watching.cancel()

    async def wait_for_cancellation() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if slot.signal is not None and slot.outcome is None:
                slot.signal.set("cancelled")
            shield.deadline = anyio.current_time() + grace_seconds

    with CancelScope() as watching:
        await run_in_tasks((wait_for_cancellation, run_under_shield))


def _context(slot: CallSlot, plan: BatchPlan) -> RunContext[Any]:
    """The context of the call, for its hooks and its tool; made when the first of them asks for it."""
    if slot.ctx is None:
        signal = slot.signal = AbortSource()
        plan.signal.follow(signal.set)
        slot.ctx = RunContext(
            plan.run,
            tool_call_id=slot.call.id,
            tool_name=slot.call.name,
            signal=signal,
            on_update=_Updater(slot, plan.reporter),
        )
    slot.ctx.tool_name = slot.call.name
    return slot.ctx


def _keywords(slot: CallSlot, tool: AgentTool, plan: BatchPlan) -> dict[str, Any]:
    """What the tool declares of ``signal``, ``on_update``, ``ctx`` and ``context``."""
    ctx = _context(slot, plan)
    offered = {"signal": ctx.signal, "on_update": ctx.on_update, "ctx": ctx, "context": ctx}
    return {name: offered[name] for name in tool.accepts}


class _Updater:
    """``on_update``: reports progress when it is called; awaiting what it returns waits until all have heard."""

    __slots__ = ("_loop", "_loop_thread", "_reporter", "_slot")

    def __init__(self, slot: CallSlot, reporter: BatchReporter) -> None:
        self._slot, self._reporter = slot, reporter
        self._loop, self._loop_thread = current_token(), threading.get_ident()

    def __call__(self, partial_result: object) -> Awaitable[None]:
        slot = self._slot
        if slot.outcome is not None:
            return NOTHING_TO_AWAIT  # the call has ended; whatever goes on in its name is not heard any more
        if threading.get_ident() == self._loop_thread:
            return self._reporter.call_updated(slot, partial_result)
        try:
            from_thread.run(self._report, partial_result)  # the thread waits until all have heard
        except NoEventLoopError:  # a thread that the tool started by itself
            from_thread.run_sync(self._reporter.call_updated, slot, partial_result, token=self._loop)
        return NOTHING_TO_AWAIT

    async def _report(self, partial_result: object) -> None:
        say = partial(self._reporter.call_updated, self._slot, partial_result)
        if self._slot.thread is None:  # an async tool that went into a thread by itself
            await say()
        else:
            await self._slot.thread.report(say)


def _as_result(slot: CallSlot, value: Any) -> AgentToolResult:
    if isinstance(value, AgentToolResult):
        return value
    if isinstance(value, str):
        return AgentToolResult([TextContent(text=value)])
    raise TypeError(
        f"tool {slot.call.name!r} returned {type(value).__name__}; a tool returns an AgentToolResult or a string"
    )
