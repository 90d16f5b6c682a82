"""A question put to a person, and the answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from .json import JsonObject

__all__ = (
    "ApproveAnswer",
    "ApproveRequest",
    "AskRequest",
    "ConfirmRequest",
    "Option",
    "PersonAnswer",
    "PersonRequest",
    "Question",
    "RequestPayload",
)


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Option(_Value):
    """One of the answers offered."""

    label: str
    value: str = ""
    """What is answered when it is chosen; the label where empty."""
    description: str = ""
    allow_input: bool = False
    """Whether choosing it lets the person write something of their own."""


class Question(_Value):
    """One question: free text, or a choice of ``options``."""

    key: str
    """Under which the answer is returned."""
    prompt: str
    options: list[Option] = Field(default_factory=list[Option])
    multi_select: bool = False
    required: bool = True


class ConfirmRequest(_Value):
    """Yes or no."""

    kind: Literal["confirm"] = "confirm"
    prompt: str
    details: JsonObject = Field(default_factory=dict[str, Any])


class ApproveRequest(_Value):
    """May this call run, as it is or edited?"""

    kind: Literal["approve"] = "approve"
    tool_name: str
    args: JsonObject = Field(default_factory=dict[str, Any])
    prompt: str = ""
    details: JsonObject = Field(default_factory=dict[str, Any])


class AskRequest(_Value):
    """Questions of the model's own."""

    kind: Literal["ask"] = "ask"
    questions: list[Question]


RequestPayload = Annotated[ConfirmRequest | ApproveRequest | AskRequest, Field(discriminator="kind")]
"""What is asked; told apart by ``kind``."""


class PersonRequest(_Value):
    """One question that waits for a person. Ids are unique; any number of requests may wait at the same time."""

    id: str
    payload: RequestPayload
    thread_id: str = ""
    run_id: str = ""
    tool_call_id: str = ""
    """The call that waits for the answer."""
    created_at: float = 0.0
    """Seconds since the epoch."""
    timeout_seconds: float | None = None
    """How long the question stands; ``None`` for ever."""

    def is_overdue(self, now: float) -> bool:
        """Whether the time of the question is over at ``now``, in seconds since the epoch."""
        return self.timeout_seconds is not None and now >= self.created_at + self.timeout_seconds


class ApproveAnswer(_Value):
    """What a person decided about a call."""

    decision: Literal["approve", "deny", "edit"]
    reason: str = ""
    """Why, for the model to read."""
    edited_args: JsonObject | None = None
    """With ``edit``: the arguments that run."""


PersonAnswer = bool | ApproveAnswer | dict[str, Any]
"""``bool`` to confirm, ``ApproveAnswer`` to approve, a dict by question key to ask."""
