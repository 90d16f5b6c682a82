"""The stand-in for a model in the demo: its first answer calls five tools, its second says what they found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from ... import FauxProvider, Message, ToolResultMessage, faux_assistant_message, faux_tool_call
from ...types.messages import text_of
from ..screen.text import counted, size_text
from .files import FileSet
from .tools import Pace

__all__ = ("demo_model", "final_answer")


_OPENING = "I will look at {} with five tools at once. One will fail and one will be too slow; the rest go on."


def demo_model(files: FileSet, pace: Pace, search: str) -> FauxProvider:
    """A provider that plays both answers; the second is written from the results it is sent."""
    provider = FauxProvider(tokens_per_second=pace.tokens_per_second)
    names = (f"missing{'' if number == 1 else f'-{number}'}.txt" for number in count(1))
    missing_name = next(name for name in names if not (files.root / name).exists())
    opening = faux_assistant_message(
        [
            _OPENING.format(counted(len(files.files), "file")),
            faux_tool_call("count_lines"),
            faux_tool_call("hash_files"),
            faux_tool_call("search_text", {"text": search}),
            faux_tool_call("read_file", {"name": missing_name}),
            faux_tool_call("ask_slow_service"),
        ]
    )
    provider.set_responses([opening, final_answer])
    return provider


def final_answer(messages: list[Message]) -> str:
    """What there is to say about the results in ``messages``: facts of the calls that worked, reasons of the others."""
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    facts = {result.tool_name: _facts(result) for result in results if not result.is_error}
    failures = [f"{result.tool_name}: {text_of(result.content)}" for result in results if result.is_error]
    said = [
        *_on_counts(facts.get("count_lines"), facts.get("hash_files")),
        *_on_copies(facts.get("hash_files")),
        *_on_search(facts.get("search_text")),
    ]
    if failures:
        said += ["Not everything worked:", *(f"- {failure}" for failure in failures)]
    return "\n".join(said) or "There were no results to speak of."


def _facts(result: ToolResultMessage) -> Mapping[str, Any]:
    try:
        return json.loads(text_of(result.content))
    except ValueError:
        return {}


def _on_counts(counts: Mapping[str, Any] | None, hashes: Mapping[str, Any] | None) -> list[str]:
    if not counts:
        return []
    amount = f"{counted(counts['lines'], 'line')} and {counted(counts['words'], 'word')}"
    said = [f"There are {amount} in {counted(counts['files'], 'file')}, {size_text(counts['bytes'])}. The longest:"]
    digests: Mapping[str, str] = hashes["digests"] if hashes else {}
    for name, lines in counts["longest"]:
        digest = f", SHA-256 {digests[name]}" if name in digests else ""
        said.append(f"- {name}: {counted(lines, 'line')}{digest}")
    return said


def _on_copies(hashes: Mapping[str, Any] | None) -> list[str]:
    if not hashes:
        return []
    copies = len(hashes["digests"]) - hashes["different"]
    if not copies:
        return ["By their SHA-256, no two files are the same."]
    return [f"By their SHA-256, {counted(copies, 'file is a copy', 'files are copies')} of another."]


def _on_search(search: Mapping[str, Any] | None) -> list[str]:
    if not search:
        return []
    if not search["lines"]:
        return [f"{search['text']!r} is in none of them."]
    name, lines = search["most"]
    where = f"{counted(search['lines'], 'line')} of {counted(search['files'], 'file')}"
    return [f"{search['text']!r} is in {where}, most often in {name} ({lines:,})."]
