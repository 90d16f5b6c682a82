"""Counting steps on trio: an instrument is told of every step of every task.

Instruments are public, and are called between two tasks, which is where an ending has to come from. The work runs in a
nursery of its own, in a task whose context holds the watch; tasks inherit the context of whoever starts them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .steps import CURRENT_WATCH, StepWatch

__all__ = ("run_on_trio",)


async def run_on_trio(work: Callable[[], Awaitable[None]], watch: StepWatch, bound_seconds: float) -> bool:
    """Run ``work`` in a task of its own; return whether it ended within ``bound_seconds``."""
    import trio  # noqa: PLC0415 - trio is optional

    class Counter(trio.abc.Instrument):
        def task_spawned(self, task: Any) -> None:
            if task.context.get(CURRENT_WATCH) is watch:
                watch.living[task] = task.name

        def task_exited(self, task: Any) -> None:
            watch.living.pop(task, None)

        def after_task_step(self, task: Any) -> None:
            if task.context.get(CURRENT_WATCH) is watch and watch.is_due(task):
                watch.fire()

    async def main() -> None:
        watch.main = trio.lowlevel.current_task()
        await work()
        ended.set()

    ended = trio.Event()
    counter = Counter()
    trio.lowlevel.add_instrument(counter)
    try:
        with trio.move_on_after(bound_seconds):
            async with trio.open_nursery() as nursery:
                token = CURRENT_WATCH.set(watch)
                nursery.start_soon(main)
                CURRENT_WATCH.reset(token)
                await ended.wait()
    finally:
        trio.lowlevel.remove_instrument(counter)
    return ended.is_set()
