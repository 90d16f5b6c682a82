"""The import path of ``OpenAIProvider``; it lives in ``providers.openai_chat``."""

from .openai_chat import OpenAIProvider as OpenAIProvider

__all__ = ("OpenAIProvider",)
