"""PyMySQL: the socket of a connection.

Why: a store has to know whether the server closed an idle connection, without a round trip, and to break off a
connection from another thread while a statement waits. Both need the file descriptor.

What replaces it: a ``Connection.fileno()``, as psycopg has. No ticket of PyMySQL asks for it.
"""

from __future__ import annotations

from typing import Any

__all__ = ("connection_fileno",)


def connection_fileno(connection: Any) -> int | None:
    """The file descriptor of a connection of PyMySQL; ``None`` if it is closed."""
    socket = getattr(connection, "_sock", None)
    return socket.fileno() if socket is not None else None
