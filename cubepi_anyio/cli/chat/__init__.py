"""``cubepi-anyio chat``: a conversation in the terminal."""
