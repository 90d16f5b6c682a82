"""What a model is: its name, limits, prices and how it reasons."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, model_validator

from .json import JsonObject
from .settings import ModelSettings
from .usage import ModelCost

__all__ = ("Model", "ReasoningControl", "ResponseSchema", "ToolChoice")

ToolChoice = str
"""``"auto"``, ``"required"`` (some tool), ``"none"``, or the name of the one tool the model must call."""


class ReasoningControl(BaseModel):
    """How much a model may think before it answers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mode: Literal["off", "auto", "on"] = "off"
    effort: Literal["minimal", "low", "medium", "high", "max"] = "medium"
    summary: Literal["none", "auto", "detailed", "summarized"] = "none"
    budget_tokens: int | None = None
    """An explicit number of thinking tokens, for models that take one; wins over ``effort``."""


class ResponseSchema(BaseModel):
    """The JSON Schema that the text of an answer must fit; the schema is an object at its root."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    """Letters, digits, ``_`` and ``-``; vendors show it to the model."""
    json_schema: JsonObject
    description: str = ""


class Model(BaseModel):
    """Name and limits of one model. ``provider`` and ``provider_id`` are the same field."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    id: str
    provider: str = ""
    api: str = ""
    reasoning: bool = False
    """Whether the model can think before it answers."""
    context_window: int = 200_000
    """Tokens of prompt and answer together."""
    max_tokens: int = 8192
    """The most tokens an answer may have. Formats whose vendors have a limit of their own send it only where it was
    given."""
    temperature: float | None = None
    """``None`` leaves the choice to the vendor."""
    cost: ModelCost | None = None
    settings: ModelSettings | None = None
    """How the model answers; what an agent and a run set is laid over it."""

    @property
    def given_max_tokens(self) -> int | None:
        """``max_tokens`` where it was given, also if it equals the default; ``None`` where it is only the default."""
        return self.max_tokens if "max_tokens" in self.model_fields_set else None

    @property
    def provider_id(self) -> str:
        """The same as ``provider``."""
        return self.provider

    @model_validator(mode="before")
    @classmethod
    def _provider_id_is_provider(cls, data: Any) -> Any:
        if isinstance(data, dict) and "provider_id" in data:
            fields = dict(cast("dict[str, Any]", data))
            given = fields.pop("provider_id")
            if fields.setdefault("provider", given) != given:
                raise ValueError("provider and provider_id are the same field and were given different values")
            return fields
        return cast("Any", data)
