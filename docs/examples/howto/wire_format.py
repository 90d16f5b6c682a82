"""A format of one's own over HTTP: what is sent, how the answer is cut and read, and a signature over the body."""

import hashlib
import hmac
import json
from functools import partial

import anyio
import httpx

from cubepi_anyio import Agent, BaseProvider, MessageStream, ModelSettings, Usage
from cubepi_anyio.errors import IncompleteStream, MalformedResponse
from cubepi_anyio.providers.http.client import HttpClient
from cubepi_anyio.providers.http.exchange import Exchange
from cubepi_anyio.providers.http.json_lines import JSON_LINES
from cubepi_anyio.providers.model_call import ModelCall
from cubepi_anyio.providers.settings_fields import settings_fields

KEY = b"a key that is never sent"


class LinesReader:
    """Reads ``{"text": ...}``, and ``{"done": ..., "tokens": n}`` at the end. Pure, and made for each answer."""

    def __init__(self, draft, request_id):
        self.draft, self.usage = draft, None

    @property
    def ended(self):
        return self.draft.ended

    def feed(self, line):
        if "text" in line:
            self.draft.text(line["text"])
        if "done" in line:
            self.usage = Usage(output_tokens=line["tokens"])
            self.draft.done(line["done"], usage=self.usage)
        return True  # more than a sign of life

    def feed_body(self, body):
        raise MalformedResponse("the answer was not streamed")

    def finish(self):
        if not self.ended:
            raise IncompleteStream("the answer ended before it was done")


async def sign(request):
    """Add a signature over the very bytes that are sent; it may wait for a token first."""
    return {"x-signature": hmac.new(KEY, request.body, hashlib.sha256).hexdigest()}


class LinesProvider(BaseProvider):
    api = "lines"

    def __init__(self, url, http_client=None):
        super().__init__(provider_id="lines")
        self.url = url
        self.client = HttpClient(http_client=http_client, timeouts=None, max_concurrent_requests=8)

    async def stream(self, model, messages, *, system_prompt="", tools=None, options=None):
        call = ModelCall.of(messages, system_prompt, tools, None, options)
        exchange = Exchange(
            client=self.client,
            url=self.url,
            model=model,
            provider_id=self.provider_id,
            api=self.api,
            call=call,
            observers=self.observers,
            payload=partial(payload, model, call),
            headers=lambda: {"accept": ", ".join(JSON_LINES.media_types)},
            sign=sign,
            framing=JSON_LINES,
            reader=LinesReader,
        )
        return MessageStream(exchange.run)


def payload(model, call):
    settings = call.settings_of(model)
    fields = settings_fields(settings, {"top_p": "nucleus"}, api="lines")  # what is not listed is refused by name
    if settings.temperature is not None:  # this and max_output_tokens are for each format to say
        fields["heat"] = settings.temperature
    return {"model": model.id, "said": [message.text for message in call.messages], **fields}


def server(request):
    """The other side, in place of a real one."""
    signed = hmac.new(KEY, request.content, hashlib.sha256).hexdigest() == request.headers["x-signature"]
    print("signed:", signed, "|", request.content.decode())
    lines = [{"text": "Hel"}, {"text": "lo."}, {"done": "stop", "tokens": 2}]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, stream=httpx.ByteStream(body))


async def main() -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as client:
        model = LinesProvider("https://models.example/lines", client).model("small")
        agent = Agent(model=model, settings=ModelSettings(temperature=0.5, top_p=0.9))
        result = await agent.prompt("Hi")
        print(result.outcome, "|", result.text, "|", result.usage.output_tokens)


if __name__ == "__main__":
    anyio.run(main)
