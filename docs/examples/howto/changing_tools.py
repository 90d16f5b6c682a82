"""Tools that change between turns: a function of the context, and an object that finds its tools by itself."""

import anyio

from cubepi_anyio import Agent, FauxProvider, RunContext, faux_tool_call, tool
from cubepi_anyio.hooks.middleware import Middleware


@tool
async def log_in(user: str, ctx: RunContext) -> str:
    """Log in."""
    ctx.notes["user"] = user
    return "welcome"


@tool
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros} euros"


def tools_of(ctx: RunContext):
    """Asked once for each turn, before its request."""
    return [pay] if "user" in ctx.notes else [log_in]


class Plugins(Middleware):
    """Has tools beside the agent's; the method may be async, and wait for a server to list them."""

    async def tools(self, ctx):
        return [tool(name=f"help_{ctx.turn}", description="Help with this turn.")(lambda: "")]


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(
        [[faux_tool_call("log_in", {"user": "ada"})], [faux_tool_call("pay", {"euros": 5})], "Done."]
    )
    agent = Agent(model=provider.model("scripted"), tools=tools_of, middleware=[Plugins()])
    result = await agent.prompt("Log in as ada and pay 5 euros.")
    for call in provider.calls:
        print([definition.name for definition in call.tools])
    print([message.text for message in result.messages if message.role == "tool_result"])


if __name__ == "__main__":
    anyio.run(main)
