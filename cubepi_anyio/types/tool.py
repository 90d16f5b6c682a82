"""What a model is told of a tool."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from .json import JsonObject

__all__ = ("ToolDefinition",)


class ToolDefinition(BaseModel):
    """Name, purpose and parameters (a JSON Schema object) of a tool, as a model sees them."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    name: str
    description: str = ""
    parameters: JsonObject = Field(default_factory=dict)
    strict: bool | None = None
    """Whether the vendor must hold the model to the schema; ``None`` leaves it to the provider. Not all of them can."""
