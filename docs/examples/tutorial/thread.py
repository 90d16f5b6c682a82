"""A conversation that outlives its process."""

import anyio

from cubepi_anyio import Agent, FauxProvider
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer


async def first_process() -> None:
    provider = FauxProvider()
    provider.set_responses(["Hello, Ada."])
    async with SQLiteCheckpointer("threads.sqlite") as store:
        agent = Agent(model=provider.model("scripted"), checkpointer=store, thread_id="ada")
        print((await agent.prompt("I am Ada.")).text)


async def second_process() -> None:
    provider = FauxProvider()
    provider.set_responses([lambda messages: f"You are Ada: I have {len(messages)} messages."])
    async with SQLiteCheckpointer("threads.sqlite") as store:
        agent = Agent(model=provider.model("scripted"), checkpointer=store, thread_id="ada")
        print((await agent.prompt("Who am I?")).text)
        print([message.role for message in agent.state.messages])


async def main() -> None:
    await first_process()
    await second_process()


if __name__ == "__main__":
    anyio.run(main, backend="trio")
