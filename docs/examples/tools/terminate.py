"""A tool that ends the run: its result is the answer."""

import anyio

from cubepi_anyio import Agent, AgentToolResult, FauxProvider, faux_tool_call, tool


@tool
async def submit(answer: str) -> AgentToolResult:
    """Submit the final answer."""
    return AgentToolResult(f"submitted: {answer}", terminate=True)


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("submit", {"answer": "42"})])
    agent = Agent(model=provider.model("scripted"), tools=[submit])
    result = await agent.prompt("Find the answer.")
    print(result.outcome, "after", provider.call_count, "model call:", result.messages[-1].text)


if __name__ == "__main__":
    anyio.run(main)
