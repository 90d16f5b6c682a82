# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""CubeLoop, the asyncio library that this one rewrites."""

from __future__ import annotations

from peers.cube import Cube

LIBRARY = Cube("cubeloop")
WIRES = {"agent": LIBRARY.listen}
STORES = {"sqlite": LIBRARY.sqlite}
