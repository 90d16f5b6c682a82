"""How a model answers: by the model, over it by the agent, over both by the run; and what a format refuses."""

import anyio

from cubepi_anyio import Agent, FauxProvider, ModelSettings
from cubepi_anyio.providers.anthropic import AnthropicProvider


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["One.", "Two.", "Three."])
    model = provider.model("scripted", settings=ModelSettings(temperature=0.2, max_output_tokens=1000))
    agent = Agent(model=model, settings=ModelSettings(temperature=0.7, extra_body={"vendor": {"a": 1}}))

    await agent.prompt("As the agent says.")
    await agent.prompt("Just now otherwise.", settings=ModelSettings(temperature=0, extra_body={"vendor": {"b": 2}}))

    # A function of the context is asked for each request.
    agent.settings = lambda ctx: ModelSettings(max_output_tokens=100 if ctx.usage.total_tokens == 0 else 50)
    await agent.prompt("As long as there is something left.")
    for call in provider.calls:
        print(call.options.settings.model_dump(exclude_none=True))

    claude = AnthropicProvider(api_key="none").model("claude")
    result = await Agent(model=claude, settings=ModelSettings(seed=7)).prompt("Hello")
    print(result.outcome, "|", result.error)


if __name__ == "__main__":
    anyio.run(main)
