"""Show a model a picture, from the user and from a tool."""

import base64

import anyio

from cubepi_anyio import (
    Agent,
    Content,
    FauxProvider,
    ImageContent,
    TextContent,
    UserMessage,
    faux_tool_call,
    tool,
)

PIXEL = base64.b64encode(b"\x89PNG...").decode()


@tool
async def screenshot() -> list[Content]:
    """Take a screenshot."""
    return [TextContent(text="the screen:"), ImageContent(source=PIXEL, media_type="image/png")]


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([faux_tool_call("screenshot"), "Both show a ship."])
    agent = Agent(model=provider.model("scripted"), tools=[screenshot])
    question = UserMessage(
        content=[TextContent(text="Is this on the screen?"), ImageContent(url="https://site.example/ship.png")]
    )
    result = await agent.prompt(question)
    for message in result.messages:
        print(message.role, [block.type for block in message.content])


if __name__ == "__main__":
    anyio.run(main)
