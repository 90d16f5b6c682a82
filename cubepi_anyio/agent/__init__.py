"""Run agents: the loop, its record, its limits and its endings."""

from ..types.limits import RunLimits as RunLimits
from ..types.run import RunResult as RunResult
from .agent import Agent as Agent
from .loop import run_agent_loop as run_agent_loop
from .run_stream import RunStream as RunStream
from .state import AgentState as AgentState
