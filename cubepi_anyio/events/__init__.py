"""What providers and agents say while they work."""

from ..types.run import RunOutcome as RunOutcome
from .agent import AgentEndEvent as AgentEndEvent
from .agent import AgentEvent as AgentEvent
from .agent import AgentStartEvent as AgentStartEvent
from .agent import MessageEndEvent as MessageEndEvent
from .agent import MessageStartEvent as MessageStartEvent
from .agent import MessageUpdateEvent as MessageUpdateEvent
from .agent import ToolExecutionEndEvent as ToolExecutionEndEvent
from .agent import ToolExecutionStartEvent as ToolExecutionStartEvent
from .agent import ToolExecutionUpdateEvent as ToolExecutionUpdateEvent
from .agent import TurnEndEvent as TurnEndEvent
from .agent import TurnStartEvent as TurnStartEvent
from .stream import StreamEvent as StreamEvent
from .stream import StreamEventType as StreamEventType
