"""Define tools, check what a model sends them, and run the calls of a message."""

from .context import RunContext as RunContext
from .context import ToolContext as ToolContext
from .context import ToolSource as ToolSource
from .define.decorator import tool as tool
from .define.definition import AgentTool as AgentTool
from .define.definition import AgentToolResult as AgentToolResult
from .define.definition import OnUpdate as OnUpdate
from .define.definition import check_unique_names as check_unique_names
from .define.validation import ArgumentsInvalid as ArgumentsInvalid
from .run.outcome import CallEnding as CallEnding
from .run.outcome import CallOutcome as CallOutcome
