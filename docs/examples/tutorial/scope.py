"""A run inside a cancel scope: the scope ends it, and the agent can go on."""

import anyio

from cubepi_anyio import Agent, FauxProvider, FauxResponse, tool_cycle_faults


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([FauxResponse("The answer is forty-two.", stall_after_deltas=2), "Forty-two."])
    agent = Agent(model=provider.model("scripted"))

    with anyio.move_on_after(0.2) as scope:
        await agent.prompt("What is the answer?")
        print("not reached: the model stalls")
    print("cancelled:", scope.cancelled_caught)

    answer = agent.state.messages[-1]
    print("kept:", answer.stop_reason, bool(answer.text))
    print("faults of the transcript:", tool_cycle_faults(agent.state.messages))

    result = await agent.prompt("In one word?")
    print(result.outcome, result.text)


if __name__ == "__main__":
    anyio.run(main, backend="trio")
