"""The seams of a run, and how several middleware become one."""

from .middleware import AfterToolCallContext as AfterToolCallContext
from .middleware import AgentContext as AgentContext
from .middleware import BeforeToolCallContext as BeforeToolCallContext
from .middleware import Middleware as Middleware
from .middleware import TurnAction as TurnAction
