"""Run a program for a tool; when the tool has ended, nothing of the program is alive."""

import sys

import anyio

from cubepi_anyio import Agent, FauxProvider, RunContext, faux_tool_call, tool
from cubepi_anyio.tools.process import run_process


@tool
async def run_python(code: str, context: RunContext) -> str:
    """Run a Python program."""
    done = await run_process([sys.executable, "-c", code], timeout=10, on_update=context.on_update)
    return f"exit code {done.exit_code}\n{done.output}"


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("run_python", {"code": "print(6 * 7)"}), "Forty-two."])
    agent = Agent(model=provider.model("scripted"), tools=[run_python])
    result = await agent.prompt("Six times seven?")
    print(result.messages[2].text)


if __name__ == "__main__":
    anyio.run(main)
