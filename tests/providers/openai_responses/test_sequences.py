"""Recorded conversations, replayed by an agent: what it sends next is what the recording's own client sent."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from cubepi_anyio import Agent, RunLimits
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.tools.define.definition import AgentTool, AgentToolResult
from cubepi_anyio.types import ReasoningControl, ToolResultMessage
from tests.recordings import MISSING, Recording, Replay, recordings

from .reading import check_against

pytestmark = [pytest.mark.anyio, pytest.mark.needs_shared]

OURS = {
    "store": "some clients leave it to the vendor, who then keeps each answer; we always say",
    "stream": "we always ask for a stream, and read whole answers if the server gives one",
    "tool_choice": "pydantic-ai says auto, which is what vendors do anyway; we say it only if asked to",
    "tools.strict": "Rig does not say, and then the vendor makes the tool strict; we say what it is",
    "tools.description": "pydantic-ai sends null for none; we leave it out",
    "tools.parameters.properties": "as the tool says; Rig adds a list of required fields where nothing is required",
    "input.type": "messages of users are known without it",
    "input.status": "Rig sends the status of calls and results, which only the vendor can know",
    "input.phase": "Rig drops the phase of the vendor's messages, which the vendor wants back",
    "input.id": "one client leaves the ids of calls out; they show the vendor which reasoning led to them",
    "input.arguments": "one client writes a space after each colon",
    "input.call_id": "pydantic-ai puts the id of the answer before each call's own; ours differ only if two are alike",
}
"""In what the requests differ, and why. Everything else has to be equal."""


def _groups() -> dict[str, list[Recording]]:
    groups: dict[str, list[Recording]] = {}
    for recording in recordings("openai-responses"):
        if recording.get("sequence"):
            groups.setdefault(recording["sequence"]["group"], []).append(recording)
    return {name: sorted(group, key=lambda each: each["sequence"]["index"]) for name, group in groups.items()}


GROUPS = _groups()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without what ``OURS`` excuses, and with texts in one form."""
    kept = {name: value for name, value in body.items() if name not in OURS}
    kept["input"] = [_normal_item(item) for item in body["input"]]
    kept["tools"] = [_normal_tool(tool) for tool in body.get("tools", ())]
    return kept


def _normal_item(item: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in item.items() if name not in ("status", "phase")}
    if item.get("role") == "user":
        return {"role": "user", "content": _text(item["content"])}
    if item.get("type") == "function_call":
        return {**kept, "id": "", "arguments": json.loads(item["arguments"]), "call_id": item["call_id"].split(":")[-1]}
    if item.get("type") == "function_call_output":
        return {**kept, "call_id": item["call_id"].split(":")[-1]}
    return kept


def _normal_tool(tool: dict[str, Any]) -> dict[str, Any]:
    parameters = {name: value for name, value in tool["parameters"].items() if value != []}
    return {"name": tool["name"], "type": tool["type"], "description": tool.get("description") or "", **parameters}


def _answers(group: list[Recording]) -> dict[str, list[str]]:
    """What each tool answered, in order, as the last request tells."""
    names: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    for item in group[-1]["request"]["json"]["input"]:
        if item.get("type") == "function_call":
            names[item["call_id"]] = item["name"]
        if item.get("type") == "function_call_output":
            answers.setdefault(names[item["call_id"]], []).append(item["output"])
    return answers


def _tool(described: dict[str, Any], answers: list[str]) -> AgentTool:
    """The recorded tool; its calls are answered as they were."""

    async def execute(tool_call_id: str, params: Any) -> AgentToolResult:
        return AgentToolResult(answers.pop(0))

    return AgentTool(
        name=described["name"],
        description=described.get("description") or "",
        parameters=described["parameters"],
        execute=execute,
        execution_mode="sequential",
    )


def _agent(provider: OpenAIResponsesProvider, group: list[Recording]) -> Agent:
    first = group[0]["request"]["json"]
    reasoning = ReasoningControl(mode="on", effort=first["reasoning"]["effort"]) if "reasoning" in first else None
    model = provider.model(first["model"], reasoning=True, max_tokens=first.get("max_output_tokens"))
    answers = _answers(group)
    return Agent(
        model=model,
        system_prompt=first.get("instructions", ""),
        tools=[_tool(each, answers.get(each["name"], [])) for each in first["tools"]],
        reasoning=reasoning,
        limits=RunLimits(max_turns=len(group)),
    )


def _prompts(group: list[Recording]) -> list[str]:
    items = group[-1]["request"]["json"]["input"]
    return [_text(item["content"]) for item in items if item.get("role") == "user"]


@pytest.mark.parametrize("name", sorted(set(GROUPS) - {"grp_267e0722"}) or ["missing"])
async def test_an_agent_continues_a_recorded_conversation_as_its_client_did(replay: Replay, name: str) -> None:
    if name not in GROUPS:
        pytest.skip(MISSING)
    group, sent = GROUPS[name], list[dict[str, Any]]()
    url = f"{replay.base}/_seq/{name};s={uuid4().hex}"
    async with OpenAIResponsesProvider(base_url=url, api_key="k") as provider:
        provider.subscribe_request(lambda payload, model: sent.append(payload))
        agent = _agent(provider, group)
        result = await agent.prompt(_prompts(group)[0])
    _compare(sent, group)
    last = next(each for each in reversed(result.messages) if each.role == "assistant")
    check_against(group[-1], last, last.usage, last.stop_reason)
    # One recording ends with calls, which nobody answered.
    assert result.outcome == ("limit" if last.tool_calls else "completed")


async def test_an_agent_asks_on_in_a_recorded_conversation_as_its_client_did(replay: Replay) -> None:
    """Here the person speaks before the model has said anything about the result."""
    if "grp_267e0722" not in GROUPS:
        pytest.skip(MISSING)
    group, sent = GROUPS["grp_267e0722"], list[dict[str, Any]]()
    url = f"{replay.base}/_seq/grp_267e0722;s={uuid4().hex}"
    prompts = _prompts(group)
    async with OpenAIResponsesProvider(base_url=url, api_key="k") as provider:
        provider.subscribe_request(lambda payload, model: sent.append(payload))
        agent = _agent(provider, group)

        def steer(event: Any) -> None:
            if event.type == "message_end" and isinstance(event.message, ToolResultMessage):
                agent.steer(prompts[1])

        agent.subscribe(steer)
        first = await agent.prompt(prompts[0])
        last = await agent.prompt(prompts[2])
    assert (first.outcome, last.outcome) == ("completed", "completed")
    # Its client offers no tools where the person forbids their use.
    _compare([sent[0], *({**each, "tools": []} for each in sent[1:])], group)
    assert last.text == group[-1]["expected"]["text"]


def _compare(sent: list[dict[str, Any]], group: list[Recording]) -> None:
    assert len(sent) == len(group)
    for ours, recording in zip(sent, group, strict=True):
        assert _normal(ours) == _normal(recording["request"]["json"]), recording["id"]


@pytest.mark.parametrize("name", sorted(GROUPS) or ["missing"])
def test_a_recorded_client_sends_reasoning_back_as_it_came(name: str) -> None:
    """What the comparison above rests on: the vendor took these items, byte for byte those of the answers."""
    if name not in GROUPS:
        pytest.skip(MISSING)
    came = [recording["response"]["body_text"] for recording in GROUPS[name]]
    for item in GROUPS[name][-1]["request"]["json"]["input"]:
        if item.get("type") == "reasoning":
            assert any(item["encrypted_content"] in body and item["id"] in body for body in came)
