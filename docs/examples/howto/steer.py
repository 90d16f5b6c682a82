"""Speak into a run: before the next model call, or when it would end."""

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool


async def main() -> None:
    provider = FauxProvider()

    @tool
    async def read_file(name: str) -> str:
        """Read a file."""
        agent.steer("Only the headings, please.")
        agent.follow_up("And in French?")
        return f"the text of {name}"

    provider.set_responses([faux_tool_call("read_file", {"name": "notes.md"}), "Headings.", "Titres."])
    agent = Agent(model=provider.model("scripted"), tools=[read_file])
    await agent.prompt("Read notes.md.")
    for message in agent.state.messages:
        print(f"{message.role}: {message.text or '(a call)'}")


if __name__ == "__main__":
    anyio.run(main)
