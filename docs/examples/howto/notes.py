"""Notes that are stored with their thread, tokens that others used, and events of one's own."""

from dataclasses import dataclass

import anyio

from cubepi_anyio import Agent, FauxProvider, RunContext, Usage, faux_tool_call, tool
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer


@dataclass
class CityNoted:
    """An event of this program: any class whose ``type`` no event of the library has."""

    city: str
    type: str = "city_noted"


@tool
async def remember(city: str, ctx: RunContext) -> str:
    """Remember where somebody lives."""
    ctx.notes["city"] = city  # stored at the end of the turn, with its messages
    ctx.result_notes["changed"] = ["city"]  # for the caller of this run, not stored
    ctx.add_usage(Usage(input_tokens=20, output_tokens=1), by="judge")  # of a model that the tool has asked
    await ctx.emit(CityNoted(city))
    return "noted"


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([[faux_tool_call("remember", {"city": "Paris"})], "I will remember."])
    async with SQLiteCheckpointer("threads.sqlite") as store:
        agent = Agent(model=provider.model("scripted"), tools=[remember], checkpointer=store, thread_id="ada")
        agent.subscribe(lambda event: print("heard:", event.city) if event.type == "city_noted" else None)
        result = await agent.prompt("I live in Paris.")
        print(result.notes, result.usage_by["judge"].total_tokens)

        async with agent.between_runs() as ctx:  # claimed: no run begins meanwhile, in no process
            ctx.notes["messages"] = len(ctx.messages)
        print((await store.load("ada")).extra)


if __name__ == "__main__":
    anyio.run(main)
