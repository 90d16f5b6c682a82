"""Let a user see and change each request, and see each answer's head."""

import anyio

from cubepi_anyio import (
    Agent,
    MessageDraft,
    MessageStream,
    Model,
    ProviderResponse,
    StreamOptions,
    invoke_on_payload,
    invoke_on_response,
)


class MyProvider:
    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        options = options or StreamOptions()

        async def produce(stream: MessageStream) -> None:
            payload = {"model": model.id, "text": messages[-1].text}
            payload = await invoke_on_payload(options.on_payload, payload, model)
            # The request goes out here.
            await invoke_on_response(options.on_response, ProviderResponse(200, {"x-region": "north"}), model)
            draft = MessageDraft(stream, model)
            await draft.text(f"received {payload}")
            await draft.done()

        return MessageStream(produce)


async def main() -> None:
    agent = Agent(
        provider=MyProvider(),
        model=Model(id="mine", provider="me"),
        on_payload=lambda payload, model: {**payload, "text": payload["text"].upper()},
        on_response=lambda response, model: print(response.status, response.headers),
    )
    print((await agent.prompt("hello")).text)


if __name__ == "__main__":
    anyio.run(main)
