"""Onions: functions around a body, which go on by calling ``proceed()``.

::

    layers[0]                        the first middleware is the outermost
      await proceed() ------>  layers[1]
                                 await proceed() ------>  the body
                                 <------------ the outcome, a value
      <------------ what layers[1] made of it

The rules, which hold at each of the four seams:

* A layer opens and closes exactly once for what it stands around, whatever the ending: it is one call of one function.
* ``proceed()`` returns the outcome as a value. Where the surroundings are cancelled it raises the cancellation, and
  ``proceed.outcome`` holds the outcome by then, so that ``finally`` can tell of it.
* A layer cannot swallow what is not its own. If it catches the cancellation, or what was raised further in (a hook's
  bug, Ctrl-C), and returns, that leaves all the same.
* A layer may cut off what it stands around, with a scope of its own: there ``proceed.outcome`` is what had come until
  then, nobody else is told to stop, and what the layer returns is the outcome.
* What a layer raises by itself leaves as a hook's error does. What the body came to stays what it was.
* What a layer returns is checked by the seam; ``None`` is the outcome as it is.

What would break: a layer that could return normally out of a cancelled block would make a run go on that its caller
believes to be over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

from ..concurrency import hear_of_swallowed_cancellation
from ..errors import UsageError

__all__ = ("Layer", "Proceed", "through")

_T = TypeVar("_T")

Layer = Callable[..., Awaitable[Any]]
"""Called with the seam's own arguments, then ``proceed``, and ``ctx`` and ``signal`` where it declares them."""


def _never() -> bool:
    return False


class Proceed(Generic[_T]):
    """What a layer calls to go on to the next one, and at last to the body. For one layer, and one time."""

    __slots__ = ("_body", "_error", "_known", "_may_repeat", "_what", "is_called", "outcome")

    def __init__(
        self,
        body: Callable[[], Awaitable[_T]],
        known: Callable[[], _T | None],
        what: str,
        may_repeat: Callable[[], bool] = _never,
    ) -> None:
        self._body = body
        self._known = known
        self._what = what
        self._may_repeat = may_repeat
        self._error: BaseException | None = None
        self.is_called: bool = False
        """Whether the layer has gone on. One that never does answers in place of what it stands around."""
        self.outcome: _T | None = None
        """What the body came to; also when ``proceed()`` raised the cancellation. ``None`` before that."""

    async def __call__(self) -> _T:
        """Go on, and return the outcome.

        Raises ``UsageError`` when called again (around a model's call that is allowed while nothing of an answer was
        said), and the cancellation where the surroundings are cancelled.
        """
        if self.is_called and not self._may_repeat():
            raise UsageError(f"proceed() can be called once around {self._what}")
        self.is_called = True
        self.outcome = self._error = None
        try:
            outcome = self.outcome = await self._body()
        except BaseException as error:
            # Whether a cancellation is still meant for the layer, its scopes say (``through``), not the exception.
            if not isinstance(error, get_cancelled_exc_class()):
                self._error = error
            raise
        finally:
            if self.outcome is None:
                self.outcome = self._known()
        return outcome

    def raise_what_was_swallowed(self) -> None:
        """Raise what the body raised again, which the layer has caught."""
        if self._error is not None:
            raise self._error


async def through(
    layers: Sequence[Layer],
    body: Callable[[], Awaitable[_T]],
    *arguments: Any,
    known: Callable[[], _T | None],
    accept: Callable[[Any], _T],
    what: str,
    may_repeat: Callable[[], bool] = _never,
    **offered: Any,
) -> _T:
    """Run ``body`` inside ``layers``, the first of which is the outermost, and return what they made of its outcome.

    ``known`` gives what the body came to when it raised; ``accept`` makes an outcome of what a layer returned, and
    raises for anything else. ``what`` is the body in a word, for errors.
    """
    if not layers:
        return await body()

    async def further_in() -> _T:
        return await through(
            layers[1:],
            body,
            *arguments,
            known=known,
            accept=accept,
            what=what,
            may_repeat=may_repeat,
            **offered,
        )

    proceed = Proceed(further_in, known, what, may_repeat)
    returned = await layers[0](*arguments, proceed, **offered)
    # A cancellation that the layer has caught is raised again; so is what the body raised.
    await checkpoint_if_cancelled()
    await hear_of_swallowed_cancellation()
    proceed.raise_what_was_swallowed()
    if returned is None and proceed.outcome is not None:
        return proceed.outcome
    return accept(returned)
