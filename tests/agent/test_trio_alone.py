"""Everything an agent does works under trio although asyncio's tasks, timers and loops are out of order."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
    import asyncio
    import sys

    def out_of_order(*args, **kwargs):
        raise AssertionError("asyncio was used under trio")

    NAMES = "create_task ensure_future gather wait wait_for sleep timeout shield run new_event_loop to_thread"
    for name in [*NAMES.split(), "Event", "Lock", "Queue"]:
        setattr(asyncio, name, out_of_order)

    import anyio

    from cubepi_anyio import RunLimits, run_agent_loop
    from tests.agent.test_same_trace import scripted
    from tests.support.agents import assert_well_ended, bench, calling, saying

    async def main():
        made = scripted()
        print((await made.agent.prompt("hi")).outcome)
        made.provider.set_responses(["resumed"])
        print((await made.agent.resume()).text)
        made.provider.set_responses([calling("alone"), "streamed"])
        async with made.agent.stream("more") as run:
            async for event in run:
                pass
            print((await run.result()).text)
        await made.agent.wait_for_idle()
        await assert_well_ended(made)
        made = bench(calling("say", "say"), "looped", tools=[saying("say")])
        result = await run_agent_loop("hi", [], made.provider.model("m"), tools=[saying("say")])
        print(result.text)

    anyio.run(main, backend="trio")
"""


@pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")
def test_nothing_of_asyncio_is_needed_under_trio() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["error", "resumed", "streamed", "looped"], done.stderr
