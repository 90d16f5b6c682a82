"""Models of several vendors. Making them needs no key and no network."""

import anyio

from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.openai import OpenAIProvider
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider


async def main() -> None:
    models = [
        AnthropicProvider(cache_retention="long").model("claude-sonnet-4-5"),
        OpenAIResponsesProvider().model("gpt-5", reasoning=True),
        OpenAIProvider().model("gpt-5-mini"),
        OpenAIProvider(preset="deepseek").model("deepseek-chat"),
        OpenAIProvider(preset="ollama").model("qwen3:8b"),
        OpenAIProvider(base_url="http://localhost:9000/v1", api_key="none", provider_id="house").model("house-7b"),
    ]
    for model in models:
        print(f"{model.spec.provider:10} {model.spec.id:18} {model.spec.api}")


if __name__ == "__main__":
    anyio.run(main)
