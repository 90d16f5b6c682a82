"""A trio application with agents in its nursery and a deadline for each: ``python nursery.py``.

One agent answers, one finds its model silent, and one fails: its error ends the nursery, as any task's would, and the
watchman with it. Nothing of them is alive when the block has been left.
"""

import trio

from cubepi_anyio import Agent, FauxProvider, FauxResponse, ProviderAuthFailed, tool_cycle_faults


async def ask(name: str, provider: FauxProvider, seconds: float, agents: dict[str, Agent]) -> None:
    """Ask one agent and say what it came to; raises the error of a model that failed."""
    agents[name] = agent = Agent(model=provider.model(name))
    with trio.move_on_after(seconds) as deadline:
        result = await agent.prompt("What do you see?")
        print(f"{name}: {result.raise_for_error().text}")
    if deadline.cancelled_caught:
        print(f"{name}: nothing within {seconds:g} s, kept {agent.state.messages[-1].text!r}")


async def watchman() -> None:
    """Work that has nothing to do with agents and is cancelled with them."""
    try:
        await trio.sleep_forever()
    finally:
        print("watchman: cancelled")


def scripted(*responses) -> FauxProvider:
    provider = FauxProvider()
    provider.set_responses(responses)
    return provider


async def main() -> None:
    agents: dict[str, Agent] = {}
    stalling = scripted(FauxResponse("A ship, and behind it", stall_after_deltas=2))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watchman)
            nursery.start_soon(ask, "mast", scripted("Land!"), 5, agents)
            nursery.start_soon(ask, "bow", stalling, 0.2, agents)
            await trio.sleep(0.5)
            nursery.start_soon(ask, "keel", scripted(ProviderAuthFailed("the key is wrong")), 5, agents)
    except* ProviderAuthFailed as errors:
        print("the voyage ends:", errors.exceptions[0])
    print("faults:", [fault for agent in agents.values() for fault in tool_cycle_faults(agent.state.messages)])


if __name__ == "__main__":
    trio.run(main)
