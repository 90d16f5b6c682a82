"""Where the model says that it was shown too much: show it less, and ask again within the same turn."""

import anyio

from cubepi_anyio import Agent, ContextLengthExceeded, FauxProvider
from cubepi_anyio.hooks.middleware import Middleware


class ShowLess(Middleware):
    def __init__(self):
        self.shown = None

    def transform_context(self, messages):
        shown = messages if self.shown is None else messages[-self.shown :]
        print("shown:", [message.text for message in shown])
        return shown

    async def around_model_call(self, proceed):
        outcome = await proceed()
        if isinstance(outcome.error, ContextLengthExceeded) and not outcome.said:
            self.shown = 1
            outcome = await proceed()  # the transforms run again
        return outcome


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["Noted.", ContextLengthExceeded("too long"), "Now I can."])
    agent = Agent(model=provider.model("scripted"), middleware=[ShowLess()])
    await agent.prompt("A long story.")
    result = await agent.prompt("Go on.")
    print(result.outcome, "|", result.text)


if __name__ == "__main__":
    anyio.run(main)
