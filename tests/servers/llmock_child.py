"""Runs llmock until standard input ends; a line of JSON there sets its quotas and its pace. Not imported by tests."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

from llmock.ratelimit import LimitSettings  # pyright: ignore[reportMissingImports]
from llmock.testing import LLMockServer  # pyright: ignore[reportMissingImports]


def configure(server: Any, settings: dict[str, int]) -> None:
    pace = settings.pop("chunk_delay_ms", 0)
    server.state.limiter.configure(LimitSettings(**settings))
    server.state.stream_chaos = replace(server.state.stream_chaos, chunk_delay_ms=pace)


running = LLMockServer().start()
print(running.url, flush=True)  # noqa: T201
for line in sys.stdin:
    configure(running, json.loads(line))
    print("done", flush=True)  # noqa: T201
# Stopping in order would wait for every request that the server itself holds up.
os._exit(0)
