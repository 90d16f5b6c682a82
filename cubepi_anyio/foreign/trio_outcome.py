"""trio: a task is resumed with an outcome, which is unwrapped inside, where the task waits.

Why: who drives a coroutine by hand sees what is sent into it. asyncio throws an exception; trio sends an
``outcome.Error`` and the innermost frame raises it. To notice a cancellation on its way in, both have to be read.

What replaces it: a hook that tells of what is delivered to a task, on both loops; there is none. trio stopped throwing
for the sake of tracebacks (python-trio/trio#38, closed; the bugs of ``throw()`` are bpo-29587 and bpo-29590). Driving
coroutines by hand is possible and undocumented on purpose (python-trio/trio#1055). That an ``outcome.Error`` has an
``error`` is documented by outcome.
"""

from __future__ import annotations

__all__ = ("error_sent",)


def error_sent(value: object) -> BaseException | None:
    """The exception that a coroutine will raise when ``value`` is sent into it; ``None`` if it goes on."""
    return getattr(value, "error", None)
