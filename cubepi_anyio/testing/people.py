"""``ScriptedChannel``: a person whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyio.lowlevel import checkpoint

from ..errors import UsageError
from ..hitl.channel import Channel
from ..types.hitl import PersonAnswer, PersonRequest

__all__ = ("ScriptedAnswer", "ScriptedChannel")

ScriptedAnswer = PersonAnswer | Exception
"""An answer, or what is raised instead of one, such as ``RequestTimedOut``."""


class ScriptedChannel(Channel):
    """Answers at once: from a list in the order of the questions, or by a function of the question.

    Calls of a parallel batch ask in no certain order; use a function for them, which may look at
    ``request.tool_call_id`` and ``request.payload``. ``requests`` keeps every question, in the order in which they
    were asked. Raises ``UsageError`` for a question more than there are answers, and ``InvalidAnswer`` for one that
    does not fit.
    """

    def __init__(self, answers: Sequence[ScriptedAnswer] | Callable[[PersonRequest], ScriptedAnswer]) -> None:
        super().__init__()
        self._decide = answers if callable(answers) else None
        self._answers = [] if callable(answers) else list(answers)
        self.requests: list[PersonRequest] = []

    async def _answer_to(self, request: PersonRequest) -> PersonAnswer:
        self.requests.append(request)
        await checkpoint()
        if self._decide is not None:
            answer = self._decide(request)
        elif self._answers:
            answer = self._answers.pop(0)
        else:
            kind = request.payload.kind
            raise UsageError(f"question {len(self.requests)} ({kind}) finds no answer in the script; give one more")
        if isinstance(answer, Exception):
            raise answer
        return answer
