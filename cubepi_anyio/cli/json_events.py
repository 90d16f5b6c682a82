"""Events and results of a run as JSON, a line for each. Pure.

Every line is an object with a ``type``: those of the agent's events, and at last ``result``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from pydantic_core import to_jsonable_python

from .. import AgentEvent, MessageUpdateEvent, RunResult
from ..types.messages import Message, message_adapter

__all__ = ("event_line", "messages_text", "result_line")


def event_line(event: AgentEvent) -> str:
    """One event. Of a message that grows there is only what is new: its ``event`` says how."""
    if isinstance(event, MessageUpdateEvent):
        step = event.stream_event
        grown = {"type": step.type, "content_index": step.content_index, "delta": step.delta}
        values: dict[str, Any] = {"event": {name: value for name, value in grown.items() if value is not None}}
    else:
        values = {field.name: getattr(event, field.name) for field in fields(event) if field.name != "type"}
    return _line(event.type, values)


def result_line(result: RunResult) -> str:
    """How the run ended."""
    error = result.error
    values = {
        "run_id": result.run_id,
        "outcome": result.outcome,
        "text": result.text,
        "usage": result.usage,
        "limit": result.limit,
        "error": None if error is None else {"type": type(error).__name__, "message": str(error)},
    }
    return _line("result", values)


def _line(kind: str, values: dict[str, Any]) -> str:
    # What a tool reports may be anything, and is then given as its text.
    plain = to_jsonable_python(values, fallback=str, inf_nan_mode="null", bytes_mode="base64")
    # Escapes keep a line on one line for every reader, and characters that an encoding lacks out of the way.
    return json.dumps({"type": kind, **plain})


def messages_text(messages: list[Message]) -> str:
    """A transcript as a JSON list, as ``Message`` reads it."""
    return json.dumps([message_adapter.dump_python(message, mode="json") for message in messages], indent=1) + "\n"
