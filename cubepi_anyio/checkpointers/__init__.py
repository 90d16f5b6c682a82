"""Stores of threads: the protocol, and the repair of what a killed process left."""

from ..types.transcript import repaired as repaired
from .base import Checkpointer as Checkpointer
from .base import RunClaim as RunClaim
from .base import RunEnd as RunEnd
from .base import StoredRequest as StoredRequest
from .base import ThreadRecord as ThreadRecord
