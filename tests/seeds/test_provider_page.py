"""The page "custom providers": its examples run, on every backend."""

# pyright: basic
# The examples keep the page's own text, which has few annotations.

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, Protocol

import anyio
import pytest

import cubepi_anyio
from cubepi_anyio import Agent, AgentTool, AgentToolResult
from cubepi_anyio.providers import FauxProvider, faux_assistant_message, faux_text, faux_thinking, faux_tool_call
from cubepi_anyio.providers.base import (
    AssistantMessage,
    Message,
    MessageStream,
    Model,
    ProviderResponse,
    StreamEvent,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDefinition,
    Usage,
    invoke_on_payload,
    invoke_on_response,
)
from tests.support.agents import (
    Word,
    balance_faults,
    label,
    running_tasks,
    transcript_faults,
    without_deltas,
)

from .minimal_provider import Backend, MyProvider, asked, provider_on

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


# --- the interface ---------------------------------------------------------------------------


class Provider(Protocol):
    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream: ...


def test_the_protocol_is_the_one_of_the_page() -> None:
    assert inspect.signature(Provider.stream) == inspect.signature(cubepi_anyio.Provider.stream)


# --- a minimal provider ----------------------------------------------------------------------


def an_agent(say: Backend) -> tuple[Agent, list[Any]]:
    agent = Agent(provider=provider_on(say), model=Model(id="test", provider="mine"))
    events: list[Any] = []
    agent.subscribe(lambda e, signal=None: events.append(e))
    return agent, events


async def test_the_minimal_provider_answers() -> None:
    async def say(signal: Any) -> AsyncIterator[str]:
        for token in ("Hel", "lo", "!"):
            await anyio.lowlevel.checkpoint()
            yield token

    before = running_tasks()
    agent, events = an_agent(say)
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "Hello!")
    assert running_tasks() == before
    [_, answer] = agent.state.messages
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.provider_id, answer.model_id, answer.stop_reason) == ("Hello!", "mine", "test", "stop")
    assert [model for _, model in asked] == ["test"]
    partials = [event.message.text for event in events if event.type == "message_update"]
    assert partials == ["Hel", "Hello", "Hello!"]
    assert without_deltas([label(event) for event in events]) == [
        "agent_start",
        "turn_start",
        "message_start:user",
        "message_end:user",
        "message_start:assistant",
        "message_end:assistant",
        "turn_end",
        "agent_end:completed",
    ]


async def test_the_minimal_provider_may_be_asked_without_an_agent() -> None:
    async def say(signal: Any) -> AsyncIterator[str]:
        yield "one"
        await anyio.lowlevel.checkpoint()
        yield "two"

    stream = await provider_on(say).stream(Model(id="test", provider="mine"), [])
    async with stream:
        types = [event.type async for event in stream]
    assert types == ["start", "text_delta", "text_delta", "done"]
    assert (await stream.result()).text == "onetwo"


async def test_the_minimal_provider_s_failure_is_an_outcome() -> None:
    async def say(signal: Any) -> AsyncIterator[str]:
        yield "half"
        await anyio.lowlevel.checkpoint()
        raise ConnectionError("the backend has gone")

    agent, events = an_agent(say)
    result = await agent.prompt("hi")
    assert result.outcome == "error"
    assert "the backend has gone" in str(result.error)
    assert balance_faults(events) == []
    assert transcript_faults(agent.state.messages) == []


@pytest.mark.parametrize("waits", [True, False], ids=["while it waits", "between two tokens"])
async def test_the_minimal_provider_is_aborted(waits: bool) -> None:
    reached = anyio.Event()

    class Tokens:
        """An object with ``__anext__``: a generator that is left half-way would be closed by the garbage collector."""

        count = 0

        def __aiter__(self) -> Tokens:
            return self

        async def __anext__(self) -> str:
            self.count += 1
            if self.count == 1:
                return "half"
            if self.count == 4:
                reached.set()
            if waits and self.count == 4:
                await anyio.sleep_forever()
            await anyio.lowlevel.cancel_shielded_checkpoint()
            return "x"

    def say(signal: Any) -> Tokens:
        return Tokens()

    before = running_tasks()
    agent, events = an_agent(say)
    results: list[Any] = []

    async def prompt() -> None:
        results.append(await agent.prompt("hi"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        await reached.wait()
        agent.abort()
    assert results[0].outcome == "aborted"
    assert running_tasks() == before
    [_, answer] = agent.state.messages
    assert isinstance(answer, AssistantMessage)
    assert (answer.stop_reason, answer.text[:4]) == ("aborted", "half")
    assert balance_faults(events) == []


async def test_a_producer_that_crashes_or_forgets_its_result_does_not_hang() -> None:
    """What the page warns of: the stream knows its producer, so the agent sees an error in place of a hang."""

    class Forgetful(MyProvider):
        async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
            ms = MessageStream()

            async def _produce():
                ms.push(StreamEvent(type="start", partial=AssistantMessage()))
                if system_prompt == "crash":
                    raise RuntimeError("crashed")

            ms.attach_task(_produce)
            return ms

    for prompt in ("crash", "forget"):
        provider = Forgetful(api_key="not-a-key")
        agent = Agent(provider=provider, model=Model(id="test", provider="mine"), system_prompt=prompt)
        result = await agent.prompt("hi")
        assert result.outcome == "error"
        assert ("crashed" in str(result.error)) == (prompt == "crash")


# --- tool calls ------------------------------------------------------------------------------


class CallingProvider:
    """Adds a call to ``partial.content`` as the page shows, then answers in words."""

    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        ms = MessageStream()
        answers = any(message.role == "tool_result" for message in messages)

        async def _produce():
            partial = AssistantMessage(content=[TextContent(text="look")], usage=Usage())
            ms.push(StreamEvent(type="start", partial=partial.model_copy(deep=True)))
            if answers:
                ms.push(StreamEvent(type="text_delta", delta="look", partial=partial.model_copy(deep=True)))
                ms.push(StreamEvent(type="done"))
                ms.set_result(partial)
                return
            block_id, tool_name = "call_1", "search"
            tc = ToolCall(id=block_id, name=tool_name, arguments={})
            partial.content.append(tc)
            ms.push(
                StreamEvent(
                    type="toolcall_start",
                    content_index=len(partial.content) - 1,
                    partial=partial.model_copy(deep=True),
                )
            )
            # ... as JSON args arrive:
            for partial_json_chunk in ('{"wo', 'rd": "py', 'thon"}'):
                ms.push(
                    StreamEvent(
                        type="toolcall_delta",
                        delta=partial_json_chunk,
                        content_index=len(partial.content) - 1,
                        partial=partial.model_copy(deep=True),
                    )
                )
            # ... on completion:
            tc.arguments = {"word": "python"}
            ms.push(
                StreamEvent(
                    type="toolcall_end",
                    content_index=len(partial.content) - 1,
                    partial=partial.model_copy(deep=True),
                )
            )
            ms.push(StreamEvent(type="done"))
            ms.set_result(partial)

        ms.attach_task(_produce)
        return ms


async def _search(tool_call_id, params: Word, *, signal=None, on_update=None):
    return AgentToolResult(content=[TextContent(text=f"found {params.word}")])


my_search_tool = AgentTool(name="search", description="searches", parameters=Word, execute=_search)


async def test_calls_that_a_custom_provider_makes_are_dispatched() -> None:
    agent = Agent(provider=CallingProvider(), model=Model(id="test", provider="mine"), tools=[my_search_tool])
    events: list[Any] = []
    agent.subscribe(events.append)
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "look")
    [_, called, answered, _] = agent.state.messages
    assert isinstance(called, AssistantMessage)
    assert [(call.id, call.name, call.arguments) for call in called.tool_calls] == [
        ("call_1", "search", {"word": "python"})
    ]
    assert answered.role == "tool_result"
    assert answered.text == "found python"
    kinds = [event.stream_event.type for event in events if event.type == "message_update"]
    assert kinds == ["toolcall_start", *["toolcall_delta"] * 3, "toolcall_end", "text_delta"]
    assert balance_faults(events) == []


# --- hooks around the request ----------------------------------------------------------------


class FakeHttpClient:
    """Notes what is posted."""

    def __init__(self) -> None:
        self.posted: list[Any] = []

    async def post(self, url: str, *, json: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        self.posted.append(json)
        return type("Response", (), {"status_code": 200, "headers": [("x-id", "7")]})()


class HookedProvider:
    def __init__(self, client: FakeHttpClient) -> None:
        self._client = client

    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        opts = options or StreamOptions()
        ms = MessageStream()

        async def _produce():
            payload = {"model": model.id}
            payload = await invoke_on_payload(opts.on_payload, payload, model)
            http_resp = await self._client.post("/v1", json=payload)
            await invoke_on_response(
                opts.on_response,
                ProviderResponse(status=http_resp.status_code, headers=dict(http_resp.headers)),
                model,
            )
            ms.push(StreamEvent(type="start", partial=AssistantMessage(content=[TextContent(text="ok")])))
            ms.push(StreamEvent(type="done"))
            ms.set_result(AssistantMessage(content=[TextContent(text="ok")]))

        ms.attach_task(_produce)
        return ms


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_hooks_see_the_request_and_the_head_of_the_answer(is_async: bool) -> None:
    heads: list[ProviderResponse] = []

    def change(payload: Any, model: Model) -> Any:
        return {**payload, "extra": model.provider}

    async def change_async(payload: Any, model: Model) -> Any:
        return change(payload, model)

    async def note_async(response: ProviderResponse, model: Model) -> None:
        heads.append(response)

    client = FakeHttpClient()
    agent = Agent(
        provider=HookedProvider(client),
        model=Model(id="test", provider="mine"),
        on_payload=change_async if is_async else change,
        on_response=note_async if is_async else lambda response, model: heads.append(response),
    )
    result = await agent.prompt("hi")
    assert (result.outcome, result.text) == ("completed", "ok")
    assert client.posted == [{"model": "test", "extra": "mine"}]
    assert heads == [ProviderResponse(status=200, headers={"x-id": "7"})]


# --- the faux provider -----------------------------------------------------------------------


async def test_my_agent():
    provider = FauxProvider()
    provider.set_responses(
        [
            faux_assistant_message(
                [
                    faux_tool_call("search", {"word": "python"}),
                ]
            ),
            faux_assistant_message("Here are the results: …"),
        ]
    )

    agent = Agent(
        provider=provider,
        model=Model(id="test", provider="faux"),
        tools=[my_search_tool],
    )
    events = []
    agent.subscribe(lambda e, signal=None: events.append(e))
    await agent.prompt("Search for python")

    assert any(e.type == "tool_execution_start" for e in events)
    assert events[-1].type == "agent_end"
    assert provider.pending_response_count == 0
    assert len([e for e in events if e.type == "message_update" and e.stream_event.type == "text_delta"]) > 1


def test_the_helpers_make_what_the_page_says() -> None:
    assert faux_text("Hello!") == TextContent(text="Hello!")
    assert faux_thinking("Pondering…") == ThinkingContent(thinking="Pondering…")
    call = faux_tool_call("name", {"arg": 1})
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("name", {"arg": 1})
    assert faux_assistant_message("text").content == [TextContent(text="text")]
    assert faux_assistant_message([faux_text("a"), call]).content == [TextContent(text="a"), call]
