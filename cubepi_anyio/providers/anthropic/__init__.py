"""Anthropic's Messages API, and whatever speaks it."""

from .provider import AnthropicProvider as AnthropicProvider
from .request import CacheRetention as CacheRetention
