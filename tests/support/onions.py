"""Middleware that stands around all four things, and notes how each was opened and closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

from cubepi_anyio import Middleware
from cubepi_anyio.hooks.around import Proceed

SEAMS = ("around_run", "around_model_call", "around_model_try", "around_tool_call")


class Onions(Middleware):
    """All four onions at once, each waiting before it goes on and after; what they do is in ``log``."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self.name = name
        self.log: list[str] = log if log is not None else []
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.known: list[tuple[str, Any]] = []
        """What each was closed with, by seam: ``proceed.outcome``."""

    async def around_run(self, proceed: Proceed[Any], *, ctx: Any) -> Any:
        return await self._around("run", proceed)

    async def around_model_call(self, proceed: Proceed[Any], *, ctx: Any) -> Any:
        return await self._around("call", proceed)

    async def around_model_try(self, model: Any, proceed: Proceed[Any], *, ctx: Any) -> Any:
        return await self._around("try", proceed)

    async def around_tool_call(self, call: Any, proceed: Proceed[Any], *, ctx: Any) -> Any:
        return await self._around(f"tool {call.id}", proceed)

    async def _around(self, what: str, proceed: Proceed[Any]) -> Any:
        self.opened[what] += 1
        self.log.append(f"{self.name}<{what}")
        try:
            await checkpoint()
            outcome = await self.go_on(proceed)
            await checkpoint()
        finally:
            self.closed[what] += 1
            self.known.append((what, proceed.outcome))
            self.log.append(f"{self.name}>{what}")
        return outcome

    async def go_on(self, proceed: Proceed[Any]) -> Any:
        """Go on to what it stands around."""
        return await proceed()

    @property
    def faults(self) -> list[str]:
        """What was opened and not closed, or closed twice."""
        return [
            f"{what} was opened {self.opened[what]} times and closed {self.closed[what]} times"
            for what in sorted({*self.opened, *self.closed})
            if self.opened[what] != self.closed[what]
        ]

    def of(self, what: str) -> list[Any]:
        """The outcomes that the onions around ``what`` were closed with."""
        return [outcome for name, outcome in self.known if name == what]


class Swallowing(Onions):
    """Catches everything that comes out of what it stands around, and returns as if nothing had been."""

    async def go_on(self, proceed: Proceed[Any]) -> Any:
        try:
            return await proceed()
        except BaseException:  # noqa: ASYNC103 - what must not be swallowed leaves all the same
            return None  # noqa: ASYNC104


def only(seam: str, layer: Callable[..., Any]) -> Middleware:
    """A middleware with one seam: ``layer``, called with what the seam is given."""
    middleware = Middleware()
    setattr(middleware, seam, layer)
    return middleware
