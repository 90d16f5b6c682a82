"""How a run that failed is told from one that was ended, and how it goes on."""

import anyio

from cubepi_anyio import Agent, FauxProvider, ProviderError, RateLimited, RunAborted


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses([RateLimited("too many requests", status_code=429, retry_after_seconds=12), "Here I am."])
    agent = Agent(model=provider.model("scripted"))

    try:
        result = (await agent.prompt("Hello")).raise_for_error()
    except RunAborted as ended:
        print("somebody ended it:", ended.reason)
    except ProviderError as error:
        print(type(error).__name__, error.status_code, error.retry_after_seconds)

    result = await agent.resume()  # the same question again
    print(result.outcome, result.text)


if __name__ == "__main__":
    anyio.run(main)
