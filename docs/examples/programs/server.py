"""Agents behind a web server: a run is streamed as server-sent events, and cancelled when the browser leaves.

``python server.py uvicorn`` serves on asyncio, ``python server.py hypercorn`` on trio. It prints its address; open it.
"""

import json
import socket
import sys
from collections.abc import Callable
from functools import partial

import anyio
import hypercorn.config
import hypercorn.trio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cubepi_anyio import Agent, AgentEvent, FauxProvider

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>An agent</title>
<form id="form"><input id="prompt" value="Tell me a long story." size="40"> <button>Ask</button>
<button type="button" id="stop">Stop</button></form>
<p id="answer" style="white-space: pre-wrap"></p>
<p id="outcome"></p>
<script>
  const show = (id, text) => document.getElementById(id).textContent = text;
  let events = null;
  const stop = () => { if (events) events.close(); events = null; };
  window.onpagehide = stop;  // a page that is left may be kept, with its connection, for the way back
  document.getElementById("stop").onclick = () => { stop(); show("outcome", "stopped"); };
  document.getElementById("form").onsubmit = (submit) => {
    submit.preventDefault();
    stop();
    let answer = "";
    show("outcome", "running");
    events = new EventSource("/run?prompt=" + encodeURIComponent(document.getElementById("prompt").value));
    events.addEventListener("text", (event) => show("answer", answer += JSON.parse(event.data)));
    events.addEventListener("end", (event) => { stop(); show("outcome", JSON.parse(event.data)); });
  };
</script>
"""


def as_sse(event: AgentEvent) -> bytes | None:
    """The event as the browser gets it; ``None`` for those the page does not show."""
    if event.type == "message_update" and event.stream_event.type == "text_delta":
        name, data = "text", event.stream_event.delta
    elif event.type == "tool_execution_start":
        name, data = "tool", event.tool_name
    elif event.type == "agent_end":
        name, data = "end", event.outcome
    else:
        return None
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class RunResponse:
    """An ASGI response that streams one run.

    Two tasks: one sends what happens, one waits for the browser to leave. Whichever ends first ends the other, and
    the run is over, tools and model included, before the response is.
    """

    def __init__(self, agent: Agent, prompt: str, on_end: Callable[[str], None]) -> None:
        self._agent, self._prompt, self._on_end = agent, prompt, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wait_for_leaving, receive, tasks.cancel_scope)
                await self._send_events(send)
                tasks.cancel_scope.cancel()
        finally:
            self._on_end(self._agent.state.last_outcome or "never began")

    async def _wait_for_leaving(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _send_events(self, send: Send) -> None:
        async with self._agent.stream(self._prompt) as run:
            async for event in run:
                if (body := as_sse(event)) is not None:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def make_app(make_agent: Callable[[], Agent]) -> Starlette:
    """The application; each request gets an agent of its own."""
    ended: list[str] = []

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    async def run(request: Request) -> RunResponse | JSONResponse:
        prompt = request.query_params.get("prompt", "").strip()
        if not prompt:
            return JSONResponse({"error": "say something: /run?prompt=..."}, status_code=400)
        return RunResponse(make_agent(), prompt, ended.append)

    async def runs(request: Request) -> JSONResponse:
        return JSONResponse(ended)

    return Starlette(routes=[Route("/", page), Route("/run", run), Route("/runs", runs)])


def make_storyteller() -> Agent:
    """An agent that tells a story slowly; a model of yours takes its place."""
    provider = FauxProvider(tokens_per_second=50)
    story = "Once upon a time there was a run, and it had an end. "
    provider.set_responses([lambda messages: story * (200 if "long" in messages[-1].text else 2)])
    return Agent(model=provider.model("storyteller"))


async def serve_uvicorn(app: Starlette, listener: socket.socket) -> None:
    """Serve on asyncio."""
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


async def serve_hypercorn(app: Starlette, listener: socket.socket) -> None:
    """Serve on trio."""
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.loglevel = "warning"
    await hypercorn.trio.serve(app, config)


def main(server: str) -> None:
    """Serve until Ctrl-C."""
    app = make_app(make_storyteller)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        if server == "hypercorn":
            anyio.run(partial(serve_hypercorn, app, listener), backend="trio")
        else:
            anyio.run(partial(serve_uvicorn, app, listener), backend="asyncio")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "uvicorn")
