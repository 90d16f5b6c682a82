"""End one call; the run goes on."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


async def main() -> None:
    began = anyio.Event()

    @tool
    async def search(place: str) -> str:
        """Search a place."""
        if place == "the archive":
            began.set()
            await anyio.sleep_forever()
        return f"nothing in {place}"

    provider = FauxProvider()
    calls = [
        faux_tool_call("search", {"place": "the archive"}, id="slow"),
        faux_tool_call("search", {"place": "the shelf"}, id="quick"),
    ]
    provider.set_responses([calls, "Not on the shelf, and the archive takes too long."])
    agent = Agent(model=provider.model("scripted"), tools=[search])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.prompt, "Where is it?")
        await began.wait()
        print("running:", sorted(agent.state.pending_tool_calls))
        print("ended:", agent.abort_tool_call("slow", "too slow"))
    for message in agent.state.messages[2:]:
        print(f"{message.role}: {message.text}")


if __name__ == "__main__":
    anyio.run(main)
