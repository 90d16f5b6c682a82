# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""agno with a model of its interface; arguments of calls arrive whole, because its models accumulate them."""

from __future__ import annotations

import asyncio
import json
import os

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse


def calls_of(answer):
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in answer.calls
    ]
    return ModelResponse(role="assistant", tool_calls=calls)


class ScriptModel(Model):
    script = None
    asked = 0

    def next_answer(self):
        self.asked += 1
        return self.script(self.asked - 1)

    def invoke(self, *given, **named):
        raise NotImplementedError

    def invoke_stream(self, *given, **named):
        raise NotImplementedError

    def _parse_provider_response(self, response, **named):
        return response

    def _parse_provider_response_delta(self, response):
        return response

    async def ainvoke(self, *given, **named):
        answer = self.next_answer()
        if answer.text is not None:
            return ModelResponse(role="assistant", content="".join(answer.text))
        return calls_of(answer)

    async def ainvoke_stream(self, *given, **named):
        answer = self.next_answer()
        if answer.text is None:
            yield calls_of(answer)
            return
        for number, delta in enumerate(answer.text):
            if number % 8 == 0:
                await asyncio.sleep(0)
            yield ModelResponse(role="assistant", content=delta)


class Agno:
    name = "agno"
    backends = ("asyncio",)

    def tool(self, body):
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return noop

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        model = ScriptModel(id="m")
        model.script = script
        agent = Agent(model=model, tools=[tool], system_message="sys", telemetry=False)
        if on_delta is None and wait_delta is None:
            return await agent.arun("go")
        async for event in agent.arun("go", stream=True):
            delta = getattr(event, "content", None) if type(event).__name__ == "RunContentEvent" else None
            if delta and on_delta is not None:
                on_delta(delta)
            elif delta and wait_delta is not None:
                await wait_delta(delta)
        return None


LIBRARY = Agno()
WIRES = {}
LEFT_OUT = ("arguments",)
"""Works that it has no counterpart of: its model interface hands over whole calls."""
