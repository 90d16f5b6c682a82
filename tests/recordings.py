"""Recorded exchanges with real vendors, which lie beside the repository, and the server that replays them.

Tests that need them are skipped, with the reason, where they are not there.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIRE = Path(__file__).resolve().parents[2] / "shared" / "wire"
MISSING = f"the wire recordings are not there ({WIRE.name}/ beside the repository)"

Recording = dict[str, Any]


def recordings(api: str) -> list[Recording]:
    """All recordings of one wire format, in the order of their ids; none where they are missing."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted((WIRE / "recordings").glob("*.json"))]
    return [recording for recording in found if recording["api"] == api]


def recording_params(api: str, *, streamed: bool | None = None, status: int | None = None) -> list[Any]:
    """Recordings as pytest parameters; a single skipped one where there are none."""
    found = [
        pytest.param(recording, id=recording["id"])
        for recording in recordings(api)
        if (streamed is None or recording["response"]["stream"] is streamed)
        and (status is None or recording["response"]["status"] == status)
    ]
    return found or [pytest.param(None, id="missing", marks=pytest.mark.skip(reason=MISSING))]


def body_of(recording: Recording) -> bytes:
    """The body of the answer, as it was sent."""
    return recording["response"]["body_text"].encode("utf-8")


class Replay:
    """A replay server; ``url`` names a recording and how it is to be sent (see the server's own page)."""

    def __init__(self, server: Any, base: str) -> None:
        self._server = server
        self.base = base

    def url(self, recording_id: str, **options: object) -> str:
        chosen = "".join(f";{name}={value}" for name, value in options.items())
        return f"{self.base}/_r/{recording_id}{chosen}"

    @property
    def log(self) -> list[dict[str, Any]]:
        """The requests the server has seen."""
        return self._server.log


@contextmanager
def replay_server() -> Generator[Replay]:
    """Run the replay server in a thread of this process, on a free port."""
    script = WIRE / "replay.py"
    if not script.exists():
        pytest.skip(MISSING)
    spec = importlib.util.spec_from_file_location("wire_replay", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server, base = module.start([str(WIRE / "recordings")])
    try:
        yield Replay(server, base)
    finally:
        server.shutdown()
        server.server_close()
