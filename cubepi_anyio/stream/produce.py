"""Calling what was given as the producer of a stream."""

from __future__ import annotations

import inspect
from typing import Any

from anyio.lowlevel import cancel_shielded_checkpoint

__all__ = ("call_with",)


async def call_with(produce: Any, stream: object) -> None:
    """Call a producer with the stream if it takes a positional parameter, without it otherwise."""
    outcome = produce(stream) if _takes_parameter(produce) else produce()
    if inspect.isawaitable(outcome):
        await outcome
    else:
        await cancel_shielded_checkpoint()


def _takes_parameter(produce: Any) -> bool:
    if inspect.isfunction(produce):
        # What nearly every producer is, made anew for each stream: its signature costs more to read than to call it.
        code = produce.__code__
        return code.co_argcount > len(produce.__defaults__ or ()) or bool(code.co_flags & inspect.CO_VARARGS)
    try:
        parameters = inspect.signature(produce).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) and p.default is p.empty
        for p in parameters
    )
