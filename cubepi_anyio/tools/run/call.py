"""One call: find its tool, check its arguments, run it in a scope of its own, and say how it ended."""

from __future__ import annotations

import inspect
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import CancelScope, NoEventLoopError, TaskHandle, from_thread
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from ...concurrency import (
    DONE,
    AbortSignal,
    AbortSource,
    Driven,
    let_own_cancellation_pass,
    run_in_tasks,
    surroundings_are_cancelled,
)
from ...types.content import TextContent, ToolCall
from ...types.messages import Message, ToolResultMessage
from ..define.definition import AgentTool, AgentToolResult, ToolContext
from ..define.validation import ArgumentsInvalid
from ..hooks import ToolHooks
from .outcome import CallEnding, CallOutcome
from .suspend import SuspendCall
from .threads import THREAD_NOTICE_SECONDS, ThreadCall

_log = logging.getLogger(__name__)

__all__ = ("BatchPlan", "BatchReporter", "CallSlot", "run_call")

_NO_SCOPE = nullcontext()
"""Around a call whose task is its scope."""


class CallSlot:
    """One call of a batch while it comes to its end; the outcome stays in it, whatever becomes of the task."""

    __slots__ = (
        "abort_reason",
        "aborted",
        "announced",
        "answer",
        "boundary",
        "call",
        "cancelled_at",
        "closed",
        "coroutine",
        "outcome",
        "params",
        "scope",
        "signal",
        "started",
        "task",
        "thread",
        "tool",
    )

    def __init__(self, call: ToolCall) -> None:
        self.call: ToolCall = call
        self.tool: AgentTool | None = None
        self.params: Any = None
        self.outcome: CallOutcome | None = None
        self.task: TaskHandle[None, Any] | None = None
        """The call's own task, where ending the call is to end the task: no scope of its own is needed then."""
        self.scope: CancelScope | None = None
        """The call's own scope, where it has no task of its own or may time out."""
        self.boundary: CancelScope | None = None
        """The innermost scope that is not the tool's: the call's own, or that of the batch."""
        self.signal: AbortSource | None = None
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

    def let_go(self) -> None:
        """The tool has ended: keep nothing that only its running needed, however many calls the batch still runs."""
        self.task = self.scope = self.boundary = self.coroutine = self.params = None

    @property
    def ended_alone(self) -> bool:
        """Whether this call has been cancelled, and not only what is around it."""
        return self.aborted or (self.scope is not None and self.scope.cancel_called)

    @property
    def task_is_cancelled(self) -> bool:
        """Whether the call was ended alone by cancelling its task."""
        return self.aborted and self.task is not None

    def abort(self, reason: str | None) -> None:
        """End this call alone."""
        self.aborted, self.abort_reason = True, reason
        if self.signal is not None:
            self.signal.set(reason)
        if self.task is not None:
            self.task.cancel()
        elif self.scope is not None:
            self.scope.cancel()


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

    def call_interrupted(self, slot: CallSlot) -> None:
        """The call has ended because its surroundings are cancelled; it has an outcome if it reached one."""
        ...

    def task_aborted(self, slot: CallSlot) -> None:
        """The call has its outcome, and its task is cancelled: it can wait for nothing that has to be awaited."""
        ...

    def call_ended(self, slot: CallSlot) -> Awaitable[None] | None:
        """The call has its outcome. What is returned has to be awaited before the call is over."""
        ...

    async def call_answered(self, slot: CallSlot) -> None:
        """In a sequential batch: everything about this call is said, the next may begin."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the calls of one message have in common."""

    tools: Mapping[str, AgentTool]
    hooks: ToolHooks
    reporter: BatchReporter
    run_id: str
    run_signal: AbortSignal
    messages: Sequence[Message]
    tool_timeout: float | None
    """Seconds for tools without a timeout of their own."""
    may_time_out: bool
    """Whether any of the tools has a timeout."""
    scope_class: type[CancelScope]
    """The event loop's own class of cancel scopes: to find out which loop runs costs as much as a scope."""
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
    if slot.outcome is None and slot.aborted:
        slot.outcome = CallOutcome.aborted(slot.call, slot.abort_reason)
    elif slot.outcome is None:
        await _reach_outcome(slot, plan)
    task_is_cancelled = slot.task_is_cancelled
    slot.let_go()
    if task_is_cancelled:
        plan.reporter.task_aborted(slot)
        return
    handing_on = plan.reporter.call_ended(slot)
    if handing_on is not None:
        await handing_on


async def _reach_outcome(slot: CallSlot, plan: BatchPlan) -> None:
    if slot.task is None:
        slot.scope = slot.boundary = plan.scope_class()
    try:
        with slot.scope or _NO_SCOPE:
            if plan.hooks.resolve is None and plan.hooks.before is None:
                _prepare(slot, plan)
            else:
                await _prepare_with_hooks(slot, plan)
            if slot.outcome is None:
                await _execute(slot, plan)
            if plan.hooks.after is not None:
                await _after(slot, plan)
    except anyio.get_cancelled_exc_class() as error:  # noqa: ASYNC103 - the scopes say whose it is
        # The type of the exception does not say who was cancelled; the state of the surroundings does. Of a task that
        # was cancelled for this call alone it says nothing, and its handle catches what comes after.
        if not slot.task_is_cancelled:
            if surroundings_are_cancelled():
                _interrupt(slot, plan)
                raise
            slot.outcome = CallOutcome.failed(slot.call, _self_cancelled(error))
    if slot.outcome is None:
        slot.outcome = _outcome_of_cancelled(slot, plan)
    _note_lateness(slot, plan)
    if plan.cancel_requests():
        await let_own_cancellation_pass()


def _interrupt(slot: CallSlot, plan: BatchPlan) -> None:
    _keep_thread_outcome(slot, "the run was cancelled")
    _note_lateness(slot, plan)
    slot.let_go()
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
        resolved = await hooks.resolve(slot.call, plan.run_signal) if hooks.resolve is not None else None
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
        decision = await plan.hooks.before(slot.call, slot.params, tool.validate, plan.run_signal)
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
    change = await plan.hooks.after(slot.call, outcome.result, outcome.is_error, plan.run_signal)
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


async def _execute(slot: CallSlot, plan: BatchPlan) -> None:
    tool, scope = slot.tool, slot.scope
    assert tool is not None
    timeout = _timeout_of(slot, plan)
    if timeout is not None and scope is not None:
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
    if timeout is not None and scope is not None:
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
    work = Driven(slot.coroutine, on_error=partial(_note_cancellation, slot, plan))
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
    boundary = slot.boundary
    if slot.cancelled_at is not None or boundary is None or not isinstance(error, anyio.get_cancelled_exc_class()):
        return
    is_told = plan.run_signal.is_set() or (slot.signal is not None and slot.signal.is_set())
    alone = is_told or slot.ended_alone
    if alone or _comes_from_outside(boundary):
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


async def _cooperatively(slot: CallSlot, grace_seconds: float, work: Driven) -> None:
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


def _keywords(slot: CallSlot, tool: AgentTool, plan: BatchPlan) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    slot.signal = signal = AbortSource()
    if plan.run_signal.is_set():
        signal.set(plan.run_signal.reason)
    if "signal" in tool.accepts:
        keywords["signal"] = signal
    on_update = _Updater(slot, plan.reporter)
    if "on_update" in tool.accepts:
        keywords["on_update"] = on_update
    if "context" in tool.accepts:
        keywords["context"] = ToolContext(
            tool_call_id=slot.call.id,
            tool_name=slot.call.name,
            run_id=plan.run_id,
            signal=signal,
            on_update=on_update,
            messages=plan.messages,
        )
    return keywords


class _Updater:
    """``on_update``: reports progress when it is called; awaiting what it returns waits until all have heard."""

    __slots__ = ("_loop", "_loop_thread", "_reporter", "_slot")

    def __init__(self, slot: CallSlot, reporter: BatchReporter) -> None:
        self._slot, self._reporter = slot, reporter
        self._loop, self._loop_thread = current_token(), threading.get_ident()

    def __call__(self, partial_result: object) -> Awaitable[None]:
        slot = self._slot
        if slot.outcome is not None:
            return DONE  # the call has ended; whatever goes on in its name is not heard any more
        if threading.get_ident() == self._loop_thread:
            return self._reporter.call_updated(slot, partial_result)
        try:
            from_thread.run(self._report, partial_result)  # the thread waits until all have heard
        except NoEventLoopError:  # a thread that the tool started by itself
            from_thread.run_sync(self._reporter.call_updated, slot, partial_result, token=self._loop)
        return DONE

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
