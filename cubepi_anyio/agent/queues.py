"""Messages that wait to be said: to steer a run, or to follow when it would end."""

from __future__ import annotations

from itertools import count

from ..types.messages import Message
from .config import QueueMode

__all__ = ("MessageQueue",)

_ids = count(1)


class MessageQueue:
    """Messages in the order they were accepted; each can be taken back by its id until it is taken."""

    def __init__(self) -> None:
        self._waiting: dict[str, Message] = {}
        """By their ids, oldest first."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def messages(self) -> list[Message]:
        """What waits, in order."""
        return list(self._waiting.values())

    def put(self, message: Message) -> str:
        """Accept a message and return the id with which it can be taken back."""
        queued_id = f"queued-{next(_ids)}"
        self._waiting[queued_id] = message
        return queued_id

    def retract(self, queued_id: str) -> bool:
        """Take a message back; ``False`` if it is no longer waiting."""
        return self._waiting.pop(queued_id, None) is not None

    def take(self, mode: QueueMode) -> list[Message]:
        """Take the next message, or all of them."""
        if mode == "one-at-a-time":
            return [self._waiting.pop(next(iter(self._waiting)))] if self._waiting else []
        taken = self.messages
        self._waiting.clear()
        return taken

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
