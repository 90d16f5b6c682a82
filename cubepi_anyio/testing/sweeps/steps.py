"""Counts the scheduler steps of a piece of work and of all tasks it starts, and acts between two of them.

Which tasks belong to the work is told by a context variable: a task inherits the context of whoever started it, so the
watch follows the work into every task, and ends with it. A task that is started ``uncounted`` does not belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ("CURRENT_WATCH", "StepWatch", "uncounted")


class StepWatch:
    """The steps of one piece of work.

    A step is what a task does between two suspensions; the last one of a task counts too. ``act`` is called right
    after step number ``at``, as if from outside: no task of the work is running then. 0 means before the first.
    With ``again_after`` it is called once more, that many steps later.
    """

    def __init__(self, at: int | None, again_after: int | None = None) -> None:
        self.at = at
        self.again_after = again_after
        self.act: Callable[[], None] | None = None
        self.count: int = 0
        self.acted: bool = False
        self.steps_after: int = 0
        """Steps of the work's own first task since ``act`` was called."""
        self.main: object = None
        """The task that does the work itself; the others were started by it."""
        self.living: dict[object, str] = {}
        """The tasks that were started and have not ended, with their names."""
        self.closed = False

    def is_due(self, task: object) -> bool:
        """Count a step of ``task``; whether ``fire()`` is to be called now."""
        if self.closed:
            return False
        self.count += 1
        if self.acted and task is self.main:
            self.steps_after += 1
        return self.count == self.at and self.act is not None

    def fire(self) -> None:
        """Do what is to be done, unless the work has ended meanwhile."""
        if self.closed or self.act is None:
            return
        self.acted = True
        # Once more at a later step, or, without again_after, never again.
        self.at, self.again_after = self.count + self.again_after if self.again_after else None, None
        self.act()

    def others(self) -> list[str]:
        """The names of the living tasks besides the work's own."""
        return [name for task, name in self.living.items() if task is not self.main]


CURRENT_WATCH: ContextVar[StepWatch | None] = ContextVar("cubepi_anyio_step_watch", default=None)
"""The watch that counts the current task. Tasks inherit it from whoever starts them."""


@contextmanager
def uncounted() -> Generator[None, None, None]:
    """Tasks started in the block are not the work's: neither their steps nor their lives are counted."""
    token = CURRENT_WATCH.set(None)
    try:
        yield
    finally:
        CURRENT_WATCH.reset(token)
