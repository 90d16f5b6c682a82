"""An approval in the terminal: ``python terminal.py``, and answer y, n or e."""

import sys

import anyio

from cubepi_anyio import Agent, FauxProvider, faux_tool_call, tool
from cubepi_anyio.hitl import ApprovalPolicy, Approve, AskPerson, TerminalChannel
from cubepi_anyio.hooks.middleware import BeforeToolCallContext


@tool
async def read(path: str) -> str:
    """Read a file."""
    return f"{path}: three lines"


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted (not really)"


def policy(call: BeforeToolCallContext) -> Approve | AskPerson:
    """Reading is allowed; whatever else is called is asked about."""
    return Approve() if call.tool_call.name == "read" else AskPerson("The agent wants to change something.")


async def main() -> None:
    provider = FauxProvider()
    calls = [
        faux_tool_call("read", {"path": "notes.txt"}),
        faux_tool_call("delete", {"path": "notes.txt"}),
        faux_tool_call("delete", {"path": "draft.txt"}),
    ]
    provider.set_responses([calls, "I did what I may."])
    channel = TerminalChannel(default_timeout=120)
    agent = Agent(model=provider.model("scripted"), tools=[read, delete], middleware=[ApprovalPolicy(channel, policy)])
    result = await agent.prompt("Clean up.")
    for message in result.messages:
        if message.role == "tool_result":
            print(f"{message.tool_name}: {message.text}")
    print(result.text)


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if sys.argv[1:] else "trio")
