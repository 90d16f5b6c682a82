"""A tool with all its parts: name, purpose, parameters, function."""

import anyio
from pydantic import BaseModel, Field

from cubepi_anyio import Agent, AgentTool, AgentToolResult, FauxProvider, faux_tool_call


class SearchParams(BaseModel):
    query: str = Field(description="What to look for, in plain words")
    limit: int = Field(3, ge=1, le=20, description="How many results")


async def search(tool_call_id: str, params: SearchParams) -> AgentToolResult:
    await anyio.sleep(0.01)  # your search engine
    found = [f"{params.query}, page {number}" for number in range(1, params.limit + 1)]
    return AgentToolResult("\n".join(found), details={"found": len(found)})


search_tool = AgentTool(
    name="search",
    description="Search the company's handbook.",  # read by the model, not by people
    parameters=SearchParams,
    execute=search,
)


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(
        [
            faux_tool_call("search", {"query": "holidays", "limit": 2}),
            "Pages 1 and 2 are about holidays.",
        ]
    )
    agent = Agent(model=provider.model("scripted"), tools=[search_tool])
    result = await agent.prompt("What does the handbook say about holidays?")
    call = result.messages[2]
    print(call.text)
    print(call.details)
    print(search_tool.definition.parameters["properties"]["limit"])


if __name__ == "__main__":
    anyio.run(main)
