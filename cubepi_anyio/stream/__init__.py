"""One message as it is written: the stream, what builds the message, and the bookkeeping for providers."""

from .buffer import StreamStatistics as StreamStatistics
from .builder import MessageBuilder as MessageBuilder
from .draft import DraftWriter as DraftWriter
from .draft import MessageDraft as MessageDraft
from .message_stream import MessageStream as MessageStream
