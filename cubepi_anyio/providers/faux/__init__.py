"""A model that says what a test tells it to: no network, no clock, and every way a real one fails."""

from .provider import FauxCall as FauxCall
from .provider import FauxProvider as FauxProvider
from .script import FauxFactory as FauxFactory
from .script import FauxReply as FauxReply
from .script import FauxResponse as FauxResponse
from .script import faux_assistant_message as faux_assistant_message
from .script import faux_text as faux_text
from .script import faux_thinking as faux_thinking
from .script import faux_tool_call as faux_tool_call
