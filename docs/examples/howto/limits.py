"""Bound a run: a model that never stops calling tools is stopped after three answers."""

import anyio

from cubepi_anyio import Agent, FauxProvider, RunLimits, faux_tool_call, tool


@tool
async def look() -> str:
    """Look again."""
    return "nothing new"


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("look") for _ in range(10)])
    limits = RunLimits(max_turns=3, max_total_tokens=100_000, run_timeout=60, idle_timeout=10)
    agent = Agent(model=provider.model("scripted"), tools=[look], limits=limits)
    result = await agent.prompt("Tell me when there is news.")
    print(result.outcome, result.limit, "after", provider.call_count, "model calls")

    agent.limits = RunLimits(max_turns=10)
    provider.set_responses(["There is no news."])
    print((await agent.resume()).text)


if __name__ == "__main__":
    anyio.run(main)
