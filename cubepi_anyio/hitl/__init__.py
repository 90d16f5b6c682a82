"""Ask a person: channels, the middleware that asks before a tool runs, and the tool with which a model asks."""

from ..types.hitl import ApproveAnswer as ApproveAnswer
from ..types.hitl import Option as Option
from ..types.hitl import PersonAnswer as PersonAnswer
from ..types.hitl import PersonRequest as PersonRequest
from ..types.hitl import Question as Question
from ..types.person_answers import check_answer as check_answer
from .approval import ApprovalPolicy as ApprovalPolicy
from .approval import ConfirmToolCall as ConfirmToolCall
from .ask_user import ask_user_tool as ask_user_tool
from .channel import DEFAULT_TIMEOUT as DEFAULT_TIMEOUT
from .channel import Channel as Channel
from .channel import UseDefault as UseDefault
from .channel import is_overdue as is_overdue
from .durable import DurableChannel as DurableChannel
from .durable import Journal as Journal
from .memory import MemoryChannel as MemoryChannel
from .memory import RequestEnding as RequestEnding
from .memory import Requests as Requests
from .policy import Approve as Approve
from .policy import AskPerson as AskPerson
from .policy import Deny as Deny
from .policy import Edit as Edit
from .policy import Policy as Policy
from .policy import PolicyDecision as PolicyDecision
from .terminal import TerminalChannel as TerminalChannel
