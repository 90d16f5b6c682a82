"""Models asked one after the other until one answers. See ``composed.fallback``."""

from .composed.fallback import FALLBACK_ERRORS as FALLBACK_ERRORS
from .composed.fallback import FailoverNotice as FailoverNotice
from .composed.fallback import FallbackModel as FallbackModel
from .composed.fallback import OnFailover as OnFailover

__all__ = ("FALLBACK_ERRORS", "FailoverNotice", "FallbackModel", "OnFailover")
