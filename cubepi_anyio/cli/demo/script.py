"""The model called ``faux``: it repeats what it is told, or plays the answers that stand in a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from ... import FauxProvider, FauxResponse, Message, ProviderUnavailable, UserMessage, faux_text, faux_thinking
from ...errors import UsageError
from ...providers.faux import FauxReply, faux_tool_call
from ...types.content import AssistantContent
from ..screen.text import printable

__all__ = ("scripted_provider",)

_KEYS = frozenset({"thinking", "text", "calls", "stall_after_deltas", "error"})


def scripted_provider(path: str) -> FauxProvider:
    """A model that plays the file at ``path``, or without one repeats what it is told.

    The file holds a JSON list of answers. An answer is a text, or an object with any of ``thinking``, ``text``,
    ``calls`` (objects with ``name`` and ``arguments``), ``stall_after_deltas`` (a number of pieces after which it
    falls silent) and ``error`` (fail with this message instead). Raises ``UsageError`` for a file that is none.
    """
    provider = FauxProvider()
    if path:
        provider.set_responses([_reply(path, number, answer) for number, answer in enumerate(_answers(path), 1)])
        return provider

    def repeat(messages: list[Message]) -> str:
        provider.append_responses([repeat])
        said = next((message.text for message in reversed(messages) if isinstance(message, UserMessage)), "")
        return f"I am a script and no model, so I can only repeat it: {said}"

    provider.set_responses([repeat])
    return provider


def _answers(path: str) -> list[object]:
    try:
        answers: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the script {printable(path)}: {error}") from error
    if not isinstance(answers, list):
        raise UsageError(f"the script {printable(path)} is no JSON list of answers")
    return cast("list[object]", answers)


def _reply(path: str, number: int, answer: object) -> FauxReply:
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, dict) or set(cast("dict[str, object]", answer)) - _KEYS:
        known = ", ".join(sorted(_KEYS))
        raise UsageError(f"answer {number} of {printable(path)} is neither a text nor an object with keys of {known}")
    fields = cast("dict[str, Any]", answer)
    if "error" in fields:
        return ProviderUnavailable(str(fields["error"]), provider="faux", model="script")
    try:
        return FauxResponse(_blocks(fields), stall_after_deltas=fields.get("stall_after_deltas"))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"answer {number} of {printable(path)} cannot be played: {error!r}") from error


def _blocks(fields: dict[str, Any]) -> list[str | AssistantContent]:
    blocks: list[str | AssistantContent] = []
    if "thinking" in fields:
        blocks.append(faux_thinking(str(fields["thinking"])))
    if "text" in fields:
        blocks.append(faux_text(str(fields["text"])))
    blocks.extend(faux_tool_call(call["name"], call.get("arguments")) for call in fields.get("calls", ()))
    return blocks
