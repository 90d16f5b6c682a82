"""Counting steps on asyncio: every task of the work gets a coroutine that tells of its suspensions.

::

    event loop ──▶ Task ──▶ _CountedCoroutine.send / throw ──▶ the task's own coroutine
                                 ▲                                  │ suspends: a step has been made
                                 └── watch.is_due(task)? fire() ◀───┘

asyncio has no instruments, so the loop's task factory wraps the coroutine of every task that inherits the watch. Two
things have to be right, or the sweep ends runs as nobody outside could:

* The ending is fired while the loop still believes that the task runs. anyio then spares this task at first, and a
  step is not swept. So the loop is told for that moment that no task runs.
* The last step of a task raises instead of suspending. A task that is about to end must be seen to have ended, so the
  ending is left to the loop's next callback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from types import TracebackType
from typing import Any

from ...foreign.asyncio_tasks import as_if_between_tasks
from .steps import CURRENT_WATCH, StepWatch

__all__ = ("run_on_asyncio",)


class _CountedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that tells ``watch`` whenever it suspends, and in all else is the one it wraps.

    ``cr_running`` and the like are there for ``inspect.getcoroutinestate``, by which anyio decides whether a task
    has begun.
    """

    def __init__(self, inner: Coroutine[Any, Any, Any], watch: StepWatch) -> None:
        self._inner = inner
        self._watch = watch
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.__qualname__ = getattr(inner, "__qualname__", self.__name__)

    @property
    def cr_running(self) -> bool:
        return bool(getattr(self._inner, "cr_running", False))

    @property
    def cr_suspended(self) -> bool:
        return bool(getattr(self._inner, "cr_suspended", False))

    @property
    def cr_frame(self) -> Any:
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_code(self) -> Any:
        return getattr(self._inner, "cr_code", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._inner, "cr_await", None)

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._inner.send(value))

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        if val is None and tb is None:
            return self._step(lambda: self._inner.throw(typ))
        return self._step(lambda: self._inner.throw(typ, val, tb))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def _step(self, resume: Callable[[], Any]) -> Any:
        import asyncio  # noqa: PLC0415 - the package works without an asyncio loop

        task = asyncio.current_task()
        try:
            trap = resume()
        except BaseException:
            if self._watch.is_due(task):
                # Not now: the task is about to end, and an act from outside would find it ended.
                asyncio.get_running_loop().call_soon(self._watch.fire)
            raise
        if self._watch.is_due(task):
            with as_if_between_tasks():
                self._watch.fire()
        return trap


async def run_on_asyncio(work: Callable[[], Awaitable[None]], watch: StepWatch, bound_seconds: float) -> bool:
    """Run ``work`` in a task of its own; return whether it ended within ``bound_seconds``."""
    import asyncio  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    former = loop.get_task_factory()
    # anyio knows the factory of eager tasks by itself, and lets those of its groups begin later all the same. Behind
    # this one it would not be known, so here every task begins later.
    wrapped = None if former is getattr(asyncio, "eager_task_factory", None) else former

    def create(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        context = options.get("context")
        found = context.get(CURRENT_WATCH) if context is not None else CURRENT_WATCH.get()
        if found is not watch:
            return _create(loop, coro, options)
        task = _create(loop, _CountedCoroutine(coro, watch), options)
        watch.living[task] = getattr(coro, "__qualname__", repr(coro))
        task.add_done_callback(forget)
        return task

    def forget(task: asyncio.Task[Any]) -> None:
        watch.living.pop(task, None)

    def _create(loop: asyncio.AbstractEventLoop, coro: Any, options: dict[str, Any]) -> Any:
        return asyncio.Task(coro, loop=loop, **options) if wrapped is None else wrapped(loop, coro, **options)

    async def main() -> None:
        await work()

    context = copy_context()
    context.run(CURRENT_WATCH.set, watch)
    loop.set_task_factory(create)
    task = loop.create_task(main(), context=context)
    watch.main = task
    try:
        await asyncio.wait({task}, timeout=bound_seconds)
        in_time = task.done()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=bound_seconds)  # noqa: ASYNC102 - it has an end
        loop.set_task_factory(former)
    if in_time and not task.cancelled():  # cancelled in its very last step, it returned all the same
        task.result()
    return in_time
