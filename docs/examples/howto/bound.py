"""At most two calls of a batch at a time."""

import anyio

from cubepi_anyio import Agent, FauxProvider, RunLimits, faux_tool_call, tool


async def main() -> None:
    running = most = 0

    @tool
    async def fetch(number: int) -> str:
        """Fetch a page."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.01)
        running -= 1
        return f"page {number}"

    provider = FauxProvider()
    calls = [faux_tool_call("fetch", {"number": number}) for number in range(6)]
    provider.set_responses([calls, "Read."])
    agent = Agent(model=provider.model("scripted"), tools=[fetch], limits=RunLimits(max_parallel_tools=2))
    await agent.prompt("Read six pages.")
    print("most at a time:", most)


if __name__ == "__main__":
    anyio.run(main)
