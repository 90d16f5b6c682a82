"""What Chat Completions vendors report of tokens, as ``Usage``. Pure."""

from __future__ import annotations

from typing import Any

from ...types.json import JsonObject
from ...types.usage import Usage

__all__ = ("UsageReports",)

_COUNTERS = (
    ("prompt", (("prompt_tokens",),)),
    ("completion", (("completion_tokens",),)),
    ("total", (("total_tokens",),)),
    # OpenAI's place first; then DeepSeek's, and that of Together and Moonshot.
    ("read", (("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",), ("cached_tokens",))),
    ("written", (("prompt_tokens_details", "cache_write_tokens"),)),
    ("reasoning", (("completion_tokens_details", "reasoning_tokens"),)),
)


class UsageReports:
    """The reports of one answer. Each is a total so far: the last one counts, and a field it lacks keeps its value."""

    def __init__(self, *, reasoning_counted_apart: bool = False) -> None:
        self._reasoning_counted_apart = reasoning_counted_apart
        self._counted: dict[str, int] = {}

    def take(self, report: JsonObject) -> None:
        """Take one ``usage`` object."""
        for name, places in _COUNTERS:
            for place in places:
                count = _at(report, place)
                if count is not None:
                    self._counted[name] = count
                    break

    def usage(self) -> Usage | None:
        """The tokens reported so far; ``None`` while there was no report.

        The vendor's ``prompt_tokens`` include what was read from and written to a cache, ``Usage.input_tokens`` do not.
        """
        counted = self._counted.get
        if not self._counted:
            return None
        read, written = counted("read", 0), counted("written", 0)
        output, reasoning = counted("completion", 0), counted("reasoning", 0)
        if self._reasoning_counted_apart:
            reasoning = max(reasoning, counted("total", 0) - counted("prompt", 0) - output)
            output += reasoning
        return Usage(
            input_tokens=max(0, counted("prompt", 0) - read - written),
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
        )


def _at(report: JsonObject, place: tuple[str, ...]) -> int | None:
    value: Any = report
    for name in place:
        value = value.get(name) if value else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
