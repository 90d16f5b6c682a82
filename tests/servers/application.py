"""The program around the agent, as one would write it: it asks again where the error says that this may help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from cubepi_anyio import Agent, RunResult
from cubepi_anyio.errors import MalformedResponse, ProviderTimeout, ProviderUnavailable, RateLimited

WORTH_ANOTHER_TRY = (RateLimited, ProviderUnavailable, ProviderTimeout, MalformedResponse)


@dataclass
class Application:
    """Gives a prompt to a new agent, up to ``attempts`` times, and waits in between as long as it is told to."""

    make_agent: Callable[[], Agent]
    attempts: int = 3
    results: list[RunResult] = field(default_factory=list[RunResult])

    @property
    def errors(self) -> list[type[Exception]]:
        """The classes of the errors met so far."""
        return [type(result.error) for result in self.results if result.error is not None]

    async def answer(self, prompt: str) -> RunResult:
        """The result of the last attempt."""
        pause_seconds = 0.05
        while True:
            result = await self.make_agent().prompt(prompt)
            self.results.append(result)
            error = result.error
            if not isinstance(error, WORTH_ANOTHER_TRY) or len(self.results) == self.attempts:
                return result
            advised = error.retry_after_seconds
            await anyio.sleep(pause_seconds if advised is None else advised)
            pause_seconds *= 3
