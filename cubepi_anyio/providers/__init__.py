"""Talk to a model. Concrete providers are imported from their own modules: ``cubepi_anyio.providers.anthropic``."""

from .faux import FauxProvider as FauxProvider
from .faux import FauxResponse as FauxResponse
from .faux import faux_assistant_message as faux_assistant_message
from .faux import faux_text as faux_text
from .faux import faux_thinking as faux_thinking
from .faux import faux_tool_call as faux_tool_call
