# pyright: basic, reportMissingImports=false, reportOptionalCall=false, reportAttributeAccessIssue=false
"""CubePi 0.6, the release that the specification was written for."""

from __future__ import annotations

from peers.cube import Cube

LIBRARY = Cube("cubepi")
WIRES = {"agent": LIBRARY.listen}
STORES = {"sqlite": LIBRARY.sqlite}
