"""OpenAI's Chat Completions API, and whatever imitates it."""

from .presets import PRESETS as PRESETS
from .presets import Preset as Preset
from .presets import Quirks as Quirks
from .provider import OpenAIProvider as OpenAIProvider
