"""The invariant every transcript keeps: each tool call is answered exactly once, in order, at once."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import AssistantMessage, Message, ToolResultMessage

__all__ = ("tool_cycle_faults",)


def tool_cycle_faults(messages: Sequence[Message]) -> list[str]:
    """Say what is wrong with the calls and results of a transcript; an empty list means it is valid.

    After an assistant message with K calls the next K messages are their results, in the order of the
    calls; a result stands nowhere else.
    """
    faults: list[str] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if isinstance(message, ToolResultMessage):
            faults.append(f"message {index - 1}: result {message.tool_call_id!r} answers no call before it")
        if not isinstance(message, AssistantMessage):
            continue
        for call in message.tool_calls:
            answer = messages[index] if index < len(messages) else None
            if not isinstance(answer, ToolResultMessage):
                faults.append(f"message {index}: call {call.id!r} ({call.name}) has no result")
            elif answer.tool_call_id != call.id:
                faults.append(f"message {index}: expected the result of {call.id!r}, found {answer.tool_call_id!r}")
                index += 1
            else:
                index += 1
    return faults
