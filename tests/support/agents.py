"""Agents with a scripted model, what they say, and what has to hold after every ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from pydantic import BaseModel

from cubepi_anyio import (
    Agent,
    AgentEvent,
    AgentTool,
    AssistantMessage,
    FauxProvider,
    Message,
    ToolResultMessage,
    faux_assistant_message,
    faux_tool_call,
    tool_cycle_faults,
)
from cubepi_anyio.tools.context import ToolSource


class NoParams(BaseModel):
    """Of tools that take nothing."""


class Word(BaseModel):
    """Of tools that take one word."""

    word: str


def tool_of(name: str, execute: Callable[..., Any], **options: Any) -> AgentTool:
    """A tool without parameters."""
    return AgentTool(name, f"does {name}", options.pop("parameters", NoParams), execute, **options)


def saying(name: str, text: str = "", **options: Any) -> AgentTool:
    """A tool that answers ``text``, or its own name, at once."""

    async def execute(tool_call_id: str, params: NoParams) -> str:
        return text or name

    return tool_of(name, execute, **options)


def sleeping(name: str, began: anyio.Event | None = None, **options: Any) -> AgentTool:
    """A tool that sets ``began`` and waits for ever."""

    async def execute(tool_call_id: str, params: NoParams) -> str:
        if began is not None:
            began.set()
        await anyio.sleep_forever()
        return "never"

    return tool_of(name, execute, **options)


def calling(*names: str, text: str = "") -> AssistantMessage:
    """An answer that calls tools by name; the ids are ``c1``, ``c2``, …"""
    blocks = [faux_tool_call(name, {}, id=f"c{number}") for number, name in enumerate(names, 1)]
    return faux_assistant_message([text, *blocks] if text else blocks)


def label(event: AgentEvent) -> str:
    """An event in a word: its type and what tells it from its like."""
    match event.type:
        case "message_start" | "message_end":
            return f"{event.type}:{event.message.role}"
        case "message_update":
            return f"message_update:{event.stream_event.type}"
        case "tool_execution_start" | "tool_execution_update":
            return f"{event.type}:{event.tool_call_id}"
        case "tool_execution_end":
            return f"{event.type}:{event.tool_call_id}:{event.ending}"
        case "agent_end":
            return f"agent_end:{event.outcome}"
        case _:
            return event.type


def without_deltas(labels: Sequence[str]) -> list[str]:
    """The labels but for those of deltas, whose number is nobody's business."""
    return [label for label in labels if not label.endswith("_delta")]


@dataclass
class Bench:
    """An agent, its model, and all its events so far."""

    provider: FauxProvider
    agent: Agent
    events: list[AgentEvent] = field(default_factory=list[AgentEvent])

    @property
    def labels(self) -> list[str]:
        """What was said, in words."""
        return [label(event) for event in self.events]

    @property
    def results(self) -> list[ToolResultMessage]:
        """The results in the transcript."""
        return [message for message in self.agent.state.messages if isinstance(message, ToolResultMessage)]

    @property
    def texts(self) -> list[str]:
        """The texts of the results in the transcript."""
        return [result.text for result in self.results]

    @property
    def roles(self) -> list[str]:
        """Who said something, in the order of the transcript."""
        return [message.role for message in self.agent.state.messages]

    def asked(self, call: int = -1) -> list[Message]:
        """What the model was sent at one of its calls."""
        return self.provider.calls[call].messages


def bench(*responses: Any, tools: ToolSource = (), heard: bool = True, **options: Any) -> Bench:
    """An agent whose model gives ``responses``, with a plain listener that notes everything."""
    provider = FauxProvider()
    provider.set_responses(responses)
    made = Bench(provider, Agent(model=provider.model("m"), tools=tools, **options))
    if heard:
        made.agent.subscribe(made.events.append)
    return made


_ENDS = {"agent_start": "agent_end", "turn_start": "turn_end", "message_start": "message_end"}


def balance_faults(events: Sequence[AgentEvent]) -> list[str]:
    """What is wrong with the order of the events of whole runs; empty if nothing is."""
    faults: list[str] = []
    open_ends: list[str] = []
    for index, event in enumerate(events):
        kind = event.type
        if kind in _ENDS:
            if (kind == "agent_start") is bool(open_ends):
                faults.append(f"{index}: {kind} inside {open_ends}")
            open_ends.append(_ENDS[kind])
        elif kind in _ENDS.values() and (not open_ends or open_ends.pop() != kind):
            faults.append(f"{index}: {kind} closes nothing that is open")
    return [*faults, *(f"left open: {end}" for end in open_ends), *_call_faults(events)]


def _call_faults(events: Sequence[AgentEvent]) -> list[str]:
    faults: list[str] = []
    running: set[str] = set()
    for index, event in enumerate(events):
        if event.type == "tool_execution_start":
            if event.tool_call_id in running:
                faults.append(f"{index}: call {event.tool_call_id} starts twice")
            running.add(event.tool_call_id)
        elif event.type == "tool_execution_end":
            if event.tool_call_id not in running:
                faults.append(f"{index}: call {event.tool_call_id} ends without having started")
            running.discard(event.tool_call_id)
        elif event.type in ("turn_end", "agent_end") and running:
            faults.append(f"{index}: {event.type} while {running} run")
    return faults


def transcript_faults(messages: Sequence[Message]) -> list[str]:
    """Why a vendor would refuse these messages; empty if it would not."""
    faults = tool_cycle_faults(messages)
    for index, message in enumerate(messages):
        if message.role == "assistant":
            if not message.content:
                faults.append(f"message {index}: the model's message is empty")
            faults += [
                f"message {index}: an empty text block"
                for block in message.content
                if block.type == "text" and not block.text.strip()
            ]
            faults += [
                f"message {index}: unsigned thinking was kept of a broken message"
                for block in message.content
                if block.type == "thinking" and not block.signature and message.stop_reason in ("error", "aborted")
            ]
    ids = [message.id for message in messages]
    if len(set(ids)) != len(ids) or "" in ids:
        faults.append(f"ids are missing or not unique: {ids}")
    return faults


async def assert_well_ended(made: Bench, *, heard: bool = True) -> None:
    """The record is complete, and the agent answers the next prompt with a request any vendor takes."""
    state = made.agent.state
    if heard:
        assert balance_faults(made.events) == []
        assert made.events[-1].type == "agent_end"
    assert transcript_faults(state.messages) == []
    assert (state.is_running, state.phase, state.run_id, state.streaming_message) == (False, "idle", None, None)
    assert state.pending_tool_calls == set()
    made.provider.set_responses(["and on it goes"])
    before = state.messages
    result = await made.agent.prompt("go on")
    assert (result.outcome, result.text) == ("completed", "and on it goes")
    sent = made.asked()
    assert transcript_faults(sent) == []
    assert [message.id for message in sent[: len(before)]] == [message.id for message in before]
    if heard:
        assert balance_faults(made.events) == []


def running_tasks() -> set[int]:
    """The ids of all tasks of the event loop."""
    return {task.id for task in anyio.get_running_tasks()}
