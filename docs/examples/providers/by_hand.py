"""The same without a draft: events pushed by hand, each with the whole message so far."""

import anyio

from cubepi_anyio import Agent, AssistantMessage, MessageStream, Model, StreamEvent, TextContent


class MyProvider:
    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        ms = MessageStream()

        async def produce() -> None:
            said = AssistantMessage(provider_id=model.provider, model_id=model.id)
            ms.push(StreamEvent("start", partial=said))
            for token in ["Good ", "morning."]:
                await anyio.sleep(0.01)
                said = said.model_copy(update={"content": [TextContent(text=said.text + token)]})
                ms.push(StreamEvent("text_delta", delta=token, partial=said))
            ms.push(StreamEvent("done"))
            ms.set_result(said)

        ms.attach_task(produce)  # the function itself: it runs when the stream is entered
        return ms


async def main() -> None:
    agent = Agent(provider=MyProvider(), model=Model(id="mine", provider="me"))
    print((await agent.prompt("Hello")).text)


if __name__ == "__main__":
    anyio.run(main)
