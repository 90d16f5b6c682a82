"""Look into a store, and continue a thread that is in it."""

import anyio

from cubepi_anyio import Agent, FauxProvider
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["Noted.", "Milk and bread."])
    async with SQLiteCheckpointer("threads.sqlite") as store:
        agent = Agent(model=provider.model("scripted"), checkpointer=store, thread_id="shopping")
        await agent.prompt("We need milk.")
        await agent.prompt("And bread. What is on the list?")

        print(await store.list_threads())
        record = await store.load("shopping")
        print([message.text for message in record.messages])
        await store.delete("shopping")
        print(await store.list_threads())


if __name__ == "__main__":
    anyio.run(main)
