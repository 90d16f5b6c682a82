"""Settings as the fields of a wire format. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UnsupportedSetting
from ..types.json import JsonObject
from ..types.settings import ModelSettings

__all__ = ("settings_fields",)

_SAID_BY_EACH_FORMAT = frozenset(("temperature", "max_output_tokens", "extra_body", "extra_headers"))
"""The settings that every format has, and says where it says what it depends on."""


def settings_fields(settings: ModelSettings, fields: Mapping[str, str], *, api: str) -> JsonObject:
    """The part of a payload that says ``settings``.

    ``fields`` maps each setting that the format has to the name of its field; a dot in a name stands for a field in an
    object, and an empty name for one that the format says elsewhere. Raises ``UnsupportedSetting`` for a setting that
    was given and is not in ``fields``.
    """
    payload: JsonObject = {}
    for name, value in settings:
        if value is None or name in _SAID_BY_EACH_FORMAT:
            continue
        if name not in fields:
            raise UnsupportedSetting(name, api)
        field, _, inner = fields[name].partition(".")
        if name == "stop":
            value = list(settings.stop or ())
        if inner:
            payload.setdefault(field, {})[inner] = value
        elif field:
            payload[field] = value
    return payload
