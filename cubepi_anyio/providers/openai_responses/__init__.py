"""OpenAI's Responses API, and whatever imitates it."""

from .provider import OpenAIResponsesProvider as OpenAIResponsesProvider
