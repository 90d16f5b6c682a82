"""How a call says that it waits for a person and cannot go on in this run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...types.hitl import PersonRequest

__all__ = ("SuspendCall",)


class SuspendCall(Exception):  # carries a question out of one call, and no further
    """Raised by a durable channel inside a call; the call becomes a ``suspended`` outcome, a value like the others.

    It never leaves the call. The question has been stored when it is raised.
    """

    def __init__(self, request: PersonRequest) -> None:
        self.request = request
        super().__init__(f"the call waits for a person's answer to the question {request.id!r}")
