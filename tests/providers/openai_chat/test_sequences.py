"""Recorded conversations, replayed by an agent: what it sends next is what the recording's own client sent."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from cubepi_anyio import Agent
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.tools.define.definition import AgentTool, AgentToolResult
from tests.recordings import MISSING, Recording, Replay, body_of, recordings

from .reading import check_against, read
from .test_request import normal, preset_of

pytestmark = [pytest.mark.anyio, pytest.mark.needs_shared]

NOT_OURS = {
    "parallel_tool_calls": "Rig says it although true is what vendors do anyway; we say it only if asked to",
    "tool_choice": "pydantic-ai says auto, which is what vendors do anyway; we say it only if asked to",
    "temperature": "as tool_choice",
}
"""Fields that the recording's client sends and we do not, and why."""

ALWAYS_OURS = {
    "stream": "we always ask for a stream, and read whole answers if the server gives one",
    "stream_options": "we ask every vendor that knows it for the usage",
}
"""Fields in which we differ from clients that did not ask for a stream, and from those that ask for no usage."""

OTHER_TURNS = {
    "grp_bf58807f": "its client puts calls of its own and a second system message into the transcript",
    "grp_62b68f18": "the calls have no ids, and each client makes its own",
}
"""Conversations that no agent of ours would have; test_request.py compares the messages of each."""


def _groups() -> dict[str, list[Recording]]:
    groups: dict[str, list[Recording]] = {}
    for recording in recordings("openai-chat"):
        sequence = recording.get("sequence")
        if sequence and sequence["group"] not in OTHER_TURNS:
            groups.setdefault(sequence["group"], []).append(recording)
    return {name: sorted(group, key=lambda each: each["sequence"]["index"]) for name, group in groups.items()}


GROUPS = _groups()


def _tool(described: dict[str, Any], answers: list[str]) -> AgentTool:
    """The recorded tool; its calls are answered as they were."""
    function = described["function"]

    async def execute(tool_call_id: str, params: Any) -> AgentToolResult:
        return AgentToolResult(answers.pop(0))

    return AgentTool(
        name=function["name"],
        description=function["description"],
        parameters=function["parameters"],
        execute=execute,
        execution_mode="sequential",
    )


def _answers(group: list[Recording]) -> dict[str, list[str]]:
    """What each tool answered, in order, from the last request."""
    names: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    for message in group[-1]["request"]["json"]["messages"]:
        for call in message.get("tool_calls", ()):
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            answers.setdefault(names[message["tool_call_id"]], []).append(message["content"])
    return answers


def _comparable(body: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """``body`` without what may differ from ``other``."""
    whole = not body.get("stream") or not other.get("stream")
    left_out = {*NOT_OURS, *(ALWAYS_OURS if whole else ())}
    kept = {key: value for key, value in body.items() if key not in left_out}
    return {**kept, "messages": [normal(message) for message in body["messages"]]}


@pytest.mark.parametrize("name", sorted(GROUPS) or ["missing"])
async def test_an_agent_continues_a_recorded_conversation_as_its_client_did(replay: Replay, name: str) -> None:
    if name not in GROUPS:
        pytest.skip(MISSING)
    group = GROUPS[name]
    first = group[0]["request"]["json"]
    system, prompt = [normal(message)["content"] for message in first["messages"]]
    answers, sent = _answers(group), list[dict[str, Any]]()
    vendor = preset_of(group[0])
    url = f"{replay.base}/_seq/{name};s={uuid4().hex}"
    async with OpenAIProvider(preset=vendor, base_url=url, api_key="k") as provider:
        provider.subscribe_request(lambda payload, model: sent.append(payload))
        tools = [_tool(each, answers[each["function"]["name"]]) for each in first["tools"]]
        agent = Agent(model=provider.model(first["model"]), system_prompt=system, tools=tools)
        result = await agent.prompt(prompt)
    assert (result.outcome, result.error) == ("completed", None)
    assert len(sent) == len(group)
    for ours, recording in zip(sent, group, strict=True):
        theirs = recording["request"]["json"]
        assert _comparable(ours, theirs) == _comparable(theirs, ours), recording["id"]
    last = read(body_of(group[-1]), whole=not group[-1]["response"]["stream"])
    check_against(group[-1], last.message, last.usage, last.stop_reason)
    assert result.text == last.message.text
