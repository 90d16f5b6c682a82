"""What a person may do to a command that runs: a first Ctrl-C asks it to stop, a second leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskStatus

from ...concurrency import bare_error

__all__ = ("Interrupts", "beside_interrupts", "exit_code_of")

_T = TypeVar("_T")


def exit_code_of(signal_number: int) -> int:
    """What a process that a signal ended exits with, by the convention of shells: 130 for Ctrl-C."""
    return 128 + signal_number


class Interrupts:
    """Listens for ``SIGINT`` and ``SIGTERM`` beside the work of a command.

    The first calls ``on_first``, which may be replaced while the work goes on. The second calls ``last_words`` and ends
    the process, whatever is still running.
    """

    def __init__(self, on_first: Callable[[], None], last_words: Callable[[], None]) -> None:
        self.on_first = on_first
        self._last_words = last_words
        self.received: int | None = None
        """The number of the first signal; ``None`` until it comes."""

    async def listen(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; start it with ``TaskGroup.start``, so that no signal is missed. A checkpoint.

        Where the event loop cannot hear signals (asyncio on Windows) it returns at once, and Ctrl-C raises
        ``KeyboardInterrupt`` as usual.
        """
        try:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for number in signals:
                    self._hear(number)
        except NotImplementedError:
            task_status.started()

    def _hear(self, number: int) -> None:
        if self.received is None:
            self.received = number
            self.on_first()
            return
        try:
            self._last_words()
        finally:
            os._exit(exit_code_of(number))


async def beside_interrupts(
    interrupts: Interrupts,
    work: Callable[[], Awaitable[_T]],
    *,
    redraw: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> _T:
    """Do the work, with signals heard and the screen drawn meanwhile; an error leaves as itself. A checkpoint."""
    results: list[_T] = []
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(interrupts.listen)
            if redraw is not None:
                tasks.start_soon(redraw)
            results.append(await work())
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = bare_error(group)
    else:
        return results[0]
    raise error
