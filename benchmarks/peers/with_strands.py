# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""strands with a model of its interface and no conversation manager, which would cut the transcript."""

from __future__ import annotations

import asyncio
import json

from strands import Agent
from strands import tool as as_tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model


class ScriptModel(Model):
    def __init__(self, script):
        self.script, self.asked = script, 0

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *given, **named):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **named):
        answer = self.script(self.asked)
        self.asked += 1
        yield {"messageStart": {"role": "assistant"}}
        if answer.text is not None or answer.argument_deltas is not None:
            use = {"toolUse": {"name": "noop", "toolUseId": "a0"}} if answer.text is None else {}
            yield {"contentBlockStart": {"start": use}}
            for number, delta in enumerate(answer.text if answer.text is not None else answer.argument_deltas or ()):
                if number % 8 == 0:
                    await asyncio.sleep(0)
                said = {"text": delta} if answer.text is not None else {"toolUse": {"input": delta}}
                yield {"contentBlockDelta": {"delta": said}}
            yield {"contentBlockStop": {}}
        for call_id, name, arguments in answer.calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": call_id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if answer.text is not None else "tool_use"}}


def delta_of(event):
    said = event.get("event", {}).get("contentBlockDelta", {}).get("delta", {})
    return said.get("text") or said.get("toolUse", {}).get("input")


class Strands:
    name = "strands"
    backends = ("asyncio",)

    def tool(self, body):
        @as_tool
        async def noop(x: int = 0, s: str = "") -> str:
            """Do nothing."""
            return await body(x)

        return noop

    async def run(self, script, tool, *, on_delta=None, wait_delta=None, store=None, on_abort=None):
        agent = Agent(
            model=ScriptModel(script),
            tools=[tool],
            system_prompt="sys",
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )
        if on_abort is not None and hasattr(agent, "cancel"):
            on_abort(agent.cancel)
        if on_delta is None and wait_delta is None:
            return await agent.invoke_async("go")
        async for event in agent.stream_async("go"):
            delta = delta_of(event)
            if delta and on_delta is not None:
                on_delta(delta)
            elif delta and wait_delta is not None:
                await wait_delta(delta)
        return None


LIBRARY = Strands()
WIRES = {}
