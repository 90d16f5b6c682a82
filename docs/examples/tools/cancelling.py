"""Three tools that meet an abort: one that cleans up, one that finishes its step, one in a thread."""

import time

import anyio

from cubepi_anyio import AbortSignal, Agent, FauxProvider, faux_tool_call, tool


@tool
async def upload() -> str:
    """Upload a file."""
    try:
        await anyio.sleep_forever()
    finally:
        # An abort is a cancel scope: the tool is cancelled where it waits. Cleaning up that has to wait needs a shield.
        with anyio.move_on_after(1, shield=True):
            await anyio.sleep(0.05)
            print("upload: the half-sent file is deleted")
    return "uploaded"


@tool(cancellation="cooperative", grace=2)
async def migrate(signal: AbortSignal) -> str:
    """Move all rows to the new table."""
    for _ in range(1_000_000):
        await anyio.sleep(0.01)  # one row
        if signal.is_set():
            return "stopped between two rows"
    return "moved"


@tool
def compress(signal: AbortSignal) -> str:
    """Compress a file."""
    while not signal.is_set():  # a plain function runs in a thread, where nothing can be cancelled: it looks
        time.sleep(0.01)
    return "stopped at the end of a block"


async def main() -> None:
    provider = FauxProvider()
    calls = [faux_tool_call("upload"), faux_tool_call("migrate"), faux_tool_call("compress")]
    provider.set_responses([calls])
    agent = Agent(model=provider.model("scripted"), tools=[upload, migrate, compress])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Do all three.")
        await anyio.sleep(0.5)
        agent.abort("enough")
    for message in agent.state.messages[2:]:
        print(f"{message.tool_name}: {message.text}")


if __name__ == "__main__":
    anyio.run(main)
