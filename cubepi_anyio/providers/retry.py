"""A model that is asked again when it could not answer. See ``composed.retry``."""

from .composed.retry import RETRYABLE_ERRORS as RETRYABLE_ERRORS
from .composed.retry import OnRetry as OnRetry
from .composed.retry import RetryModel as RetryModel
from .composed.retry import RetryNotice as RetryNotice
from .composed.retry import RetryPolicy as RetryPolicy

__all__ = ("RETRYABLE_ERRORS", "OnRetry", "RetryModel", "RetryNotice", "RetryPolicy")
