"""The suite that a store of threads must pass."""

from .suite import CHECKPOINTER_CHECKS as CHECKPOINTER_CHECKS
from .suite import CheckpointerCheck as CheckpointerCheck
from .suite import StoreFactory as StoreFactory
from .suite import check_checkpointer as check_checkpointer
