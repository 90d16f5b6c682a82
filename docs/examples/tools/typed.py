"""The same tool, read off a typed function."""

from typing import Annotated

import anyio
from pydantic import Field

from cubepi_anyio import Agent, FauxProvider, RunContext, faux_tool_call, tool


@tool
async def search(
    query: Annotated[str, "What to look for, in plain words"],
    context: RunContext,  # given by the library, not shown to the model
    limit: Annotated[int, Field(ge=1, le=20)] = 3,
) -> list[str]:
    """Search the company's handbook."""
    context.update({"looking for": query})
    await anyio.sleep(0.01)
    return [f"{query}, page {number}" for number in range(1, limit + 1)]


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("search", {"query": "holidays", "limit": 2}), "Done."])
    agent = Agent(model=provider.model("scripted"), tools=[search])
    result = await agent.prompt("What about holidays?")
    print(search.definition.description, sorted(search.definition.parameters["properties"]))
    print("the model reads:", result.messages[2].text)
    print("the program has:", result.messages[2].details)


if __name__ == "__main__":
    anyio.run(main)
