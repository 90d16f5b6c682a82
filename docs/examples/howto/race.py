"""Ask two models at once and hear the one that speaks first."""

import anyio

from cubepi_anyio import Agent, FauxProvider, FauxResponse
from cubepi_anyio.providers.race import RaceModel


async def main() -> None:
    north, south = FauxProvider(provider_id="north"), FauxProvider(provider_id="south")
    north.set_responses([FauxResponse("I think that", stall_before_start=True)])
    south.set_responses(["South was first."])

    agent = Agent(model=RaceModel([north.model("n"), south.model("s")]))
    result = await agent.prompt("Hello")
    print(result.text, "from", result.messages[-1].provider_id)
    print("still talking:", north.stalled_count)


if __name__ == "__main__":
    anyio.run(main)
