"""A timeout for a tool, a limit for a run, and what is left after them."""

import anyio

from cubepi_anyio import Agent, FauxProvider, RunLimits, faux_tool_call, tool


@tool(timeout=0.2)
async def stuck() -> str:
    """Ask a service that does not answer."""
    await anyio.sleep_forever()
    return "never"


@tool
async def slow() -> str:
    """Take an hour."""
    try:
        await anyio.sleep(3600)
    finally:
        print("   (slow: cancelled, and cleaning up)")
    return "done"


def show_last(agent: Agent) -> None:
    for message in agent.state.messages[-2:]:
        print(f"   {message.role}: {message.text or '(a call)'}")


async def main() -> None:
    provider = FauxProvider()
    agent = Agent(model=provider.model("scripted"), tools=[stuck, slow])

    print("1. a tool with a timeout")
    provider.set_responses([faux_tool_call("stuck"), "The service is down."])
    result = await agent.prompt("Ask the service.")
    print("  ", result.outcome)
    show_last(agent)

    print("2. a limit of the run")
    agent.limits = RunLimits(run_timeout=0.2)
    provider.set_responses([faux_tool_call("slow")])
    result = await agent.prompt("Take your time.")
    print("  ", result.outcome, result.limit)
    show_last(agent)


if __name__ == "__main__":
    anyio.run(main, backend="trio")
