"""Middleware that decides before a tool runs, and asks a person where a policy says so."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ..concurrency import AbortSignal
from ..errors import PersonError
from ..hooks.middleware import BeforeToolCallContext, Middleware
from ..tools.hooks import BeforeToolCallResult
from ..types.hitl import ApproveAnswer
from ..types.json import JsonObject
from .answers import why_unanswered
from .channel import DEFAULT_TIMEOUT, Channel, UseDefault
from .policy import Approve, AskPerson, Deny, Edit, Policy, PolicyDecision

__all__ = ("ApprovalPolicy", "ConfirmToolCall")


class ApprovalPolicy(Middleware):
    """Lets a policy decide about each call: it runs, runs edited, is refused, or waits for a person.

    ::

        ApprovalPolicy(channel, lambda call: AskPerson() if call.tool_call.name == "delete" else Approve())

    Only the call that is asked about waits; the others of its batch run. A refused call gets an error result that the
    model reads; so does one about which nobody answered in time, or whose question was withdrawn. What a person was
    shown is what runs: put this after middleware that edits arguments.
    """

    def __init__(
        self, channel: Channel, policy: Policy, *, timeout: float | UseDefault | None = DEFAULT_TIMEOUT
    ) -> None:
        self._channel = channel
        self._policy = policy
        self._timeout = timeout

    async def before_tool_call(
        self, call: BeforeToolCallContext, *, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        """See ``Middleware.before_tool_call``. Raises ``TypeError`` if the policy decides nothing that it may."""
        found = self._policy(call)
        decision: Any = await found if inspect.isawaitable(found) else found
        match decision:
            case Approve():
                return None
            case Deny(reason=reason):
                return BeforeToolCallResult(block=True, reason=reason or "This call is not allowed.")
            case Edit(args=args):
                return BeforeToolCallResult(edited_args=args)
            case AskPerson():
                return await self._ask(call, decision)
            case _:
                raise TypeError(
                    f"a policy returns Approve(), Deny(), Edit() or AskPerson(), not {type(decision).__name__}"
                )

    async def _ask(self, call: BeforeToolCallContext, asked: AskPerson) -> BeforeToolCallResult | None:
        tool_call = call.tool_call
        try:
            answer = await self._channel.approve(
                tool_call.name,
                tool_call.arguments,
                tool_call_id=tool_call.id,
                run_id=call.ctx.run_id,
                prompt=asked.prompt,
                details=asked.details,
                timeout=self._timeout if isinstance(asked.timeout, UseDefault) else asked.timeout,
            )
        except PersonError as error:
            return BeforeToolCallResult(block=True, reason=f"The call was not approved. {why_unanswered(error)}")
        return _as_result(answer)


def _as_result(answer: ApproveAnswer) -> BeforeToolCallResult | None:
    match answer.decision:
        case "approve":
            return None
        case "deny":
            reason = f"The user refused this call{f': {answer.reason}' if answer.reason else '.'}"
            return BeforeToolCallResult(block=True, reason=reason)
        case "edit":
            return BeforeToolCallResult(edited_args=answer.edited_args)


class ConfirmToolCall(ApprovalPolicy):
    """Asks a person before tools run: all of them, those named, or those a predicate picks call by call.

    Tools that only ask a person themselves (``AgentTool(asks=True)``, such as ``ask_user``) are asked about only where
    ``tools`` picks them.
    """

    def __init__(
        self,
        channel: Channel,
        tools: str | Collection[str] | Callable[[BeforeToolCallContext], bool | Awaitable[bool]] | None = None,
        *,
        prompt: str = "",
        details: Callable[[BeforeToolCallContext], JsonObject] | None = None,
        timeout: float | UseDefault | None = DEFAULT_TIMEOUT,
    ) -> None:
        picks = _picker(tools)

        async def policy(call: BeforeToolCallContext) -> PolicyDecision:
            picked = picks(call)
            if not (await picked if inspect.isawaitable(picked) else picked):
                return Approve()
            return AskPerson(prompt, details(call) if details is not None else None)

        super().__init__(channel, policy, timeout=timeout)


def _picker(
    tools: str | Collection[str] | Callable[[BeforeToolCallContext], bool | Awaitable[bool]] | None,
) -> Callable[[BeforeToolCallContext], bool | Awaitable[bool]]:
    if tools is None:
        return _does_something
    if callable(tools):
        return tools
    names = frozenset({tools} if isinstance(tools, str) else tools)
    return lambda call: call.tool_call.name in names


def _does_something(call: BeforeToolCallContext) -> bool:
    return not any(tool.asks for tool in call.ctx.tools if tool.name == call.tool_call.name)
