"""A server that gives written answers by the first part of the path, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """One request."""

    path: str
    """Without the first part, which names the answer."""
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Canned:
    """The answers by name, and the requests so far."""

    address: str = ""
    answers: dict[str, bytes] = field(default_factory=dict[str, bytes])
    requests: list[Request] = field(default_factory=list[Request])

    def add(self, answer: bytes) -> str:
        """Keep an answer; the address under which every request gets it."""
        name = f"a{len(self.answers)}"
        self.answers[name] = answer
        return f"{self.address}/{name}"


@contextmanager
def canned_server() -> Generator[Canned]:
    """Run the server in a thread, on a free port: its clients are this process and others."""
    canned = Canned()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            _, name, path = self.path.split("/", 2)
            headers = {key.lower(): value for key, value in self.headers.items()}
            canned.requests.append(Request(f"/{path}", headers, json.loads(body)))
            answer = canned.answers[name]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        canned.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield canned
        finally:
            server.shutdown()
            thread.join()
