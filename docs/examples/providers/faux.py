"""Test an agent without a network: the faux model streams a script, and fails when told to."""

import anyio

from cubepi_anyio import (
    Agent,
    FauxProvider,
    FauxResponse,
    ProviderOverloaded,
    faux_text,
    faux_thinking,
    faux_tool_call,
    tool,
)


@tool
async def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word}: a kind of fish"


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(
        [
            [faux_thinking("A rare word."), faux_tool_call("lookup", {"word": "ling"})],
            lambda messages: f"The tool says: {messages[-1].text}",
            FauxResponse([faux_text("I will never finish this")], end_after_deltas=3),
            ProviderOverloaded("come back later"),
        ]
    )
    agent = Agent(model=provider.model("scripted"), tools=[lookup])
    for question in ("What is a ling?", "And a tusk?", "And a burbot?"):
        result = await agent.prompt(question)
        print(result.outcome, "|", result.text or result.error, "|", type(result.error).__name__)
    print(provider.call_count, "calls;", provider.pending_response_count, "responses left")
    print("the last call showed the model", len(provider.calls[-1].messages), "messages")


if __name__ == "__main__":
    anyio.run(main)
