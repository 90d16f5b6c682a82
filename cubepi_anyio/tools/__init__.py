"""Define tools, check what a model sends them, and run the calls of a message."""

from .decorator import tool as tool
from .definition import AgentTool as AgentTool
from .definition import AgentToolResult as AgentToolResult
from .definition import OnUpdate as OnUpdate
from .definition import ToolContext as ToolContext
from .definition import check_unique_names as check_unique_names
from .outcome import CallEnding as CallEnding
from .outcome import CallOutcome as CallOutcome
from .validation import ArgumentsInvalid as ArgumentsInvalid
