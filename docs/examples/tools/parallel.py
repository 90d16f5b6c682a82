"""Starts first, ends as they come, results in the order of the calls."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


@tool
async def fetch(page: str, seconds: float) -> str:
    """Fetch a page."""
    await anyio.sleep(seconds)
    return f"the text of {page}"


async def main() -> None:
    provider = FauxProvider()
    calls = [
        faux_tool_call("fetch", {"page": "slow", "seconds": 0.4}, id="c1"),
        faux_tool_call("fetch", {"page": "quick", "seconds": 0}, id="c2"),
        faux_tool_call("fetch", {"page": "middle", "seconds": 0.2}, id="c3"),
        faux_tool_call("forget", {}, id="c4"),
    ]
    provider.set_responses([calls, "I have read them."])
    agent = Agent(model=provider.model("scripted"), tools=[fetch])

    def show(event) -> None:
        if event.type == "tool_execution_start":
            print("start ", event.tool_call_id)
        elif event.type == "tool_execution_end":
            print("end   ", event.tool_call_id, event.ending)
        elif event.type == "message_end" and event.message.role == "tool_result":
            print("result", event.message.tool_call_id, event.message.text)

    agent.subscribe(show)
    await agent.prompt("Read them.")


if __name__ == "__main__":
    anyio.run(main)
