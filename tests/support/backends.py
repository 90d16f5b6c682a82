"""For tests of what only one backend has."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

_needs_uvloop = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")

on_asyncio = pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("uvloop", marks=_needs_uvloop)], indirect=True
)
"""Run the test on asyncio with both of its loops, and not on trio: it uses ``Task.cancel()`` or ``asyncio.timeout``."""

_needs_trio = pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")

on_trio = pytest.mark.parametrize("anyio_backend", [pytest.param("trio", marks=_needs_trio)], indirect=True)
"""Run the test on trio alone: it uses nurseries."""
