"""A provider that asks the program to exit, and one that cancels itself."""

from __future__ import annotations

from typing import Any

import pytest

from cubepi_anyio import Agent, BaseProvider, IncompleteStream, MessageStream, StreamEvent

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


class _Provider(BaseProvider):
    def __init__(self, produce: Any) -> None:
        super().__init__()
        self._produce = produce

    async def stream(self, model: Any, messages: Any, **_: Any) -> MessageStream:
        return MessageStream(self._produce)


@pytest.mark.parametrize("exit_class", [SystemExit, KeyboardInterrupt])
async def test_an_exit_raised_by_a_producer_leaves_as_itself(exit_class: type[BaseException]) -> None:
    async def produce(stream: MessageStream) -> None:
        await stream.send(StreamEvent("start"))
        raise exit_class("enough")

    agent = Agent(model=_Provider(produce).model("m"))
    events: list[str] = []
    agent.subscribe(lambda event: events.append(event.type))
    with pytest.raises(exit_class, match="enough"):
        await agent.prompt("hi")
    assert not agent.state.is_running
    assert events[-1] == "agent_end"


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_provider_that_cancels_itself_has_failed() -> None:
    import asyncio  # noqa: PLC0415 - only asyncio lets code raise its cancellation

    class Cancelling(BaseProvider):
        async def stream(self, model: Any, messages: Any, **_: Any) -> MessageStream:
            raise asyncio.CancelledError

    result = await Agent(model=Cancelling().model("m")).prompt("hi")
    assert result.outcome == "error"
    assert isinstance(result.error, IncompleteStream)
