"""``agent.between_runs()``: an idle agent and its stored thread, claimed for a block that is no run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import anyio

from ..concurrency import run_to_end, shielded
from ..errors import StreamMisuse
from ..stream.block import TaskBlock
from ..tools.context import RunContext
from .run import Run
from .thread import StoredThread

__all__ = ("BetweenRuns",)

_log = logging.getLogger(__name__)


class BetweenRuns:
    """A context manager, made by ``agent.between_runs()``; it can be entered once."""

    def __init__(self, begin: Callable[[], Run], be_idle: Callable[[], None], thread: StoredThread | None) -> None:
        self._begin, self._be_idle, self._thread = begin, be_idle, thread
        self._run: Run | None = None
        self._block = TaskBlock("a block between runs")
        self._error: Exception | None = None

    async def __aenter__(self) -> RunContext[Any]:
        """Claim agent and thread. A checkpoint. Raises ``AgentBusy``, ``ThreadBusy``, and what else a store raises."""
        if self._run is not None:
            raise StreamMisuse("between_runs() gives a block that can be entered once; call it again")
        self._run = run = self._begin()
        try:
            if self._thread is None:
                await anyio.lowlevel.checkpoint()
            else:
                await self._thread.open(run.id, run.record.messages)
                await self._block.enter(partial(self._keep_claim, self._thread))
        except BaseException:
            await self._give_back()  # noqa: ASYNC102 - shielded
            raise
        return run.context()

    async def _keep_claim(self, thread: StoredThread) -> None:
        try:
            await thread.keep_claim()
        except Exception as error:
            # Kept out of the task group, which would put it into an ExceptionGroup; the block ends, and it is raised.
            self._error = error
            self._block.cancel()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Store the notes that changed, and give the thread back, also when cancelled. A checkpoint.

        Raises what ended the claim while the block went on.
        """
        self._block.cancel()
        try:
            await self._block.leave(exc)  # noqa: ASYNC102 - a block waits for its task
        finally:
            await self._give_back()  # noqa: ASYNC102 - shielded
        if self._error is not None and not isinstance(exc, Exception):
            raise self._error

    async def _give_back(self) -> None:
        try:
            if self._thread is not None:
                await run_to_end(partial(self._close, self._thread))
        finally:
            self._be_idle()

    async def _close(self, thread: StoredThread) -> None:
        assert self._run is not None
        with shielded(self._run.config.limits.settle_timeout) as scope:
            try:
                await thread.close("completed")
            except Exception:
                _log.exception("thread %s could not be given back; it is free when the lease is over", thread.thread_id)
        if scope.cancelled_caught:
            _log.warning("thread %s: the store took longer than settle_timeout; given up", thread.thread_id)
