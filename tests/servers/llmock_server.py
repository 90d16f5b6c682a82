"""llmock: a server that fails on request and judges how its client took it."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest

from .children import ENVIRONMENT, MISSING, Child, child

PATHS = {"anthropic": "/anthropic", "openai-chat": "/v1", "openai-responses": "/v1"}
"""What stands behind the server's address in the base URL of each vendor's SDK."""


@dataclass
class LLMock:
    """A running llmock with nothing queued."""

    address: str
    process: Child
    http: httpx.Client
    changed: bool = field(default=False)

    def base_url(self, vendor: str) -> str:
        return self.address + PATHS[vendor]

    async def queue(self, *behaviors: dict[str, Any]) -> None:
        """Have the next requests meet these behaviours, each of which is used up by one request by default."""
        await self._call("POST", "/_llmock/scenario", {"behaviors": behaviors})

    async def configure(self, **settings: int) -> None:
        """Set ``rpm``, ``tpm``, ``context_window`` (tokens) and ``chunk_delay_ms`` until the next test."""
        self.changed = True
        await anyio.to_thread.run_sync(self.process.ask, json.dumps(settings))

    async def requests(self) -> list[dict[str, Any]]:
        """Every model request so far, in order, with the fault it met; waits for those still being answered."""
        return (await self._call("GET", "/_llmock/requests"))["requests"]

    async def findings(self) -> list[str]:
        """What the server finds wrong with its client, errors and warnings; empty is its *resilient*."""
        verdict = await self._call("GET", "/_llmock/verdict")
        return [f"{found['severity']}: {found['code']}: {found['title']}" for found in verdict["findings"]]

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        # In a thread: the server waits for open requests to end, and some end only when our event loop runs.
        response = await anyio.to_thread.run_sync(lambda: self.http.request(method, path, json=body))
        response.raise_for_status()
        return response.json()

    def reset(self) -> None:
        """Forget what was asked and queued."""
        self.http.post("/_llmock/reset").raise_for_status()
        if self.changed:
            self.process.ask("{}")
            self.changed = False


@contextmanager
def running_llmock() -> Generator[LLMock]:
    """Run the server in its own environment; skips the test where that is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if not list((ENVIRONMENT / "lib").glob("python*/site-packages/llmock/testing.py")):
        pytest.skip(MISSING.format("llmock", ENVIRONMENT.name))
    script = Path(__file__).with_name("llmock_child.py")
    with child([python, "-I", script]) as process:
        address = process.line()
        with httpx.Client(base_url=address, timeout=20, trust_env=False) as http:
            yield LLMock(address, process, http)
