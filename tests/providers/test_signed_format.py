"""A format of its own making: JSON lines, and requests that are signed over their body with a token that is fetched."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import (
    Agent,
    Message,
    MessageStream,
    Model,
    ProviderAuthFailed,
    ProviderBadRequest,
    ProviderError,
    ProviderUnavailable,
    StreamOptions,
    Usage,
)
from cubepi_anyio.errors import IncompleteStream, MalformedResponse
from cubepi_anyio.providers.http.exchange import RequestToSign, Sign
from cubepi_anyio.providers.http.json_lines import JSON_LINES
from cubepi_anyio.providers.http.provider import HttpProvider
from cubepi_anyio.providers.model_call import ModelCall
from cubepi_anyio.stream.draft import DraftWriter
from cubepi_anyio.testing import Scenario, endings_here, sweep
from cubepi_anyio.types import JsonObject, ToolDefinition

from .asking import ASK, Heard, ask, hear
from .loopback import LAST_CHUNK, Connection, Loopback, chunk, serve, whole

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_environment")]

KEY = b"a key that is never sent"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
LINES = [{"text": "Hel"}, {"text": "lo"}, {"done": "stop", "tokens": 5}]
BODY = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


# --- the format ------------------------------------------------------------------------------


class LinesReader:
    """Reads ``{"text": ...}``, and ``{"done": reason, "tokens": n}`` at the end."""

    def __init__(self, draft: DraftWriter, request_id: str | None) -> None:
        self._draft = draft
        self.usage: Usage | None = None

    @property
    def ended(self) -> bool:
        return self._draft.ended

    def feed(self, frame: JsonObject) -> bool:
        if "text" in frame:
            self._draft.text(frame["text"])
        if "done" in frame:
            self.usage = Usage(output_tokens=frame["tokens"])
            self._draft.done(frame["done"], usage=self.usage)
        return True

    def feed_body(self, body: JsonObject) -> None:
        raise MalformedResponse("the answer was not streamed")

    def finish(self) -> None:
        if not self.ended:
            raise IncompleteStream("the answer ended before it was done")


def signature(token: str, body: bytes) -> str:
    return hmac.new(KEY, token.encode() + body, hashlib.sha256).hexdigest()


class SignedProvider(HttpProvider):
    """Asks ``base`` with a signature over the body and a token from ``fetch_token``."""

    api = "signed-lines"
    _needs_key = False

    def __init__(self, base: str, fetch_token: Callable[[], Awaitable[str]], *, sign: Sign | None = None) -> None:
        super().__init__(
            provider_id="signed",
            api_key="",
            key_variable="SIGNED_API_KEY",
            http_client=None,
            timeouts=None,
            max_concurrent_requests=4,
            extra_headers={},
            extra_body=None,
        )
        self._base = base
        self._fetch_token = fetch_token
        self._sign: Sign = sign if sign is not None else self._signed
        self.signed: list[RequestToSign] = []
        self.messages: list[list[Message]] = []

    async def _signed(self, request: RequestToSign) -> Mapping[str, str]:
        self.signed.append(request)
        token = await self._fetch_token()
        return {"Authorization": f"Signed {token}", "X-Signature": signature(token, request.body)}

    async def stream(
        self,
        model: Model,
        messages: list[Message],
        *,
        system_prompt: str = "",
        tools: list[ToolDefinition] | None = None,
        options: StreamOptions | None = None,
    ) -> MessageStream:
        self.messages.append(list(messages))
        call = ModelCall.of(messages, system_prompt, tools, None, options)
        return self._answer(
            model,
            call,
            url=f"{self._base}/lines",
            payload=partial(_payload, model, call),
            reader=LinesReader,
            framing=JSON_LINES,
            sign=self._sign,
        )


def _payload(model: Model, call: ModelCall) -> JsonObject:
    return {"model": model.id, "said": [message.text for message in call.messages]}


async def token() -> str:
    await checkpoint()
    return "token-1"


# --- its server ------------------------------------------------------------------------------


async def answer_signed(connection: Connection, answer: bytes = BODY) -> None:
    """Answer requests whose signature is that of the bytes which came."""
    while True:
        head, body = await connection.request()
        headers = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:])
        said = headers["authorization"].removeprefix("signed ")
        if headers["x-signature"] != signature(said, body):
            await connection.send(whole(b"{}", status="403 Forbidden"))
            continue
        await connection.send(HEAD + chunk(answer[:7]))
        await checkpoint()
        await connection.send(chunk(answer[7:]) + LAST_CHUNK)


async def ask_signed(answer: bytes = BODY, **options: Any) -> tuple[Heard, SignedProvider]:
    async with serve(partial(answer_signed, answer=answer)) as server:
        async with SignedProvider(server.base, token) as asked:
            return await ask(asked.model("m"), **options), asked


# --- what holds ------------------------------------------------------------------------------


async def test_what_was_signed_is_what_is_sent() -> None:
    extra = {"half": "\ud83c", "deep": {"é": [1.5]}}
    heard, asked = await ask_signed(options=StreamOptions(extra_body=extra, extra_headers={"X-Here": "1"}))
    assert (heard.message.text, heard.message.stop_reason) == ("Hello", "stop")
    assert (heard.message.usage, heard.message.api) == (Usage(output_tokens=5), "signed-lines")
    (signed,) = asked.signed
    assert (signed.method, signed.url.rpartition("/")[2]) == ("POST", "lines")
    assert signed.headers["content-type"] == "application/json"
    assert signed.headers["accept"].startswith("application/x-ndjson")
    assert signed.headers["x-here"] == "1"
    assert json.loads(signed.body)["deep"] == {"é": [1.5]}


async def test_a_body_that_a_hook_has_replaced_is_signed_as_it_is_sent() -> None:
    def replaced(payload: dict[str, Any], model: Model) -> dict[str, Any]:
        return {"replaced": True}

    heard, asked = await ask_signed(options=StreamOptions(on_payload=replaced))
    assert heard.message.text == "Hello"
    assert json.loads(asked.signed[0].body) == {"replaced": True}


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (BODY[:20], IncompleteStream, "Hel"),
        (BODY[: BODY.index(b'{"done"')], IncompleteStream, "Hello"),
        (b'{"text": "Hel"}\nupstream error\n', MalformedResponse, "Hel"),
    ],
    ids=["cut in a line", "without its end", "no lines"],
)
async def test_an_answer_that_breaks_keeps_what_had_come(answer: bytes, kind: type[Exception], text: str) -> None:
    heard, _ = await ask_signed(answer)
    assert type(heard.error) is kind
    assert heard.message.text == text


async def test_a_page_that_is_no_lines_is_malformed() -> None:
    page = whole(b"", headers="content-type: text/html\r\n")

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(page)

    async with serve(handle) as server, SignedProvider(server.base, token) as asked:
        heard = await ask(asked.model("m"))
    assert type(heard.error) is MalformedResponse
    assert "text/html) is not JSON lines; check base_url" in str(heard.error)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("the secret is hunter2"), ProviderAuthFailed),
        (ConnectionResetError("hunter2"), ProviderUnavailable),
        (anyio.BrokenResourceError(), ProviderUnavailable),
        (ProviderBadRequest("no such region"), ProviderBadRequest),
    ],
)
async def test_signing_that_fails_is_a_typed_error_and_sends_nothing(raised: Exception, kind: type[Exception]) -> None:
    async def sign(request: RequestToSign) -> Mapping[str, str]:
        raise raised

    async with serve(answer_signed) as server:
        async with SignedProvider(server.base, token, sign=sign) as asked:
            heard = await ask(asked.model("m"))
        assert server.connections == []
    assert type(heard.error) is kind
    assert isinstance(heard.error, ProviderError)
    assert (heard.error is raised) or (heard.error.__cause__ is raised)
    assert heard.error.provider == "signed"
    assert "hunter2" not in str(heard.error)


async def test_a_signature_that_cannot_be_sent_is_named_without_its_value() -> None:
    async def sign(request: RequestToSign) -> Mapping[str, str]:
        return {"x-signature": "secret\n"}

    async with SignedProvider("http://127.0.0.1:9", token, sign=sign) as asked:
        heard = await ask(asked.model("m"))
    assert type(heard.error) is ProviderBadRequest
    assert "x-signature" in str(heard.error)
    assert "secret" not in str(heard.error)


async def test_a_call_is_cancelled_where_it_waits_for_a_token() -> None:
    asked_for = anyio.Event()

    async def never() -> str:
        asked_for.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with serve(answer_signed) as server, SignedProvider(server.base, never) as asked:
        model = asked.model("m")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(model.generate, ASK))
            await asked_for.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert server.connections == []
        asked._fetch_token = token
        heard = await hear(await model.stream(ASK))
    assert heard.message.text == "Hello"


# --- the sweep -------------------------------------------------------------------------------


@asynccontextmanager
async def _scenario(server: Loopback) -> AsyncGenerator[Scenario]:
    async def slow_token() -> str:
        for _ in range(3):
            await checkpoint()
        return "token-1"

    async with SignedProvider(server.base, slow_token) as provider:
        yield Scenario(
            agent=Agent(model=provider.model("m")),
            again=lambda agent: agent.prompt("Are you still there?"),
            requests=lambda: provider.messages,
        )


@pytest.mark.deadline(120)
async def test_a_run_may_be_ended_at_any_step_of_signing() -> None:
    stride = 1 if os.environ.get("CUBEPI_ANYIO_THOROUGH_SWEEPS") else 3
    async with serve(answer_signed) as server:
        for number, ending in enumerate(endings_here()):
            report = await sweep(lambda: _scenario(server), ending=ending, start=1 + number % stride, stride=stride)
            report.raise_for_faults()
            assert report.endings > 3
