"""anyio: what a worker thread knows of the event loop and of the scope that it works for.

Why: on asyncio, anyio's worker threads are no daemons, so that a tool's function that does not listen would hold up
the end of the program. Such a function runs in a daemon thread of our own, beside anyio's, and still has to be able to
call ``anyio.from_thread.run()`` and ``check_cancelled()``. anyio keeps what these need in thread-local attributes.

What replaces it: ``from_thread.run(..., token=)`` replaces half of it, where the function can be given the token. For
``check_cancelled()`` there is no public way; a maintainer declined to make worker threads known to user code
(agronholm/anyio#1201). Daemon threads were tried and taken back (agronholm/anyio#321, python-trio/trio#2046).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from anyio import from_thread

__all__ = ("become_worker_thread", "worker_thread_state")

_locals = cast("Any", from_thread.threadlocals)  # pyright: ignore[reportPrivateImportUsage]


def worker_thread_state() -> Mapping[str, Any]:
    """What this worker thread of anyio knows. It is taken away when the thread's function returns."""
    return dict(_locals.__dict__)


def become_worker_thread(state: Mapping[str, Any]) -> None:
    """Let this thread call ``anyio.from_thread`` as the thread could whose ``state`` it is given."""
    _locals.__dict__.update(state)
