"""An agent in an asyncio program: asyncio's own timeouts and task groups end runs as scopes do."""

import asyncio

from cubepi_anyio import Agent, FauxProvider, FauxResponse, tool_cycle_faults


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("One moment, please", stall_after_deltas=2), "Here I am."])
    agent = Agent(model=provider.model("scripted"))

    try:
        async with asyncio.timeout(0.2):
            await agent.prompt("Hello?")
    except TimeoutError:
        print("too late; kept:", repr(agent.state.messages[-1].text), tool_cycle_faults(agent.state.messages))

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(agent.prompt("Hello again?"))
    print(task.result().text)
    print("tasks left:", len(asyncio.all_tasks()) - 1)


if __name__ == "__main__":
    asyncio.run(main())
