"""Token counts and what they cost."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

__all__ = ("ModelCost", "Usage")


class Usage(BaseModel):
    """Tokens of one model call, or of several added up.

    ``input_tokens`` are the prompt's tokens that were read at the full price: those read from or written
    to a prompt cache stand in ``cache_read_tokens`` and ``cache_write_tokens`` and are not counted twice.
    ``reasoning_tokens`` are part of ``output_tokens``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        """How much of the model's window the prompt filled."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Everything read and written."""
        return self.context_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class ModelCost(BaseModel):
    """Prices in US dollars for a million tokens."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0

    def of(self, usage: Usage) -> float:
        """What ``usage`` costs, in US dollars."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        ) / 1_000_000
