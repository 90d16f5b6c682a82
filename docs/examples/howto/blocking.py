"""A plain function as a tool: it runs in a worker thread, and the event loop goes on."""

import time

import anyio

from cubepi_anyio import AbortSignal, Agent, FauxProvider, faux_tool_call, tool


@tool
def checksum(blocks: int, signal: AbortSignal) -> int:
    """Add the blocks of a file up."""
    total = 0
    for block in range(blocks):
        if signal.is_set():
            break
        time.sleep(0.001)
        total += block
    return total


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("checksum", {"blocks": 50}), "1225."])
    agent = Agent(model=provider.model("scripted"), tools=[checksum])

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.005)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        result = await agent.prompt("Add them up.")
        tasks.cancel_scope.cancel()
    print(result.messages[2].text, "- the loop went on:", ticks > 1)


if __name__ == "__main__":
    anyio.run(main)
