"""One tool that wants to be alone makes the whole batch sequential."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool

rows: list[str] = []


@tool(execution_mode="sequential")
async def write_row(text: str) -> str:
    """Write a row into the table."""
    before = len(rows)
    await anyio.sleep(0.01)
    rows.append(text)
    return f"row {before + 1}"


@tool
async def count_rows() -> int:
    """Count the rows of the table."""
    return len(rows)


async def main() -> None:
    provider = FauxProvider()
    calls = [
        faux_tool_call("write_row", {"text": "a"}),
        faux_tool_call("count_rows"),
        faux_tool_call("write_row", {"text": "b"}),
    ]
    provider.set_responses([calls, "Written."])
    agent = Agent(model=provider.model("scripted"), tools=[write_row, count_rows])
    agent.subscribe(lambda event: event.type.startswith("tool_") and print(event.type, event.tool_name))
    result = await agent.prompt("Write a, count, write b.")
    print([message.text for message in result.messages if message.role == "tool_result"])


if __name__ == "__main__":
    rows.clear()
    anyio.run(main)
