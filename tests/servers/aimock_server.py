"""aimock: a server whose every answer is written out beforehand, in the formats of all vendors."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import httpx
import pytest

from .children import ENVIRONMENT, MISSING, child

PACKAGE = ENVIRONMENT / "node" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "index.js"
PATHS = {"anthropic": "", "openai-chat": "/v1", "openai-responses": "/v1"}
"""What stands behind the server's address in the base URL of each vendor's SDK."""

SCRIPT = """
const { LLMock } = await import(process.argv[1]);
const mock = new LLMock({ host: "127.0.0.1", port: 0, chunkSize: 5 });
await mock.start();
console.log(mock.url);
process.stdin.on("end", () => process.exit(0)).resume();
"""


@dataclass
class AIMock:
    """A running aimock without any answers."""

    address: str
    http: httpx.Client

    def base_url(self, vendor: str) -> str:
        return self.address + PATHS[vendor]

    async def script(self, *fixtures: dict[str, Any]) -> None:
        """Add answers; each request gets the first one whose ``match`` fits it."""
        await self._call("POST", "/__aimock/fixtures", {"fixtures": fixtures})

    async def requests(self) -> list[dict[str, Any]]:
        """The bodies of the model requests so far, as the server read them into Chat Completions' form."""
        return [entry["body"] for entry in await self._call("GET", "/__aimock/journal")]

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = await anyio.to_thread.run_sync(lambda: self.http.request(method, path, json=body))
        response.raise_for_status()
        return response.json()

    def reset(self) -> None:
        """Forget the answers and what was asked."""
        self.http.post("/__aimock/reset").raise_for_status()


@contextmanager
def running_aimock() -> Generator[AIMock]:
    """Run the server under Node; skips the test where either is missing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; aimock needs node 20.15 or newer")
    if not PACKAGE.exists():
        pytest.skip(MISSING.format("aimock", PACKAGE.parents[4].relative_to(ENVIRONMENT.parent)))
    with child([node, "--input-type=module", "-e", SCRIPT, PACKAGE.as_uri()]) as process:
        address = process.line()
        with httpx.Client(base_url=address, timeout=20, trust_env=False) as http:
            yield AIMock(address, http)
