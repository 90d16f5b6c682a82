"""A question that outlives its process: the run is suspended, and goes on when the answer comes."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer
from cubepi_anyio.hitl import ConfirmToolCall, DurableChannel
from cubepi_anyio.types.hitl import ApproveAnswer


@tool
async def pay(euros: int) -> str:
    """Pay an invoice."""
    return f"{euros} euros are paid"


def make_agent(provider: FauxProvider, store: SQLiteCheckpointer) -> Agent:
    channel = DurableChannel()
    return Agent(
        model=provider.model("scripted"),
        tools=[pay],
        middleware=[ConfirmToolCall(channel)],
        checkpointer=store,
        thread_id="invoices",
        channel=channel,
    )


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("pay", {"euros": 120}), "Paid."])
    async with SQLiteCheckpointer("threads.sqlite") as store:
        result = await make_agent(provider, store).prompt("Pay the invoice.")
        print(result.outcome, "with", len(result.requests), "question")

    # Later, in another process.
    async with SQLiteCheckpointer("threads.sqlite") as store:
        agent = make_agent(provider, store)
        await agent.load()
        [request] = agent.pending_requests
        print("waiting:", request.payload.tool_name, request.payload.args)
        result = await agent.respond(request.id, ApproveAnswer(decision="approve"))
        print(result.outcome, "|", result.messages[0].text, "|", result.text)


if __name__ == "__main__":
    anyio.run(main)
