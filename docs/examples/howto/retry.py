"""Ask again when a model cannot answer, then ask another one."""

import anyio

from cubepi_anyio import Agent, FauxProvider, ProviderOverloaded, RateLimited
from cubepi_anyio.providers.fallback import FallbackModel
from cubepi_anyio.providers.retry import RetryModel, RetryPolicy


async def main() -> None:
    large, small = FauxProvider(provider_id="large"), FauxProvider(provider_id="small")
    large.set_responses([RateLimited("slow down", retry_after_seconds=0.01), ProviderOverloaded("too much to do")])
    small.set_responses(["The small model answers."])

    policy = RetryPolicy(max_attempts=2)
    model = FallbackModel(
        [
            RetryModel(large.model("l-1"), policy, on_retry=lambda notice: print("again after:", notice.error)),
            small.model("s-1"),
        ],
        on_failover=lambda notice: print("instead, after:", notice.error),
    )
    agent = Agent(model=model)
    print((await agent.prompt("Hello")).text)
    print("asked:", large.call_count, "and", small.call_count)


if __name__ == "__main__":
    anyio.run(main)
