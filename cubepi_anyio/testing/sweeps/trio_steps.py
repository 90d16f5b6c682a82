"""Counting steps on trio: an instrument is told of every step of every task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from random import Random
from typing import Any

from .steps import CURRENT_WATCH, StepWatch

__all__ = ("run_on_trio", "seed_scheduler")


def seed_scheduler(seed: int) -> None:
    """Repeat the order in which trio runs tasks that are ready in the same step.

    trio chooses it by a random generator of its own, which its test plugins seed as well. A trio that keeps it
    elsewhere is left as it is: then equal seeds repeat nothing.
    """
    generator = getattr(import_module("trio._core._run"), "_r", None)
    if isinstance(generator, Random):
        generator.seed(seed)


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
