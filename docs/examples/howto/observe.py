"""See every request, change one, and see how each ended."""

import anyio

from cubepi_anyio import Agent, FauxProvider


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(["Hello."])
    provider.subscribe_request(lambda payload, model: print("request", sorted(payload)))
    provider.subscribe_response(lambda message, model, error: print("response", message.stop_reason, error))

    agent = Agent(model=provider.model("scripted"), on_payload=lambda payload, model: {**payload, "user": "u-17"})
    await agent.prompt("Hi")


if __name__ == "__main__":
    anyio.run(main)
