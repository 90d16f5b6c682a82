"""``cubepi-anyio demo``: an agent at work, offline, and the picture of what it did."""
