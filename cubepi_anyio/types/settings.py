"""What can be set of a model call besides what is asked: one value, given by model, by agent and by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict

from .json import JsonObject

__all__ = ("ModelSettings", "merged_body")


class ModelSettings(BaseModel):
    """How a model is to answer. ``None`` is not said, and leaves the choice to the vendor.

    A wire format sends what it has a field for. What it has none for it refuses by name, with ``UnsupportedSetting``,
    before anything is sent.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    """Texts at which the answer ends; they are not part of it."""
    seed: int | None = None
    max_output_tokens: int | None = None
    """The most tokens the answer may have, instead of the model's ``max_tokens``."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may call several tools."""
    service_tier: str | None = None
    """The vendor's word for how fast and how dear it answers."""
    cache_key: str | None = None
    """What requests have in common that begin with the same prompt, so that the vendor finds it in its cache."""
    verbosity: str | None = None
    """The vendor's word for how much is said: ``low``, ``medium`` or ``high``."""
    user: str | None = None
    """Who the answer is for, in a form that names nobody; vendors use it against abuse."""
    extra_body: JsonObject | None = None
    """Fields of the request in the vendor's own words, merged into it last (``merged_body``)."""
    extra_headers: dict[str, str] | None = None

    def merge(self, over: ModelSettings | None) -> ModelSettings:
        """These settings with ``over`` laid over them: what ``over`` says wins, field by field.

        ``extra_body`` is merged like ``merged_body``, ``extra_headers`` by name, whatever its letters. Laying the same
        settings over twice changes nothing.
        """
        if over is None:
            return self
        said: dict[str, Any] = {
            name: value for name in type(self).model_fields if (value := getattr(over, name)) is not None
        }
        if self.extra_body and over.extra_body:
            said["extra_body"] = merged_body(self.extra_body, over.extra_body)
        if self.extra_headers and over.extra_headers:
            replaced = {name.lower() for name in over.extra_headers}
            kept = {name: value for name, value in self.extra_headers.items() if name.lower() not in replaced}
            said["extra_headers"] = kept | over.extra_headers
        return self.model_copy(update=said) if said else self


def merged_body(body: Mapping[str, Any], extra: Mapping[str, Any]) -> JsonObject:
    """``body`` with ``extra`` laid over it; nothing of either is changed.

    Objects are merged key by key, at every depth, and other values replaced. A list of ``tools`` is added to the one
    that is there, less what it holds already: so a vendor's own tools stand beside an agent's.
    """
    merged = _merged(body, extra)
    ours, theirs = body.get("tools"), extra.get("tools")
    if isinstance(ours, list) and isinstance(theirs, list):
        merged["tools"] = [*ours, *(tool for tool in cast("list[Any]", theirs) if tool not in ours)]
    return merged


def _merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> JsonObject:
    merged = dict(body)
    for name, value in extra.items():
        there = merged.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", there), cast("Mapping[str, Any]", value))
        merged[name] = value
    return merged
