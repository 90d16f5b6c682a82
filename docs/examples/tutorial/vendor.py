"""The same agent with a vendor's model. Making it needs no key and no network; asking it does."""

import anyio

from cubepi_anyio import Agent
from cubepi_anyio.providers.anthropic import AnthropicProvider


async def main() -> None:
    async with AnthropicProvider() as provider:  # the key comes from ANTHROPIC_API_KEY
        agent = Agent(model=provider.model("claude-sonnet-4-5"), system_prompt="Be brief.")
        print(agent.state.model.spec.id, "by way of", agent.state.model.spec.api)


if __name__ == "__main__":
    anyio.run(main, backend="trio")
