"""Onions: one that writes down what it stands around, one that answers a tool's call from memory, one that limits."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.hooks.middleware import Middleware


class Spans(Middleware):
    """Says when each thing opens and closes; a tracer does the same."""

    async def around_run(self, proceed, *, ctx):
        return await self.span("run", proceed)

    async def around_model_call(self, proceed, *, ctx):
        return await self.span(f"turn {ctx.turn}", proceed)

    async def around_model_try(self, model, proceed):
        return await self.span(f"  try {model.spec.id}", proceed)

    async def around_tool_call(self, call, proceed):
        return await self.span(f"  call {call.name}{tuple(call.arguments.values())}", proceed)

    async def span(self, name, proceed):
        print(f"{name} opens")
        try:
            return await proceed()
        finally:  # also when the run is cancelled: then the outcome is in proceed.outcome
            ended = proceed.outcome
            print(f"{name} closes: {getattr(ended, 'outcome', None) or getattr(ended, 'ending', None) or 'an answer'}")


class Cache(Middleware):
    """Answers a call that was answered before; neither its tool nor a hook hears of it."""

    def __init__(self):
        self.known = {}

    async def around_tool_call(self, call, proceed):
        key = call.name, tuple(call.arguments.items())
        if key not in self.known:
            outcome = await proceed()
            if outcome.is_error:
                return outcome
            self.known[key] = outcome.result
        return self.known[key]


class AtMost(Middleware):
    """At most so many calls at a time, over all agents that share it."""

    def __init__(self, calls):
        self.limiter = anyio.CapacityLimiter(calls)

    async def around_tool_call(self, call, proceed):
        async with self.limiter:
            return await proceed()


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


async def main() -> None:
    provider = FauxProvider()
    call = faux_tool_call("look_up", {"word": "onion"})
    provider.set_responses([[call], [call], "A word."])
    agent = Agent(model=provider.model("scripted"), tools=[look_up], middleware=[Spans(), Cache(), AtMost(2)])
    print((await agent.prompt("What is an onion?")).text)


if __name__ == "__main__":
    anyio.run(main)
