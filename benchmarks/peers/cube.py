# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""CubeLoop and CubePi 0.6, which share an API: a provider that says a script as their own providers do."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from importlib import import_module

from pydantic import BaseModel


class Parameters(BaseModel):
    x: int = 0
    s: str = ""


def provider_class(base):  # noqa: C901 - a class and what it closes over
    """A provider that emits events with a copy of the partial message each, as the shipped ones do."""

    class ScriptProvider(base.BaseProvider):
        def __init__(self, script):
            super().__init__()
            self.script, self.asked = script, 0

        async def stream(self, model, messages, *, system_prompt="", tools=None, options=None, **more):
            answer, stream = self.script(self.asked), base.MessageStream()
            self.asked += 1
            stream.attach_task(asyncio.create_task(self.produce(stream, answer, model)))
            return stream

        async def produce(self, stream, answer, model):
            partial = base.AssistantMessage(
                content=[], usage=base.Usage(), timestamp=time.time(), provider_id="", model_id=model.id
            )

            async def tell(type, index=None, delta=None):
                copy = partial.model_copy(deep=True)
                event = base.StreamEvent(type=type, content_index=index, delta=delta, partial=copy)
                await self._emit(stream, event, model)

            await tell("start")
            if answer.text is not None:
                partial.content.append(base.TextContent(text=""))
                await tell("text_start", 0)
                for number, delta in enumerate(answer.text):
                    if number % 8 == 0:
                        await asyncio.sleep(0)
                    partial.content[0] = base.TextContent(text=partial.content[0].text + delta)
                    await tell("text_delta", 0, delta)
                await tell("text_end", 0)
            elif answer.argument_deltas is not None:
                partial.content.append(base.ToolCall(id="a0", name="noop", arguments={}))
                await tell("toolcall_start", 0)
                for number, delta in enumerate(answer.argument_deltas):
                    if number % 8 == 0:
                        await asyncio.sleep(0)
                    await tell("toolcall_delta", 0, delta)
                arguments = json.loads("".join(answer.argument_deltas))
                partial.content[0] = base.ToolCall(id="a0", name="noop", arguments=arguments)
                await tell("toolcall_end", 0)
            for index, (call_id, name, arguments) in enumerate(answer.calls):
                partial.content.append(base.ToolCall(id=call_id, name=name, arguments=arguments))
                await tell("toolcall_start", index)
                await tell("toolcall_end", index)
            stop = "stop" if answer.text is not None else "tool_use"
            await self._emit(stream, base.StreamEvent(type="done"), model)
            stream.set_result(partial.model_copy(update={"stop_reason": stop}))

    return ScriptProvider


class Cube:
    backends = ("asyncio",)

    def __init__(self, package):
        self.name = self.package = package
        self.base = import_module(f"{package}.providers.base")
        self.agent_class = import_module(f"{package}.agent.agent").Agent
        self.types = import_module(f"{package}.agent.types")
        self.provider_class = provider_class(self.base)

    def tool(self, body):
        async def execute(tool_call_id, params, *, signal=None, on_update=None):
            return self.types.AgentToolResult(content=[self.base.TextContent(text=await body(params.x))])

        return self.types.AgentTool(name="noop", description="noop", parameters=Parameters, execute=execute)

    def agent(self, provider, **options):
        if hasattr(provider, "model"):
            return self.agent_class(model=provider.model("m"), **options)
        return self.agent_class(provider=provider, model=self.base.Model(id="m", provider="p"), **options)

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        kept = {} if store is None else {"checkpointer": store, "thread_id": "t1"}
        agent = self.agent(self.provider_class(script), tools=[tool], system_prompt="sys", **kept)
        if on_abort is not None:
            on_abort(agent.abort)
        if on_delta is not None:
            agent.subscribe(telling(on_delta))
        if wait_delta is not None:

            async def slow(event, signal=None):
                if event.type == "message_update" and event.stream_event.delta:
                    await wait_delta(event.stream_event.delta)

            agent.subscribe(slow)
        return await agent.prompt("go")

    @asynccontextmanager
    async def sqlite(self, path):
        async with import_module(f"{self.package}.checkpointer.sqlite").SQLiteCheckpointer(str(path)) as store:
            yield store

    async def listen(self, url, on_delta):
        anthropic = import_module(f"{self.package}.providers.anthropic")
        agent = self.agent(anthropic.AnthropicProvider(api_key="k", base_url=url))
        agent.subscribe(telling(on_delta))
        await agent.prompt("x")


def telling(on_delta):
    def listener(event, signal=None):
        if event.type == "message_update" and event.stream_event.delta:
            on_delta(event.stream_event.delta)

    return listener
