"""Two models raced for the first token, call after call; the loser's connection is closed before the answer goes on."""

import sys
from contextlib import contextmanager

import anyio

from cubepi_anyio import Agent, FauxProvider, FauxResponse, ProviderUnavailable, faux_tool_call, tool
from cubepi_anyio.providers.race import RaceModel


@tool
async def measure(what: str) -> str:
    """Measure something."""
    return f"{what}: 12 m"


@contextmanager
def counting(provider: FauxProvider, answers: list[str]):
    """Note whose answers were heard to their end."""

    def heard(message, model, error) -> None:
        if message is not None and message.stop_reason in ("stop", "tool_use"):
            answers.append(model.provider)

    unsubscribe = provider.subscribe_response(heard)
    try:
        yield
    finally:
        unsubscribe()


async def main() -> None:
    north, south = FauxProvider(provider_id="north"), FauxProvider(provider_id="south")
    thinking = FauxResponse("Let me think.", stall_before_start=True)
    down = ProviderUnavailable("down for an hour")
    north.set_responses([thinking, [faux_tool_call("measure", {"what": "mast"})], "Both are 12 m long."])
    south.set_responses([[faux_tool_call("measure", {"what": "keel"})], thinking, down])
    answers: list[str] = []
    agent = Agent(model=RaceModel([north.model("n"), south.model("s")]), tools=[measure])
    with counting(north, answers), counting(south, answers):
        result = await agent.prompt("Measure the mast and the keel.")
    print([message.text for message in result.messages if message.role == "tool_result"])
    print(result.text, "| heard:", answers)
    print("still talking:", north.stalled_count + south.stalled_count)


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if sys.argv[1:] else "trio")
