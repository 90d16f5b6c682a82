"""CPython: how often ``Task.cancel()`` was asked of the current task, and taking it back.

Why: a cancel scope cancels a task again at each checkpoint, so code that swallows one cancellation hears of the next.
``Task.cancel()`` is delivered once. After foreign code ran in a task of ours, ``Task.cancelling()`` is the only trace
of a cancellation that the code swallowed. anyio has no name for it, because trio has nothing like it.

What replaces it: an anyio that says whether its host task was cancelled past all scopes. There is no such ticket;
agronholm/anyio#1214 (a native cancellation that a scope swallowed) is the nearest.

Documented: ``cancelling()`` and ``uncancel()`` are public since Python 3.11 (python/cpython#90908), meant for
implementations of structured concurrency. Not documented is what this module relies on besides: that a count above
zero outlives the ``CancelledError``, until somebody calls ``uncancel()``.

For the tests' step counter only: ``_leave_task`` and ``_enter_task`` are described for authors of task
implementations ("Extending" in the documentation of asyncio), without a promise for anybody else. No ticket asks for
a public way to act as if no task were running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

__all__ = ("as_if_between_tasks", "count_no_requests", "native_cancel_counter", "take_back_cancel_requests")


def native_cancel_counter() -> Callable[[], int]:
    """What counts the requests to cancel of the current task, for any task of the event loop that runs now.

    ``count_no_requests`` on trio, and where no task runs.
    """
    asyncio: Any = sys.modules.get("asyncio")
    # A module that another thread is importing may not have its functions yet.
    current_task: Any = getattr(asyncio, "current_task", None)
    if current_task is None:
        return count_no_requests
    try:
        if current_task() is None:
            return count_no_requests
    except RuntimeError:  # no asyncio loop runs in this thread: trio
        return count_no_requests
    return lambda: current_task().cancelling()


def count_no_requests() -> int:
    """Return 0: the counter where tasks are cancelled by scopes alone."""
    return 0


def take_back_cancel_requests() -> None:
    """Take back all requests to cancel the current task, which has to be one of asyncio."""
    asyncio: Any = sys.modules["asyncio"]
    task = asyncio.current_task()
    while task.uncancel():
        pass


@contextmanager
def as_if_between_tasks() -> Generator[None, None, None]:
    """In the block, asyncio believes that no task runs, as in a callback of the event loop.

    A scope that is cancelled by a task passes over that task at first; from outside there is no such task.
    """
    asyncio: Any = sys.modules["asyncio"]
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    asyncio.tasks._leave_task(loop, task)
    try:
        yield
    finally:
        asyncio.tasks._enter_task(loop, task)
