"""Names for JSON-shaped data."""

from __future__ import annotations

from typing import Any

__all__ = ("JsonObject", "JsonValue")

JsonValue = Any
"""A value JSON can express. ``Any`` on purpose: checking every leaf of what a model sent costs more than it tells."""

JsonObject = dict[str, Any]
"""A JSON object."""
