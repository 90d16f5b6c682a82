"""Prove that an agent with your tool ends cleanly, wherever a run of it is ended."""

import anyio
from anyio.lowlevel import checkpoint

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.testing import Scenario, endings_here, sweep


@tool
async def work() -> str:
    """Work a little."""
    for _ in range(3):
        await checkpoint()
    return "worked"


def scenario() -> Scenario:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("work"), "Done."])
    return Scenario(agent=Agent(model=provider.model("scripted"), tools=[work]), provider=provider)


async def main() -> None:
    for ending in endings_here():  # abort, scopes, siblings; on asyncio also Task.cancel()
        report = await sweep(scenario, ending=ending)
        report.raise_for_faults()
        assert report.endings > 5
    print("no faults")


if __name__ == "__main__":
    anyio.run(main)
