"""A tool that says how far it is."""

import anyio

from cubepi_anyio import Agent, AgentTool, AgentToolResult, FauxProvider, faux_tool_call


async def index(tool_call_id, params, *, on_update):
    for number in range(1, 4):
        await anyio.sleep(0.01)
        on_update({"done": number, "total": 3})  # at once; with `await` it waits until all have heard
    return AgentToolResult("3 files indexed")


index_tool = AgentTool("index", "Index the files.", {"type": "object", "properties": {}}, index)


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("index"), "Indexed."])
    agent = Agent(model=provider.model("scripted"), tools=[index_tool])
    agent.subscribe(lambda event: event.type == "tool_execution_update" and print(event.partial_result))
    await agent.prompt("Index the files.")


if __name__ == "__main__":
    anyio.run(main)
