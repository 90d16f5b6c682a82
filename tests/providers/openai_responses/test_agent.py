"""An agent over the Responses API: what a broken answer runs, keeps, and sends back."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from cubepi_anyio import Agent, RunResult
from cubepi_anyio.errors import IncompleteStream, ProviderUnavailable
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from cubepi_anyio.tools.define.definition import AgentTool
from tests.providers.loopback import HEAD, LAST_CHUNK, Connection, chunk, serve

from .reading import added, call, created, end, event, message, reasoning, text

pytestmark = pytest.mark.anyio

SEALED = reasoning(0, encrypted_content="sealed")
GOOD = created() + message(0, "Good.") + end()


class Scene:
    """A vendor with an answer for each request, an agent that asks it, and a tool that says when it runs."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.requests: list[list[dict[str, Any]]] = []
        self.ran: list[Any] = []

    async def __call__(self, connection: Connection) -> None:
        while True:
            self.requests.append(json.loads((await connection.request())[1])["input"])
            body = self._answers.pop(0)
            if body.endswith(HANG):
                await connection.send(HEAD + chunk(body.removesuffix(HANG)))
                await connection.until_closed()
                return
            await connection.send(HEAD + chunk(body) + LAST_CHUNK)

    def agent(self, provider: OpenAIResponsesProvider) -> Agent:
        async def execute(tool_call_id: str, params: Any) -> str:
            self.ran.append(params)
            return "ran"

        tool = AgentTool(name="f", description="Does f.", parameters={"type": "object"}, execute=execute)
        return Agent(model=provider.model("gpt", reasoning=True), tools=[tool])


HANG = b"hang"


def sent(items: list[dict[str, Any]]) -> list[str]:
    return [f"{each.get('type') or each['role']} {each.get('id', '')}".strip() for each in items]


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (created() + SEALED + call(1, '{"a":1}'), IncompleteStream),
        (created() + SEALED + call(1, '{"a":1}') + event("error", code="server_error"), ProviderUnavailable),
        (created() + SEALED + call(1, '{"a":1}') + end("failed", error={"code": "server_error"}), ProviderUnavailable),
    ],
)
async def test_a_broken_answer_runs_no_tool_and_the_next_request_is_a_valid_one(
    broken: bytes, kind: type[Exception]
) -> None:
    scene = Scene(broken, GOOD)
    async with serve(scene) as server, OpenAIResponsesProvider(base_url=server.base, api_key="k") as provider:
        agent = scene.agent(provider)
        first = await agent.prompt("one")
        second = await agent.prompt("two")
    assert (first.outcome, type(first.error), scene.ran) == ("error", kind, [])
    assert (second.outcome, second.text) == ("completed", "Good.")
    assert sent(scene.requests[1]) == [
        "user",
        "reasoning rs_0",
        "function_call fc_1",
        "function_call_output",
        "user",
    ]


async def test_a_call_that_was_cut_goes_without_the_reasoning_that_led_to_it() -> None:
    begun = added(1, "function_call", id="fc_1", call_id="call_1", name="f")
    begun += event("response.function_call_arguments.delta", output_index=1, delta='{"a')
    scene = Scene(created() + SEALED + begun, GOOD)
    async with serve(scene) as server, OpenAIResponsesProvider(base_url=server.base, api_key="k") as provider:
        agent = scene.agent(provider)
        assert (await agent.prompt("one")).outcome == "error"
        assert (await agent.prompt("two")).text == "Good."
    assert (sent(scene.requests[1]), scene.ran) == (["user", "user"], [])


async def test_an_answer_cut_by_the_limit_runs_no_tool() -> None:
    cut = call(1, '{"a":1}') + call(2, '{"a":') + end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    scene = Scene(created() + SEALED + cut, GOOD, GOOD)
    async with serve(scene) as server, OpenAIResponsesProvider(base_url=server.base, api_key="k") as provider:
        agent = scene.agent(provider)
        await agent.prompt("one")
        await agent.prompt("two")
    assert scene.ran == []
    assert sent(scene.requests[-1])[:4] == ["user", "reasoning rs_0", "function_call fc_1", "function_call_output"]
    assert [each["call_id"] for each in scene.requests[-1] if "call_id" in each] == ["call_1", "call_1"]


async def test_an_aborted_answer_keeps_its_text_and_is_no_error_of_the_provider() -> None:
    scene = Scene(created() + SEALED + added(1, "message", id="msg_1") + text(1, "Half") + HANG, GOOD)
    async with serve(scene) as server, OpenAIResponsesProvider(base_url=server.base, api_key="k") as provider:
        agent = scene.agent(provider)
        heard, results = anyio.Event(), list[RunResult]()
        agent.subscribe(lambda each: heard.set() if each.type == "message_update" and _is_text(each) else None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_abort_after, heard, agent)
            results.append(await agent.prompt("one"))
        second = await agent.prompt("two")
    assert [(each.outcome, each.error, each.text) for each in results] == [("aborted", None, "Half")]
    assert second.text == "Good."
    # What was cut is not the vendor's item, so neither its id nor its reasoning goes back.
    assert scene.requests[1] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Half"},
        {"role": "user", "content": "two"},
    ]


async def _abort_after(heard: anyio.Event, agent: Agent) -> None:
    await heard.wait()
    agent.abort()


def _is_text(event: Any) -> bool:
    return event.stream_event.type == "text_delta"


async def test_a_result_goes_back_with_the_call_and_the_reasoning_it_answers() -> None:
    scene = Scene(created() + SEALED + call(1, '{"a":1}') + end(), GOOD)
    async with serve(scene) as server, OpenAIResponsesProvider(base_url=server.base, api_key="k") as provider:
        result = await scene.agent(provider).prompt("one")
    assert (result.outcome, result.text, scene.ran) == ("completed", "Good.", [{"a": 1}])
    assert scene.requests[1] == [
        {"role": "user", "content": "one"},
        {"type": "reasoning", "summary": [], "id": "rs_0", "encrypted_content": "sealed"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "ran"},
    ]
