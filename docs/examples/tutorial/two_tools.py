"""Two tools that run at the same time."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


@tool
async def weather(city: str) -> str:
    """Say what the weather is in a city."""
    await anyio.sleep(0.3)  # a slow service
    return f"rain in {city}"


@tool
async def trains(city: str) -> str:
    """Say when the next train to a city leaves."""
    await anyio.sleep(0.1)  # a quick one
    return f"the next train to {city} leaves at 9:05"


async def main() -> None:
    provider = FauxProvider()
    both = [faux_tool_call("weather", {"city": "Bergen"}), faux_tool_call("trains", {"city": "Bergen"})]
    provider.set_responses([both, "Take the train at 9:05, and an umbrella."])
    agent = Agent(model=provider.model("scripted"), tools=[weather, trains])

    def show(event) -> None:
        if event.type.startswith("tool_execution"):
            print(event.type, event.tool_name)

    agent.subscribe(show)
    result = await agent.prompt("How do I get to Bergen?")
    print()
    for message in result.messages:
        print(f"{message.role}: {message.text or '(calls only)'}")


if __name__ == "__main__":
    anyio.run(main, backend="trio")
