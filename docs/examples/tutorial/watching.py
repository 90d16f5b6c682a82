"""See the answer while it is written."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_thinking


async def main() -> None:
    provider = FauxProvider(token_size_min=6, token_size_max=6)
    provider.set_responses([[faux_thinking("Easy."), "Two and two is four."]])
    agent = Agent(model=provider.model("scripted"))

    async with agent.stream("What is two and two?") as run:
        async for event in run:
            if event.type == "message_update" and event.stream_event.type == "text_delta":
                print(repr(event.stream_event.delta))
            elif event.type != "message_update":
                print(event.type)
        result = await run.result()
    print(result.usage.output_tokens, "tokens")


if __name__ == "__main__":
    anyio.run(main, backend="trio")
