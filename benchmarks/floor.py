"""The floor: what the same work costs when it is written by hand on anyio, without a library.

The model is an async generator that is iterated where it stands, the transcript a list of dicts, a batch one task
group. No events, no checks, no record of what was cancelled: nothing a user would want to keep, and so the least that
the work can cost.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
from workloads import Answer, Script, ToolBody


async def model(answer: Answer) -> AsyncGenerator[tuple[str, Any], None]:
    """Say ``answer``: pairs of a kind and a delta or call."""
    deltas, kind = (answer.text, "text") if answer.text is not None else (answer.argument_deltas or (), "arguments")
    for number, delta in enumerate(deltas):
        if number % 8 == 0:
            await anyio.lowlevel.checkpoint()
        yield kind, delta
    if answer.silent:
        await anyio.sleep_forever()
    for call in answer.calls:
        yield "call", call


class Floor:
    name = "floor"
    backends = ("asyncio", "trio")

    def tool(self, body: ToolBody) -> ToolBody:
        return body

    async def run(
        self,
        script: Script,
        tool: ToolBody,
        *,
        on_delta: Callable[[str], None] | None = None,
        wait_delta: Callable[[str], Awaitable[None]] | None = None,
        store: Callable[[dict[str, Any]], None] | None = None,
        on_abort: Callable[[Callable[[], object]], object] | None = None,
    ) -> list[dict[str, Any]]:
        if on_abort is None:
            return await self._loop(script, tool, on_delta, wait_delta, store)
        with anyio.CancelScope() as scope:
            on_abort(scope.cancel)
            return await self._loop(script, tool, on_delta, wait_delta, store)
        return []

    async def _loop(  # noqa: C901 - in one piece, because a call would be work that nobody has to do
        self,
        script: Script,
        tool: ToolBody,
        on_delta: Callable[[str], None] | None,
        wait_delta: Callable[[str], Awaitable[None]] | None,
        store: Callable[[dict[str, Any]], None] | None,
    ) -> list[dict[str, Any]]:
        transcript: list[dict[str, Any]] = []

        def keep(message: dict[str, Any]) -> None:
            transcript.append(message)
            if store is not None:
                store(message)

        keep({"role": "user", "text": "go"})
        for index in range(1_000_000):
            text: list[str] = []
            arguments: list[str] = []
            calls: list[tuple[str, str, dict[str, Any]]] = []
            async for kind, said in model(script(index)):
                if kind == "call":
                    calls.append(said)
                    continue
                (text if kind == "text" else arguments).append(said)
                if on_delta is not None:
                    on_delta(said)
                if wait_delta is not None:
                    await wait_delta(said)
            if arguments:
                calls.append(("a0", "noop", json.loads("".join(arguments))))
            keep({"role": "assistant", "text": "".join(text), "calls": calls})
            if not calls:
                break
            for call, result in zip(calls, await _batch(calls, tool), strict=True):
                keep({"role": "tool", "id": call[0], "text": result})
        return transcript


async def _batch(calls: list[tuple[str, str, dict[str, Any]]], tool: ToolBody) -> list[str | None]:
    results: list[str | None] = [None] * len(calls)

    async def one(place: int, arguments: dict[str, Any]) -> None:
        results[place] = await tool(arguments["x"])

    async with anyio.create_task_group() as tasks:
        for place, (_, _, arguments) in enumerate(calls):
            tasks.start_soon(one, place, arguments)
    return results


LIBRARY = Floor()
WIRES: dict[str, Any] = {}
