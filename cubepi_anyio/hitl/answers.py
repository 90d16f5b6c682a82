"""What a model reads where a person gave no answer."""

from __future__ import annotations

from ..errors import PersonError, RequestTimedOut, RequestWithdrawn

__all__ = ("why_unanswered",)


def why_unanswered(error: PersonError) -> str:
    """A sentence for a model about a question that nobody answered."""
    match error:
        case RequestTimedOut():
            return f"Nobody answered within {error.seconds:g} seconds."
        case RequestWithdrawn():
            return f"The question was withdrawn{f': {error.reason}' if error.reason else '.'}"
        case _:
            return f"Nobody could answer: {error}"
