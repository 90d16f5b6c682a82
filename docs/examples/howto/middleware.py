"""Hooks: shorten what the model is shown, refuse a call, change a result."""

import anyio

from cubepi_anyio import Agent, FauxProvider, TextContent, faux_tool_call, tool
from cubepi_anyio.hooks.middleware import Middleware
from cubepi_anyio.tools.hooks import AfterToolCallResult, BeforeToolCallResult


class House(Middleware):
    def transform_context(self, messages):
        return messages[-4:]

    def before_tool_call(self, call):
        if call.args.path.startswith("/etc"):
            return BeforeToolCallResult(block=True, reason="files of the system are not read here")
        return None

    def after_tool_call(self, call):
        return AfterToolCallResult(content=[TextContent(text=call.result.content[0].text.replace("s3cret", "****"))])


@tool
async def read(path: str) -> str:
    """Read a file."""
    return f"{path}: password=s3cret"


async def main() -> None:
    provider = FauxProvider()
    calls = [faux_tool_call("read", {"path": "/etc/shadow"}), faux_tool_call("read", {"path": "notes.txt"})]
    provider.set_responses([calls, "Read."])
    agent = Agent(model=provider.model("scripted"), tools=[read], middleware=[House()])
    result = await agent.prompt("Read both.")
    for message in result.messages[2:4]:
        print("error" if message.is_error else "fine ", "|", message.text)


if __name__ == "__main__":
    anyio.run(main)
