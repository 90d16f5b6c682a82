"""Says what a vendor would refuse in a transcript."""

from __future__ import annotations

from collections.abc import Sequence

from ..types.content import TextContent, ThinkingContent
from ..types.messages import CUT_STOP_REASONS, AssistantMessage, Message
from ..types.transcript import tool_cycle_faults

__all__ = ("check_transcript",)


def check_transcript(messages: Sequence[Message]) -> list[str]:
    """Say what is wrong with a transcript, one sentence each; an empty list means any model accepts it.

    Every call is answered exactly once, in order; no id is used twice; no message and no text block is empty; a
    message that was cut keeps no thinking without its signature and no call whose arguments were incomplete.
    """
    faults = tool_cycle_faults(messages)
    for index, message in enumerate(messages):
        faults.extend(f"message {index} ({message.role}): {fault}" for fault in _message_faults(message))
    seen: set[str] = set()
    for message in messages:
        if message.id and message.id in seen:
            faults.append(f"two messages have the id {message.id!r}")
        seen.add(message.id)
    return faults


def _message_faults(message: Message) -> list[str]:
    faults = [] if message.content else ["it has no content"]
    is_broken = isinstance(message, AssistantMessage) and message.stop_reason in CUT_STOP_REASONS
    for position, block in enumerate(message.content):
        if isinstance(block, TextContent) and not block.text.strip():
            faults.append(f"the text of block {position} is empty")
        if is_broken and isinstance(block, ThinkingContent) and not (block.signature or block.redacted):
            faults.append(f"the message was cut, and the thinking of block {position} has no signature")
        if is_broken and block.type == "tool_call" and block.invalid_arguments is not None:
            faults.append(f"the message was cut in the arguments of call {block.id!r}")
    return faults
