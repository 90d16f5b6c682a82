"""Cancellation past the scopes: asyncio's ``Task.cancel()``, which anyio has no name for and trio does not have.

::

    Task.cancel()      count 0 ▶ 1      CancelledError is thrown once, at the next await
       foreign code swallows it         the count stays 1: hear_of_swallowed_cancellation() raises it again
       foreign code aimed it at us      the code has ended: let_own_cancellation_pass() takes it back, count 1 ▶ 0
       a scope did it                   the scope takes it back when it is left; nobody else may

A count above zero does not say whose request it is. Where a scope is cancelled the requests are taken as the scope's:
whoever took them back there would have anyio take back others later, which somebody means.
"""

from __future__ import annotations

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint

from ..foreign.anyio_scopes import surroundings_are_cancelled
from ..foreign.asyncio_tasks import count_no_requests, native_cancel_counter, take_back_cancel_requests

__all__ = (
    "has_native_cancellation",
    "hear_of_swallowed_cancellation",
    "let_own_cancellation_pass",
    "native_cancel_requests",
)


def native_cancel_requests() -> int:
    """Count the ``Task.cancel()`` calls that the current asyncio task has not been excused from; 0 on trio."""
    return native_cancel_counter()()


def has_native_cancellation() -> bool:
    """Whether the current task can be cancelled past all scopes and shields, as asyncio's by ``Task.cancel()``."""
    return native_cancel_counter() is not count_no_requests


async def hear_of_swallowed_cancellation() -> None:
    """Raise the cancellation, if foreign code in a task of ours swallowed one that is meant for the task.

    A checkpoint if there is a reason.
    """
    if native_cancel_requests():
        # A cancel scope raises its own exception here, which it knows to catch; ours would pass through it.
        await checkpoint()
        if native_cancel_requests():
            raise anyio.get_cancelled_exc_class()


async def let_own_cancellation_pass() -> None:
    """Meet the ``Task.cancel()`` that foreign code aimed at the task it ran in, a task of ours, and take it back.

    The code has ended, perhaps before its cancellation hit. Nothing happens where a scope is cancelled: then the
    requests are the scope's.
    """
    if not native_cancel_requests() or surroundings_are_cancelled():
        return
    try:
        # A cancellation that is still on its way hits here, and not the next foreign code of this task.
        await cancel_shielded_checkpoint()
    except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - the scopes say whose it is
        if surroundings_are_cancelled():  # by now
            raise
    take_back_cancel_requests()
