"""``Channel``: ways to ask a person. Many questions may wait at the same time, each for its own answer."""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, cast
from uuid import uuid4

import anyio

from ..errors import RequestTimedOut
from ..types.hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    PersonAnswer,
    PersonRequest,
    Question,
    RequestPayload,
)
from ..types.json import JsonObject
from ..types.person_answers import check_answer

__all__ = ("DEFAULT_TIMEOUT", "Channel", "UseDefault", "answered_in_time", "is_overdue")


class UseDefault(Enum):
    """The type of ``DEFAULT_TIMEOUT``."""

    DEFAULT_TIMEOUT = "the channel's default"


DEFAULT_TIMEOUT: Final = UseDefault.DEFAULT_TIMEOUT
"""Stands where no timeout was given: the channel's own holds, while ``None`` means for ever."""


class Channel(ABC):
    """A way to reach a person. Subclasses say how, in ``_answer_to``.

    Any number of questions may be asked at the same time. ``timeout`` is in seconds, counted from when the question is
    asked; ``None`` means for ever, and left out it is the channel's ``default_timeout``. A question that comes to
    nothing raises ``RequestTimedOut`` or ``RequestWithdrawn``. Cancelling whoever asks takes the question back.
    """

    def __init__(self, default_timeout: float | None = None) -> None:
        self.default_timeout: float | None = _checked_seconds(default_timeout)

    async def confirm(
        self,
        prompt: str,
        *,
        details: JsonObject | None = None,
        tool_call_id: str = "",
        run_id: str = "",
        timeout: float | UseDefault | None = DEFAULT_TIMEOUT,
    ) -> bool:
        """Ask for a yes or a no. A checkpoint."""
        payload = ConfirmRequest(prompt=prompt, details=copy.deepcopy(details or {}))
        return cast("bool", await self._ask(payload, tool_call_id, run_id, timeout))

    async def approve(
        self,
        tool_name: str,
        args: JsonObject,
        *,
        tool_call_id: str,
        run_id: str = "",
        prompt: str = "",
        details: JsonObject | None = None,
        timeout: float | UseDefault | None = DEFAULT_TIMEOUT,
    ) -> ApproveAnswer:
        """Ask whether a call may run with these arguments, as they are now, or with others. A checkpoint."""
        payload = ApproveRequest(
            tool_name=tool_name, args=copy.deepcopy(args), prompt=prompt, details=copy.deepcopy(details or {})
        )
        return cast("ApproveAnswer", await self._ask(payload, tool_call_id, run_id, timeout))

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        tool_call_id: str = "",
        run_id: str = "",
        timeout: float | UseDefault | None = DEFAULT_TIMEOUT,
    ) -> dict[str, Any]:
        """Ask questions and return the answers by question key: a string, or a list of them for ``multi_select``.

        Raises ``ValueError`` for no question at all, or two with one key. A checkpoint.
        """
        keys = [question.key for question in questions]
        if not keys or len(set(keys)) < len(keys):
            raise ValueError(f"ask() wants at least one question, each with a key of its own; the keys are {keys}")
        payload = AskRequest(questions=list(questions))
        return cast("dict[str, Any]", await self._ask(payload, tool_call_id, run_id, timeout))

    async def _ask(
        self, payload: RequestPayload, tool_call_id: str, run_id: str, timeout: float | UseDefault | None
    ) -> PersonAnswer:
        seconds = self.default_timeout if isinstance(timeout, UseDefault) else _checked_seconds(timeout)
        request = PersonRequest(
            id=uuid4().hex,
            payload=payload,
            run_id=run_id,
            tool_call_id=tool_call_id,
            created_at=time.time(),
            timeout_seconds=seconds,
        )
        return check_answer(request, await self._answer_to(request))

    @abstractmethod
    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        """Put the question to a person and return the answer.

        It keeps the deadline (``answered_in_time``) and is a checkpoint; cancelled, it leaves no question behind.
        """


def _checked_seconds(seconds: float | None) -> float | None:
    """Seconds as a question keeps them. Raises ``ValueError`` for what is no length of time."""
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not seconds >= 0:
        raise ValueError(f"a timeout is a number of seconds, or None for ever, not {seconds!r}")
    return seconds


@contextmanager
def answered_in_time(request: PersonRequest) -> Generator[None, None, None]:
    """Wrap waiting for the answer: when the question's time is over, the block ends with ``RequestTimedOut``."""
    seconds = request.timeout_seconds
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise RequestTimedOut(request.id, seconds or 0)


def is_overdue(request: PersonRequest) -> bool:
    """Whether the time of a question is over, by the clock on the wall: its asker may be another process."""
    return request.is_overdue(time.time())
