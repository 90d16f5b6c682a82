"""A provider whose model calls tools: arguments arrive in pieces, and usage at the end."""

import anyio

from cubepi_anyio import Agent, MessageDraft, MessageStream, Model, Usage, tool


class MyProvider:
    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        async def produce(stream: MessageStream) -> None:
            draft = MessageDraft(stream, model)
            if messages[-1].role == "tool_result":
                await draft.text(f"It is {messages[-1].text}.")
            else:
                await draft.thinking("I need the tool for that.")
                index = await draft.tool_call("call_1", tools[0].name)
                for piece in ['{"a": 2', ', "b": 3}']:
                    await draft.arguments(index, piece)
                await draft.end_block(index)
            await draft.done(usage=Usage(input_tokens=10, output_tokens=5))

        return MessageStream(produce)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    agent = Agent(provider=MyProvider(), model=Model(id="mine", provider="me"), tools=[add])
    result = await agent.prompt("2 + 3?")
    print([block.type for block in result.messages[1].content], result.messages[1].stop_reason)
    print(result.text, "-", result.usage.total_tokens, "tokens")


if __name__ == "__main__":
    anyio.run(main)
