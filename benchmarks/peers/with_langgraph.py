# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""langgraph's prebuilt agent with a chat model of langchain's interface."""

from __future__ import annotations

import asyncio
import json
import warnings
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent

warnings.simplefilter("ignore")


class ScriptModel(BaseChatModel):
    script: Any = None
    asked: Any = None

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **more):
        return self

    def next_answer(self):
        self.asked[0] += 1
        return self.script(self.asked[0] - 1)

    def _generate(self, *given, **named):
        raise NotImplementedError

    async def _agenerate(self, messages, stop=None, run_manager=None, **more):
        answer = self.next_answer()
        if answer.text is not None:
            message = AIMessage("".join(answer.text))
        else:
            calls = [
                {"id": call_id, "name": name, "args": args, "type": "tool_call"} for call_id, name, args in answer.calls
            ]
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class StreamingModel(ScriptModel):
    async def _astream(self, messages, stop=None, run_manager=None, **more):
        for number, (delta, message) in enumerate(chunks_of(self.next_answer())):
            if number % 8 == 0:
                await asyncio.sleep(0)
            chunk = ChatGenerationChunk(message=message)
            if run_manager is not None:
                await run_manager.on_llm_new_token(delta, chunk=chunk)
            yield chunk


def chunks_of(answer):
    for delta in answer.text or ():
        yield delta, AIMessageChunk(content=delta)
    for number, delta in enumerate(answer.argument_deltas or ()):
        named = {"name": "noop", "id": "a0"} if number == 0 else {"name": None, "id": None}
        yield "", AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(args=delta, index=0, **named)])
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        call = tool_call_chunk(name=name, args=json.dumps(arguments), id=call_id, index=index)
        yield "", AIMessageChunk(content="", tool_call_chunks=[call])


def delta_of(chunk):
    if type(chunk).__name__ != "AIMessageChunk":
        return None
    calls = getattr(chunk, "tool_call_chunks", None)
    return calls[0]["args"] if calls else chunk.content


class LangGraph:
    name = "langgraph"
    backends = ("asyncio",)

    def tool(self, body):
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return StructuredTool.from_function(coroutine=noop, name="noop", description="Do nothing.")

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        streams = on_delta is not None or wait_delta is not None
        model = (StreamingModel if streams else ScriptModel)(script=script, asked=[0])
        graph = create_react_agent(model, [tool], prompt="sys", checkpointer=store)
        config: dict[str, Any] = {"recursion_limit": 100_000}
        if store is not None:
            config["configurable"] = {"thread_id": "t1"}
        given = {"messages": [("user", "go")]}
        if not streams:
            return await graph.ainvoke(given, config)
        async for chunk, _ in graph.astream(given, config, stream_mode="messages"):
            delta = delta_of(chunk)
            if delta and on_delta is not None:
                on_delta(delta)
            elif delta and wait_delta is not None:
                await wait_delta(delta)
        return None


@asynccontextmanager
async def memory(path):
    yield InMemorySaver()


@asynccontextmanager
async def sqlite(path):
    async with AsyncSqliteSaver.from_conn_string(str(path)) as store:
        yield store


LIBRARY = LangGraph()
WIRES = {}
STORES = {"memory": memory, "sqlite": sqlite}
