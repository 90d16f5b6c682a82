"""An agent with a scripted model: the shortest program there is."""

import anyio

from cubepi_anyio import Agent, FauxProvider


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["Structured concurrency means that a block ends when all it started has ended."])

    agent = Agent(model=provider.model("scripted"))
    result = await agent.prompt("What is structured concurrency?")

    print(result.outcome)
    print(result.text)


if __name__ == "__main__":
    anyio.run(main, backend="trio")
