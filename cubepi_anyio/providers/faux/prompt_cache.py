"""A vendor's prompt cache in small: how much of a prompt it has seen before, counted in tokens.

Nothing is serialised: messages are compared by identity first and by value where that fails, and each is measured
once, so a conversation that grows costs what is new in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import compress, count
from operator import is_not

from ...types.content import OpaqueContent, TextContent, ThinkingContent, ToolCall
from ...types.messages import Message
from ...types.tool import ToolDefinition
from ...types.usage import Usage
from .script import arguments_text

__all__ = ("PromptCache", "characters_of_block", "tokens_of")

_CONVERSATIONS = 64
"""How many conversations are remembered; the one not asked for longest is forgotten."""

_CHARACTERS_PER_TOKEN = 4

_MEDIA_TOKENS = 1000
"""What a picture or document counts, whatever its size."""


def tokens_of(characters: int) -> int:
    """Tokens of a text of so many characters, rounded up."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


class PromptCache:
    """What was sent before, conversation by conversation."""

    def __init__(self) -> None:
        self._known: list[_Conversation] = []

    def clear(self) -> None:
        """Forget every conversation."""
        self._known.clear()

    def read(
        self, model_id: str, system_prompt: str, tools: Sequence[ToolDefinition], messages: list[Message]
    ) -> Usage:
        """Count a prompt and remember it.

        ``cache_read_tokens`` is what it has in common, from its beginning, with an earlier prompt to the same
        model; ``cache_write_tokens`` is the rest. ``messages`` is kept and must not change afterwards.
        """
        head = (model_id, system_prompt, list(tools))
        shared, conversation = 0, None
        for known in self._known:
            length = known.shared_with(head, messages)
            if length >= 0 and (conversation is None or length > shared):
                shared, conversation = length, known
        if conversation is None:
            extended, read = _Conversation(head), 0
        else:
            extended, read = conversation.continued(shared), conversation.totals[shared]
            if extended is conversation:
                self._known.remove(conversation)
        extended.extend(messages)
        self._known.append(extended)
        del self._known[:-_CONVERSATIONS]
        return Usage(cache_read_tokens=read, cache_write_tokens=extended.totals[-1] - read)


class _Conversation:
    """One prompt: ``totals[n]`` are the tokens of its system prompt, its tools and its first n messages."""

    __slots__ = ("head", "messages", "totals")

    def __init__(self, head: tuple[str, str, list[ToolDefinition]], totals: list[int] | None = None) -> None:
        self.head = head
        self.messages: list[Message] = []
        self.totals = totals if totals is not None else [_head_tokens(head)]

    def shared_with(self, head: tuple[str, str, list[ToolDefinition]], messages: list[Message]) -> int:
        """How many messages both begin with; -1 if even the system prompt or the tools differ."""
        if head != self.head:
            return -1
        end = min(len(messages), len(self.messages))
        # Almost always the very same objects: passing over those without a loop of our own is three times as fast.
        same = next(compress(count(), map(is_not, messages, self.messages)), end)
        for length in range(same, end):
            message, known = messages[length], self.messages[length]
            if message is not known and message != known:
                return length
        return end

    def continued(self, shared: int) -> _Conversation:
        """This conversation if the new prompt only adds to it, else a new one that begins like it."""
        if shared == len(self.messages):
            return self
        return _Conversation(self.head, self.totals[: shared + 1])

    def extend(self, messages: list[Message]) -> None:
        """Become the prompt ``messages``, of which ``totals`` covers the beginning."""
        totals = self.totals
        for message in messages[len(totals) - 1 :]:
            totals.append(totals[-1] + tokens_of(_characters_of(message)))
        self.messages = messages


def _head_tokens(head: tuple[str, str, list[ToolDefinition]]) -> int:
    _, system_prompt, tools = head
    characters = len(system_prompt)
    for tool in tools:
        characters += len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters, default=str))
    return tokens_of(characters)


def _characters_of(message: Message) -> int:
    return len(message.role) + sum(characters_of_block(block) for block in message.content)


def characters_of_block(block: object) -> int:
    """How many characters a block counts as; pictures and documents count the same whatever their size."""
    match block:
        case TextContent(text=text):
            return len(text)
        case ThinkingContent(thinking=thinking, redacted=redacted):
            return len(thinking) + len(redacted or "")
        case ToolCall():
            return len(block.name) + len(arguments_text(block))
        case OpaqueContent(data=data):
            return len(json.dumps(data, default=str))
        case _:
            return _MEDIA_TOKENS * _CHARACTERS_PER_TOKEN
