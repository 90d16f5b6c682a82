# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""openai-agents with a model of its interface and its tracing switched off."""

from __future__ import annotations

import asyncio
import json

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

set_tracing_disabled(True)


def call_item(id, name, arguments):
    return ResponseFunctionToolCall(type="function_call", call_id=id, id=id, name=name, arguments=arguments)


def output(answer, text):
    if answer.text is not None:
        part = ResponseOutputText(type="output_text", text=text, annotations=[])
        return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])]
    if answer.argument_deltas is not None:
        return [call_item("a0", "noop", "".join(answer.argument_deltas))]
    return [call_item(call_id, name, json.dumps(arguments)) for call_id, name, arguments in answer.calls]


class ScriptModel(Model):
    def __init__(self, script):
        self.script, self.asked = script, 0

    def next_answer(self):
        self.asked += 1
        return self.script(self.asked - 1)

    async def get_response(self, *given, **named):
        answer = self.next_answer()
        return ModelResponse(output=output(answer, "".join(answer.text or ())), usage=Usage(), response_id=None)

    async def stream_response(self, *given, **named):
        answer = self.next_answer()
        said = []
        for number, delta in enumerate(answer.text if answer.text is not None else answer.argument_deltas or ()):
            if number % 8 == 0:
                await asyncio.sleep(0)
            common = {"delta": delta, "output_index": 0, "sequence_number": number}
            if answer.text is not None:
                said.append(delta)
                yield ResponseTextDeltaEvent(
                    content_index=0, item_id="m", logprobs=[], type="response.output_text.delta", **common
                )
            else:
                yield ResponseFunctionCallArgumentsDeltaEvent(
                    item_id="a0", type="response.function_call_arguments.delta", **common
                )
        response = Response(
            id="r",
            created_at=0.0,
            model="m",
            object="response",
            output=output(answer, "".join(said)),
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


class OpenAIAgents:
    name = "openai_agents"
    backends = ("asyncio",)

    def tool(self, body):
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return function_tool(noop)

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        agent = Agent(name="a", instructions="sys", model=ScriptModel(script), tools=[tool])
        if on_delta is None and wait_delta is None and on_abort is None:
            return await Runner.run(agent, "go", max_turns=100_000)
        result = Runner.run_streamed(agent, "go", max_turns=100_000)
        if on_abort is not None:
            on_abort(result.cancel)
        async for event in result.stream_events():
            delta = getattr(event.data, "delta", None) if event.type == "raw_response_event" else None
            if delta and on_delta is not None:
                on_delta(delta)
            elif delta and wait_delta is not None:
                await wait_delta(delta)
        return result


LIBRARY = OpenAIAgents()
WIRES = {}
