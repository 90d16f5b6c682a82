"""Values: messages, models, tools, usage. No I/O, no tasks, no clock."""

from .content import AssistantContent as AssistantContent
from .content import Content as Content
from .content import DocumentContent as DocumentContent
from .content import ImageContent as ImageContent
from .content import OpaqueContent as OpaqueContent
from .content import TextContent as TextContent
from .content import ThinkingContent as ThinkingContent
from .content import ToolCall as ToolCall
from .json import JsonObject as JsonObject
from .json import JsonValue as JsonValue
from .messages import AssistantMessage as AssistantMessage
from .messages import Message as Message
from .messages import ToolResultMessage as ToolResultMessage
from .messages import UserMessage as UserMessage
from .messages import message_adapter as message_adapter
from .messages import text_of as text_of
from .model import Model as Model
from .model import ReasoningControl as ReasoningControl
from .model import ResponseSchema as ResponseSchema
from .model import ToolChoice as ToolChoice
from .settings import ModelSettings as ModelSettings
from .tool import ToolDefinition as ToolDefinition
from .tool_cycle import tool_cycle_faults as tool_cycle_faults
from .usage import ModelCost as ModelCost
from .usage import Usage as Usage
