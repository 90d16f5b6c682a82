# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""pydantic-ai with a function model that reports its usage, so that nothing is estimated over the history."""

from __future__ import annotations

import json

import anthropic
import anyio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.tools import Tool
from pydantic_ai.usage import RequestUsage, UsageLimits


def delta_of(event):
    """The text or arguments that an event brings, if it brings any."""
    if isinstance(event, PartDeltaEvent):
        return getattr(event.delta, "content_delta", None) or getattr(event.delta, "args_delta", None)
    if isinstance(event, PartStartEvent):
        return getattr(event.part, "content", None) or getattr(event.part, "args", None)
    return None


def model_of(script):
    asked = 0

    def next_answer():
        nonlocal asked
        asked += 1
        return script(asked - 1)

    async def whole(messages, info):
        answer = next_answer()
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        if answer.text is not None:
            return ModelResponse(parts=[TextPart("".join(answer.text))], usage=usage)
        parts = [ToolCallPart(name, arguments, tool_call_id=call_id) for call_id, name, arguments in answer.calls]
        return ModelResponse(parts=parts, usage=usage)

    async def streamed(messages, info):
        answer = next_answer()
        for number, delta in enumerate(answer.text or ()):
            if number % 8 == 0:
                await anyio.lowlevel.checkpoint()
            yield delta
        for number, delta in enumerate(answer.argument_deltas or ()):
            if number % 8 == 0:
                await anyio.lowlevel.checkpoint()
            first = {"name": "noop", "tool_call_id": "a0"} if number == 0 else {}
            yield {0: DeltaToolCall(json_args=delta, **first)}
        for index, (call_id, name, arguments) in enumerate(answer.calls):
            yield {index: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=call_id)}

    return FunctionModel(whole, stream_function=streamed)


class PydanticAI:
    name = "pydantic_ai"
    backends = ("asyncio",)  # its runs start asyncio tasks

    def tool(self, body):
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return Tool(noop, takes_ctx=False)

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        async def handler(context, events):
            async for event in events:
                if (delta := delta_of(event)) and on_delta is not None:
                    on_delta(delta)
                elif delta and wait_delta is not None:
                    await wait_delta(delta)

        agent = Agent(model_of(script), tools=[tool], system_prompt="sys")
        listening = on_delta is not None or wait_delta is not None
        limits = UsageLimits(request_limit=None)
        return await agent.run("go", usage_limits=limits, event_stream_handler=handler if listening else None)


async def listen(url, on_delta):
    """A whole run over Anthropic's SDK."""

    async def handler(context, events):
        async for event in events:
            if delta := delta_of(event):
                on_delta(delta)

    async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
        model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client))
        await Agent(model).run("x", event_stream_handler=handler)


async def listen_to_sdk(url, on_delta):
    """Anthropic's SDK alone: its raw events, without a message built of them."""
    async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
        stream = await client.messages.create(
            model="claude", max_tokens=10, messages=[{"role": "user", "content": "x"}], stream=True
        )
        async for event in stream:
            if event.type == "content_block_delta":
                on_delta(event.delta.text)


LIBRARY = PydanticAI()
WIRES = {"agent": listen, "sdk": listen_to_sdk}
