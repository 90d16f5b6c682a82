"""Try something on a copy of a thread."""

import anyio

from cubepi_anyio import Agent, FauxProvider
from cubepi_anyio.checkpointers.memory import MemoryCheckpointer


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["Noted.", "A side remark.", "Another ending.", "The ending."])
    store = MemoryCheckpointer()
    agent = Agent(model=provider.model("scripted"), checkpointer=store, thread_id="story")
    first = await agent.prompt("Once upon a time")

    aside = await agent.fork_once("Is that a good beginning?")  # thrown away afterwards
    await agent.fork("story-2", after_run_id=first.run_id)
    other = Agent(model=provider.model("scripted"), checkpointer=store, thread_id="story-2")
    await other.prompt("The dragon wins.")
    await agent.prompt("The hero wins.")

    print("aside:", aside.text)
    for thread_id in await store.list_threads():
        record = await store.load(thread_id)
        print(thread_id, [message.text for message in record.messages])


if __name__ == "__main__":
    anyio.run(main)
