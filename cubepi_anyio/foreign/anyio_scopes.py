"""anyio on asyncio: a scope hands its cancellations on to the scope around it, even to that of another task.

::

    parent task    with scope P:                      P takes back 1 + 1 requests, the parent had 1
                       │   task group                       ▲
    child task         └──▶ with scope C:  cancelled ───────┘ left while P is cancelled: C's request is handed on

Why: a scope counts how often it called ``Task.cancel()`` of the task it stands in, and takes that back when it is
left. Left inside cancelled surroundings it hands the number to the scope around it instead, which takes it back later.
Where the scope around it belongs to another task, that task's ``cancelling()`` ends too low, and a native cancellation
that arrived meanwhile is forgotten. A scope that is shielded and cancelled itself hands on nothing, because it does
not see its surroundings: ``OwnCancelCount`` is such a scope, around the whole of a task.

What replaces it: an anyio that hands on only within one task. No ticket names this case; the counting came with
agronholm/anyio#774 and #790, where nested groups with tasks of their own are discussed as unsolved.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import CancelScope, TaskHandle

from .asyncio_tasks import count_no_requests, native_cancel_counter

__all__ = ("OwnCancelCount", "surroundings_are_cancelled")


def surroundings_are_cancelled() -> bool:
    """Whether a scope around the current task is cancelled. The type of an exception does not say so."""
    return anyio.current_effective_deadline() == -math.inf


class OwnCancelCount:
    """Wraps a child task so that its cancellations do not change the parent's ``cancelling()`` count.

    It stands around all that the task does. The cancellation ends here, in the last frame of the task; the task group
    it belongs to is cancelled anyhow. Nothing on trio.
    """

    __slots__ = ("_requests", "_scope")

    def __init__(self) -> None:
        self._requests = native_cancel_counter()
        self._scope = CancelScope() if self._requests is not count_no_requests else None

    def cancel(self, task: TaskHandle[Any, Any]) -> None:
        """Cancel ``task``, the one this stands around, and change nobody's count."""
        if self._scope is not None:
            self._scope.cancel()
        else:
            task.cancel()

    def __enter__(self) -> Self:
        if self._scope is not None:
            self._scope.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        scope = self._scope
        if scope is None:
            return False
        # Asked before the shield goes up, behind which nothing is cancelled.
        if self._requests() and surroundings_are_cancelled():
            scope.shield = True
            scope.cancel()
        return bool(scope.__exit__(exc_type, exc, tb))
