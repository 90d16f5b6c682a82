"""Where the prompt-cache marks go. Pure.

A mark makes the vendor keep the prompt up to and including the marked block, and look up what it has kept; a request
may have four ("Prompt caching" in Anthropic's API guide). The prompt's order is tools, system, messages.
"""

from __future__ import annotations

from typing import Literal

from ...types.json import JsonObject

__all__ = ("CacheRetention", "mark_cache")

CacheRetention = Literal["none", "short", "long"]
"""How long the vendor keeps a prompt it has read: not at all, five minutes, or an hour. Longer costs more to write."""


def mark_cache(payload: JsonObject, retention: CacheRetention) -> None:
    """Mark the last tool, the system prompt, and the last two user messages of ``payload``, in place.

    The last user message is marked so that the next request finds everything up to it; the one before it, because the
    last request ended there, and the vendor looks only some twenty blocks back for it, fewer than a batch of tool
    results may have.
    """
    if retention == "none":
        return
    mark: JsonObject = {"type": "ephemeral", "ttl": "1h"} if retention == "long" else {"type": "ephemeral"}
    if payload.get("tools"):
        payload["tools"][-1]["cache_control"] = mark
    if payload.get("system"):
        payload["system"] = [{"type": "text", "text": payload["system"], "cache_control": mark}]
    asked = [message for message in payload["messages"] if message["role"] == "user"]
    for message in asked[-2:]:
        message["content"][-1]["cache_control"] = mark
