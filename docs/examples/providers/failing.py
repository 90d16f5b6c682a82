"""What becomes of a producer that fails, forgets to end, or is left early."""

import anyio

from cubepi_anyio import Agent, MessageDraft, MessageStream, Model, RateLimited


class MyProvider:
    def __init__(self, produce) -> None:
        self._produce = produce

    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        return MessageStream(self._produce)


async def refused(stream: MessageStream) -> None:
    raise RateLimited("too many requests", provider="me", retry_after_seconds=30)


async def forgetful(stream: MessageStream) -> None:
    await MessageDraft(stream).text("I was about to say")


async def silent(stream: MessageStream) -> None:
    try:
        await MessageDraft(stream).text("One moment")
        await anyio.sleep_forever()
    finally:
        print("the connection is closed")


async def main() -> None:
    for produce in (refused, forgetful):
        agent = Agent(provider=MyProvider(produce), model=Model(id="mine", provider="me"))
        result = await agent.prompt("Hello")
        print(result.outcome, "|", type(result.error).__name__, "|", repr(result.text))

    agent = Agent(provider=MyProvider(silent), model=Model(id="mine", provider="me"))
    async with agent.stream("Hello") as run:
        async for event in run:
            if event.type == "message_update" and event.stream_event.delta:
                break
    print(agent.state.last_outcome, "|", repr(agent.state.messages[-1].text))


if __name__ == "__main__":
    anyio.run(main)
