"""An agent as a tool of another: an abort of the outer one ends both."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


@tool(timeout=30)
async def research(topic: str) -> str:
    """Find out about a topic."""
    provider = FauxProvider()
    provider.set_responses([f"Three facts about {topic}."])
    helper = Agent(model=provider.model("helper"))
    return (await helper.prompt(f"Find out about {topic}.")).raise_for_error().text


async def main() -> None:
    provider = FauxProvider()
    calls = [faux_tool_call("research", {"topic": topic}) for topic in ("herring", "cod")]
    provider.set_responses([calls, "Six facts."])
    agent = Agent(model=provider.model("leader"), tools=[research])
    result = await agent.prompt("Compare them.")
    for message in result.messages:
        print(f"{message.role}: {message.text or '(two calls)'}")


if __name__ == "__main__":
    anyio.run(main)
