"""What a model reads when a call goes wrong; the other calls of the batch run."""

import anyio

from cubepi_anyio import Agent, AgentToolResult, FauxProvider, faux_tool_call, tool


@tool
async def divide(a: int, b: int) -> float:
    """Divide a by b."""
    return a / b


@tool
async def book(seat: str) -> AgentToolResult:
    """Book a seat."""
    return AgentToolResult(f"{seat} is taken; 12C and 14A are free", details={"free": ["12C", "14A"]}, is_error=True)


async def main() -> None:
    provider = FauxProvider()
    calls = [
        faux_tool_call("divide", {"a": 1, "b": 0}),
        faux_tool_call("divide", {"a": "one", "c": 2}),
        faux_tool_call("book", {"seat": "12A"}),
        faux_tool_call("divde", {"a": 6, "b": 3}),
        faux_tool_call("divide", {"a": 6, "b": 3}),
    ]
    provider.set_responses([calls, "I see."])
    agent = Agent(model=provider.model("scripted"), tools=[divide, book])
    result = await agent.prompt("Try.")
    for message in result.messages:
        if message.role == "tool_result":
            print("error" if message.is_error else "fine ", "|", message.text.replace("\n", " / "))


if __name__ == "__main__":
    anyio.run(main)
