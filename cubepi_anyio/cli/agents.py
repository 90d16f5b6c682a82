"""The agent that ``chat`` and ``run`` talk to: its model, its tools, and whom it asks before it changes something."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from .. import Agent, AgentTool, RunLimits
from ..checkpointers.base import Checkpointer
from ..hitl import ApprovalPolicy, Approve, AskPerson, Channel, Deny, PolicyDecision
from ..hooks.middleware import BeforeToolCallContext
from ..providers.base import StreamingModel
from ..types.messages import Message
from .file_tools import NEED_CONSENT, file_tools
from .models import ModelSettings, key_variables, takes_tools
from .options import backend_fault, folder_fault, reasoning_of

__all__ = ("Consent", "make_agent", "model_settings", "options_fault", "system_prompt", "tools_for")

_SYSTEM_PROMPT = "You are a helpful assistant on a person's terminal. Answer in plain text, briefly and exactly."
_ABOUT_TOOLS = """\
You have tools for the files of the working folder {folder} and for running programs in it. Look before you claim, use
several tools at once where that helps, and change only what you are asked to change."""


class Consent:
    """Which tools run without asking. What a person allows later is added to ``allowed``."""

    def __init__(self, allowed: Collection[str], *, can_ask: bool) -> None:
        self.allowed: set[str] = set(allowed)
        self._can_ask = can_ask

    def decide(self, call: BeforeToolCallContext) -> PolicyDecision:
        """The policy: what only looks runs, what changes something is asked about, or refused where nobody is there."""
        name = call.tool_call.name
        if name not in NEED_CONSENT or name in self.allowed:
            return Approve()
        if self._can_ask:
            return AskPerson()
        return Deny(f"Nobody is there to allow {name}; the person can start the command with --allow {name}.")


def options_fault(options: argparse.Namespace) -> str:
    """Why the shared arguments cannot be used, in one line; empty if they can."""
    known = sorted(tool.name for tool in file_tools(Path()))
    unknown = [name for name in options.allow if name not in known]
    if unknown:
        return f"there is no tool {unknown[0]!r} to allow; there are {', '.join(known)}"
    return backend_fault(options.backend) or folder_fault(options.cwd)


def model_settings(options: argparse.Namespace, name: str | None = None) -> ModelSettings:
    """What the arguments say of the model, which may be another than ``--model`` names."""
    return ModelSettings(
        name=options.model if name is None else name,
        base_url=options.base_url if name is None else None,
        max_tokens=options.max_tokens,
        reasoning=options.think is not None,
    )


def tools_for(options: argparse.Namespace, model_name: str) -> list[AgentTool]:
    """The tools that the model is offered."""
    if options.no_tools or not takes_tools(model_name):
        return []
    return file_tools(Path(options.cwd), hidden_variables=key_variables())


def make_agent(
    options: argparse.Namespace,
    model: StreamingModel,
    channel: Channel,
    consent: Consent,
    *,
    model_name: str,
    messages: Sequence[Message] = (),
    checkpointer: Checkpointer | None = None,
    thread_id: str | None = None,
    run_timeout: float | None = None,
) -> Agent:
    """Make the agent as the arguments want it; ``messages`` and a stored thread exclude each other."""
    tools = tools_for(options, model_name)
    return Agent(
        model=model,
        tools=tools,
        system_prompt=system_prompt(options, has_tools=bool(tools)),
        reasoning=reasoning_of(options.think),
        limits=RunLimits(max_turns=options.max_turns, run_timeout=run_timeout),
        middleware=[ApprovalPolicy(channel, consent.decide)],
        messages=messages or None,
        checkpointer=checkpointer,
        thread_id=thread_id,
    )


def system_prompt(options: argparse.Namespace, *, has_tools: bool) -> str:
    """What ``--system`` says, or our own words."""
    if options.system is not None:
        return options.system
    about = _ABOUT_TOOLS.format(folder=Path(options.cwd).resolve())
    return f"{_SYSTEM_PROMPT}\n{about}" if has_tools else _SYSTEM_PROMPT
