"""A provider for a gateway inside a company, which has a wire format of its own.

The gateway is posted JSON and answers a line of JSON for each token:

    {"say": "Hel"}    {"think": "..."}    {"call": {"id": "...", "name": "...", "arguments": {...}}}
    {"end": "stop", "tokens": {"read": 12, "written": 3}}    {"error": "quota", "wait": 30}
"""

import json
from typing import Any

import anyio
import httpx

from cubepi_anyio import (
    Agent,
    BaseProvider,
    IncompleteStream,
    MalformedResponse,
    Message,
    MessageDraft,
    MessageStream,
    Model,
    ProviderBadRequest,
    ProviderError,
    ProviderResponse,
    ProviderUnavailable,
    RateLimited,
    StreamOptions,
    ToolDefinition,
    Usage,
    invoke_on_payload,
    invoke_on_response,
)


def as_payload(
    model: Model, messages: list[Message], system_prompt: str, tools: list[ToolDefinition] | None
) -> dict[str, Any]:
    """The request: who said what, in order, and what may be called."""
    said: list[dict[str, Any]] = [{"by": "system", "text": system_prompt}] if system_prompt else []
    for message in messages:
        line: dict[str, Any] = {"by": message.role, "text": message.text}
        if message.role == "assistant":
            line["calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
        elif message.role == "tool_result":
            line |= {"call": message.tool_call_id, "failed": message.is_error}
        said.append(line)
    return {"model": model.id, "said": said, "tools": [tool.model_dump() for tool in tools or ()]}


def as_error(line: dict[str, Any]) -> ProviderError:
    """The typed error a line of the answer means."""
    if line["error"] == "quota":
        return RateLimited("the team's quota is used up", retry_after_seconds=line.get("wait"))
    return ProviderUnavailable(f"the gateway says: {line['error']}")


class GatewayProvider(BaseProvider):
    """Models behind the gateway. The client is yours: close it when you are done."""

    api = "company-gateway"

    def __init__(self, client: httpx.AsyncClient, *, team: str) -> None:
        super().__init__(provider_id="gateway")
        self._client, self._team = client, team

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        """Return at once; the request goes out when the stream is entered, and its connection ends with it."""
        options = options or StreamOptions()

        async def produce(stream: MessageStream) -> None:
            payload = as_payload(model, messages, system_prompt, tools)
            payload = await invoke_on_payload(options.on_payload, payload, model)
            draft = MessageDraft(stream, model, api=self.api)
            try:
                async with self._client.stream(
                    "POST", "/v1/say", json=payload, headers={"x-team": self._team}
                ) as answer:
                    head = ProviderResponse(answer.status_code, dict(answer.headers))
                    await invoke_on_response(options.on_response, head, model)
                    if answer.status_code != 200:
                        await answer.aread()
                        raise ProviderBadRequest(answer.text[:500], status_code=answer.status_code)
                    # An answer is read to its end, or cancelled where it is read; it is never left in the middle. httpx
                    # reads through async generators, which would be left to the garbage collector.
                    async for line in answer.aiter_lines():
                        await take(draft, line)
            except httpx.TransportError as error:
                raise ProviderUnavailable(f"the gateway cannot be reached: {error}", provider="gateway") from error
            if not draft.writer.ended:
                raise IncompleteStream("the gateway hung up in the middle of an answer", provider="gateway")

        return MessageStream(produce)


async def take(draft: MessageDraft, text: str) -> None:
    """Write one line of the answer into the draft."""
    try:
        line = json.loads(text)
    except ValueError:
        await draft.fail(MalformedResponse(f"the gateway sent a line that is no JSON: {text[:100]!r}"))
        return
    match line:
        case {"say": said}:
            await draft.text(said)
        case {"think": thought}:
            await draft.thinking(thought)
        case {"call": call}:
            await draft.tool_call(call["id"], call["name"], call["arguments"])
        case {"end": reason}:
            tokens = line.get("tokens", {})
            usage = Usage(input_tokens=tokens.get("read", 0), output_tokens=tokens.get("written", 0))
            await draft.done(reason, usage=usage)
        case {"error": _}:
            await draft.fail(as_error(line))
        case _:
            pass  # a kind of line that came with a later version of the gateway


async def main() -> None:
    async with httpx.AsyncClient(base_url="https://gateway.example", timeout=None) as client:
        agent = Agent(model=GatewayProvider(client, team="search").model("house-7b"))
        result = await agent.prompt("Hello")
        print(result.outcome, result.text or result.error)


if __name__ == "__main__":
    anyio.run(main)
