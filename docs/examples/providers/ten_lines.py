"""A provider in ten lines: a draft does the bookkeeping."""

import anyio

from cubepi_anyio import Agent, MessageDraft, MessageStream, Model


class MyProvider:
    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream, model)
            for token in ["You ", "asked: ", messages[-1].text]:
                await anyio.sleep(0.01)  # your backend sends the next token
                await draft.text(token)
            await draft.done()

        return MessageStream(produce)


async def main() -> None:
    agent = Agent(provider=MyProvider(), model=Model(id="mine", provider="me"))
    async with agent.stream("Anybody there?") as run:
        async for event in run:
            if event.type == "message_update":
                print(event.stream_event.type, repr(event.stream_event.delta))
    print(agent.state.messages[-1].text)


if __name__ == "__main__":
    anyio.run(main)
