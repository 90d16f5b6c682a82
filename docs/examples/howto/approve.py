"""Ask a person before a tool runs; the other calls of the batch do not wait."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.hitl import ConfirmToolCall, MemoryChannel
from cubepi_anyio.types.hitl import ApproveAnswer


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} has 3 lines"


async def main() -> None:
    channel = MemoryChannel(default_timeout=60)
    provider = FauxProvider()
    calls = [
        faux_tool_call("delete", {"path": "a.txt"}),
        faux_tool_call("delete", {"path": "b.txt"}),
        faux_tool_call("look", {"path": "c.txt"}),
    ]
    provider.set_responses([calls, "One is deleted."])
    agent = Agent(
        model=provider.model("scripted"),
        tools=[delete, look],
        middleware=[ConfirmToolCall(channel, "delete")],
    )

    async def person() -> None:
        async with channel.requests() as requests:
            async for request in requests:
                path = request.payload.args["path"]
                is_fine = path == "a.txt"
                answer = ApproveAnswer(decision="approve" if is_fine else "deny", reason="" if is_fine else "I need it")
                channel.answer(request.id, answer)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(person)
        result = await agent.prompt("Clean up.")
        tasks.cancel_scope.cancel()
    for message in result.messages[2:5]:
        print("error" if message.is_error else "fine ", "|", message.text)


if __name__ == "__main__":
    anyio.run(main)
