"""The thread that the tests of restarts share, over two stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cubepi_anyio.checkpointers.memory import MemoryCheckpointer
from cubepi_anyio.checkpointers.sqlite import SQLiteCheckpointer

from .restarts import World


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Nothing in the store, and nothing done yet."""
    store = MemoryCheckpointer() if request.param == "memory" else SQLiteCheckpointer(tmp_path / "threads.db")
    async with store:
        yield World(store)
